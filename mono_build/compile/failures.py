"""Turning what went wrong in a worker into a short, typed report."""

from __future__ import annotations

import signal
from pathlib import Path

from mono_build.compile.job import Failure
from mono_build.errors import LaunchError
from mono_build.store.errors import StoreFull
from mono_runtime.errors import MonoError, StoreError

_SHORT = 600
# Begins a log line about a lock, which is never why a launch failed.
WAITING = "mono-build: waiting:"


def describe(error: BaseException) -> Failure:
    """The failure behind an exception, short and with what to do."""
    if isinstance(error, LaunchError):
        return Failure(error.kind, error.what, error.fix)
    if isinstance(error, (StoreFull, StoreError)):
        return Failure("store", str(error), error.fix, fatal=True)
    if isinstance(error, MonoError):
        return Failure("compile", str(error), error.fix)
    if isinstance(error, MemoryError):
        return Failure("memory", "the compile ran out of the memory it may use", _MORE_MEMORY)
    if isinstance(error, ImportError):
        return Failure("import", _short(error), "mono-build doctor shows what the kernels need")
    return Failure("compile", _short(error))


_MORE_MEMORY = "allow more with --memory, or run fewer launches at a time with -j"


def died(exit_code: int | None) -> Failure:
    """The failure of a worker whose process ended on its own."""
    if exit_code is not None and exit_code < 0:
        if exit_code == -signal.SIGKILL:
            what = "the compile was killed (out of memory?)"
            return Failure("memory", what, _MORE_MEMORY, abnormal=True)
        return Failure("died", f"the compile died of {_signal_name(-exit_code)}", abnormal=True)
    return Failure("died", f"the compile ended its process (exit code {exit_code})", abnormal=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Real-time signals have numbers only.
        return f"signal {number}"


def with_last_words(what: str, log: Path) -> str:
    """``what`` with the line of the log that says most: LLVM's error, else the last line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return what
    lines = [line for line in lines if line and not line.startswith(WAITING)]
    words = next((line for line in lines if "LLVM ERROR" in line), lines[-1] if lines else "")
    return f"{what}: {words[:_SHORT]}" if words else what


def timed_out(seconds: float) -> Failure:
    """The failure of a worker that was stopped."""
    return Failure(
        "timeout", f"the compile took longer than {seconds:g} s", "allow more with --timeout"
    )


def _short(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".strip()
    return text if len(text) <= _SHORT else text[:_SHORT] + " ..."
