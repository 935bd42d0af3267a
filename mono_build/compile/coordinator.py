"""Runs compile sessions from the command's own process and yields what they report."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from mono_build.compile.job import Outcome, SessionContext
from mono_build.compile.preload import CONTEXT_FILE
from mono_build.errors import ToolchainError
from mono_runtime.canonical import Json
from mono_runtime.launch_key import LaunchKey

# A stopped session ends its workers and leaves; after this many seconds it is killed.
_STOP_SECONDS = 10.0
# The line of a traceback that says what happened.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|PoolWarning|Pool): ?.*\Z")
_SESSION = "from mono_build.compile.session import main; main()"


class SessionDied(ToolchainError):
    """A session ended before its jobs were done; other sessions may still work."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a session reported.

    Attributes:
        kind: ``started``, ``busy``, ``waiting``, ``retry``, ``done`` or ``end``.
        text: who holds a busy key, why a launch is tried again.
        seconds: CPU seconds of the whole session (``end``), or seconds waited.
    """

    kind: str
    key: LaunchKey | None = None
    outcome: Outcome | None = None
    text: str = ""
    seconds: float = 0.0


def run_session(
    context: SessionContext, environment: dict[str, str], logs: Path
) -> Generator[Event, None, None]:
    """Start a session and yield its events until it ends; closing the iterator stops it.

    Raises:
        SessionDied: the session itself died; its log is kept in ``logs``.
    """
    directory = Path(tempfile.mkdtemp(prefix="mono-build-"))
    log = logs / f"session-{os.getpid()}.log"
    try:
        (directory / CONTEXT_FILE).write_text(json.dumps(context.to_json()))
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", _SESSION, str(directory)],
                env=environment,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # An interrupt from the terminal must reach the coordinator alone.
                start_new_session=True,
            )
        yield from _events(process, log)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _events(process: subprocess.Popen[bytes], log: Path) -> Generator[Event, None, None]:
    if process.stdin is None or process.stdout is None:
        raise ToolchainError("the compile session has no pipes")
    ended, needed = False, False
    try:
        for line in process.stdout:
            event = _event(json.loads(line))
            ended = ended or event.kind == "end"
            if event.outcome and event.outcome.failure and event.outcome.log is None:
                # It has no log of its own, for no worker ever ran: the session's says why.
                event = replace(event, outcome=replace(event.outcome, log=str(log)))
                needed = True
            yield event
    except (GeneratorExit, KeyboardInterrupt):
        # Our own stop: there is nothing to find out from the log.
        ended = True
        raise
    except json.JSONDecodeError:
        # It was killed in the middle of a line.
        ended = False
    finally:
        _stop(process)
        if ended and not needed:
            log.unlink(missing_ok=True)
    if not ended:
        raise SessionDied(
            f"the compile session ended early: {_reason(log)}",
            where=str(log),
            fix="mend what it names; mono-build doctor shows whether FlyDSL can be used here",
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        # Closes its input, which is the word to stop, and takes what it still says.
        process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    # A session that died leaves its fork server and workers; they are of its process group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _reason(log: Path) -> str:
    """The last exception in a session's log, or its last line, or that there is none."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return "no message"
    named = [line for line in lines if _EXCEPTION.match(line)]
    return next(iter([*reversed(named), *reversed([line for line in lines if line])]), "no message")


def _event(value: Json) -> Event:
    key = value.get("key")
    outcome = value.get("outcome")
    return Event(
        kind=value["event"],
        key=LaunchKey.from_json(key) if key else None,
        outcome=Outcome.from_json(outcome) if outcome else None,
        text=value.get("holder") or value.get("why") or "",
        seconds=float(value.get("cpu_seconds") or value.get("seconds") or 0.0),
    )
