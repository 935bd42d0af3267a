"""Processes, and the CPU time of everything that descends from them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures.errors import BenchError

# linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
# Seconds that a group's stragglers, such as a fork server, may take to end after it.
_STRAGGLERS = 20.0
_TICK = 0.01
_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: its arguments, whole environment, directory and umask."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    umask: int = -1


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Commands that ran side by side.

    Attributes:
        cpu: user and system seconds of the commands and of all their descendants.
        wall: seconds from the first start to the end of the last command.
    """

    results: tuple[Finished, ...]
    cpu: float
    wall: float


def adopt_orphans() -> None:
    """Let orphaned descendants become children of this process, so that their CPU time is seen.

    A compile session's fork server outlives the process that started it; the kernel then gives its
    usage to whoever waits for it, which without this is process 1.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise BenchError(f"no child subreaper: {os.strerror(ctypes.get_errno())}")


def measure(commands: Sequence[Command], scratch: Path) -> Measured:
    """Run ``commands`` side by side; `adopt_orphans` must have been called.

    Nothing else may be started by this process meanwhile. Output goes through files in ``scratch``.
    """
    outputs = [(scratch / f"stdout.{i}", scratch / f"stderr.{i}") for i in range(len(commands))]
    start = time.monotonic()
    running = [_start(c, *files) for c, files in zip(commands, outputs, strict=True)]
    codes: dict[int, int] = {}
    cpu, end, waiting = 0.0, start, {p.pid for p in running}
    while waiting:
        pid, status, usage = os.wait4(-1, 0)
        cpu += usage.ru_utime + usage.ru_stime
        codes[pid] = os.waitstatus_to_exitcode(status)
        waiting.discard(pid)
        end = time.monotonic()
    cpu += _stragglers()
    for process in running:
        # Popen did not wait for it itself and would complain.
        process.returncode = codes[process.pid]
    results = tuple(
        Finished(p.returncode, out.read_text(), err.read_text(errors="replace"))
        for p, (out, err) in zip(running, outputs, strict=True)
    )
    return Measured(results, cpu, end - start)


def successful(measured: Measured) -> Measured:
    """``measured`` if every command ended well, else `BenchError` with its last words."""
    for result in measured.results:
        if result.exit_code:
            words = "\n".join(result.stderr.strip().splitlines()[-_LAST_LINES:])
            raise BenchError(
                f"a measured command failed with exit code {result.exit_code}\n{words}"
            )
    return measured


def _start(command: Command, stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
    with stdout.open("wb") as out, stderr.open("wb") as err:
        return subprocess.Popen(
            command.arguments,
            env=dict(command.environment),
            cwd=command.directory,
            umask=command.umask,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


def _stragglers() -> float:
    """Seconds of CPU of the descendants that outlived their command."""
    cpu, deadline = 0.0, time.monotonic() + _STRAGGLERS
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu
        cpu += usage.ru_utime + usage.ru_stime
        if not pid:
            if time.monotonic() > deadline:
                raise BenchError("a measured command left processes behind that do not end")
            time.sleep(_TICK)
