"""The compile session: a process for one architecture and family that forks a worker a launch.

Started by the coordinator with an environment of its own. It reads its context from a directory,
writes one JSON event a line to standard output, and stops when standard input is closed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from pebble import ProcessExpired, ProcessPool

from mono_build.compile import failures
from mono_build.compile.job import BUSY, FAILED, Failure, Job, Outcome, SessionContext
from mono_build.compile.preload import CONTEXT_FILE, PID_FILE, SESSION_VARIABLE, run
from mono_build.compile.schedule import Schedule
from mono_runtime.canonical import Json

# unix(7): a socket's name has up to 107 bytes. Python adds "/pymp-xxxxxxxx/listener-xxxxxxxx".
_SOCKET_LIMIT = 107
_SOCKET_NAME = 32
_REAP_SECONDS = 1.0
# Pools that broke one after the other, without a launch that ended, before the rest is given up.
_MAX_BREAKS = 4
# How often the session looks at its standard input and at the clock.
_TICK = 0.1
# Seconds between two words on a key that another builder still has.
_WAIT_REPORT = 10.0


class Session:
    """The jobs of one context, run to their end or until the coordinator says stop."""

    def __init__(self, context: SessionContext, events: TextIO) -> None:
        self._context = context
        self._events = events
        self._schedule = Schedule(context.jobs, context.timeout)
        self._running: dict[Future[Json], Job] = {}
        self._attempts: dict[str, int] = {}
        self._holders: dict[str, str] = {}
        self._waiting_since: dict[str, float] = {}
        self._told = 0.0
        self._broken = False
        self._breaks = 0
        self.stop = threading.Event()

    def run(self, make_pool: Callable[[], Any]) -> None:
        """Build everything; each job gives exactly one ``done`` event unless the session is stopped."""
        while not self._is_over():
            self._broken = False
            pool = make_pool()
            try:
                while not (self._is_over() or self._broken):
                    self._fill(pool)
                    done, _ = wait(self._running, timeout=_TICK, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._finish(self._running.pop(future), future)
                    self._tell_of_waiting()
            finally:
                pool.stop()
                pool.join()
            if self._breaks >= _MAX_BREAKS:
                self._give_up()

    def _give_up(self) -> None:
        what = "the kernels' process cannot be started: importing them ends it"
        for job in self._schedule.drop():
            failure = Failure("died", what)
            self.tell("done", outcome=Outcome(job.key, FAILED, failure=failure).to_json())

    def _is_over(self) -> bool:
        return self.stop.is_set() or not (len(self._schedule) or self._running)

    def _fill(self, pool: Any) -> None:
        while not self._broken and len(self._running) < self._context.workers:
            job = self._schedule.take()
            if job is None:
                return
            limit = self._context.timeout + job.wait
            try:
                future = pool.schedule(run, args=[job.to_json()], timeout=limit)
            except RuntimeError:
                # The pool noticed only now that its fork server is gone.
                self._broken = True
                self._breaks += 1
                self._schedule.finished(job)
                self._schedule.again(job)
                return
            self._running[future] = job
            self._attempts[job.key.digest] = self._attempts.get(job.key.digest, 0) + 1
            if job.wait:
                self._waiting_since[job.key.digest] = self._told = time.monotonic()
            self.tell("started", key=job.key.to_json())

    def _tell_of_waiting(self) -> None:
        now = time.monotonic()
        if now - self._told < _WAIT_REPORT:
            return
        self._told = now
        for job in self._running.values():
            if job.wait:
                seconds = now - self._waiting_since[job.key.digest]
                holder = self._holders.get(job.key.digest, "another builder")
                self.tell("waiting", key=job.key.to_json(), seconds=seconds, holder=holder)

    def _finish(self, job: Job, future: Future[Json]) -> None:
        self._schedule.finished(job)
        outcome = self._outcome(job, future)
        attempts = self._attempts[job.key.digest]
        if outcome.status == BUSY:
            # It was not tried at all.
            self._attempts[job.key.digest] -= 1
            self._holders[job.key.digest] = outcome.holder
            self.tell("busy", key=job.key.to_json(), holder=outcome.holder)
            self._schedule.postpone(job)
            return
        failure = outcome.failure
        if failure is not None and failure.abnormal and attempts <= self._context.retries:
            self.tell("retry", key=job.key.to_json(), why=failure.what)
            self._schedule.again(job)
            return
        self.tell("done", outcome=replace(outcome, attempts=attempts).to_json())
        if failure is not None and (failure.fatal or self._context.fail_fast):
            self._schedule.drop()

    def _outcome(self, job: Job, future: Future[Json]) -> Outcome:
        try:
            outcome = Outcome.from_json(future.result())
            self._breaks = 0
            return outcome
        except FutureTimeout:
            failure = failures.timed_out(self._context.timeout)
        except ProcessExpired as error:
            failure = failures.died(error.exitcode)
        except Exception as error:
            # The pool itself is of no more use: its fork server died, say. The next one starts another.
            self._broken = True
            self._breaks += 1
            failure = Failure("died", f"the worker gave no result: {error!r}", abnormal=True)
        failure = replace(failure, what=failures.with_last_words(failure.what, Path(job.log)))
        return Outcome(job.key, FAILED, failure=failure, log=job.log)

    def tell(self, event: str, **facts: Json) -> None:
        """Send one event to the coordinator."""
        try:
            print(json.dumps({"event": event, **facts}), file=self._events, flush=True)
        except BrokenPipeError:
            # The coordinator is gone; its end of the input is closed too, or will be in a moment.
            self.stop.set()


def main() -> int:
    """The entry point of the session process."""
    directory, parent = Path(sys.argv[1]), os.getppid()
    # Set for the fork server alone: with it here from the start, this process would load the kernels.
    os.environ[SESSION_VARIABLE] = str(directory)
    context = SessionContext.from_json(json.loads((directory / CONTEXT_FILE).read_text()))
    # Whatever FlyDSL or a kernel prints must not be taken for an event.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _use_short_directory()
    _require_semaphores()
    session = Session(context, events)
    threading.Thread(target=_watch_input, args=[session.stop], daemon=True).start()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["mono_build.compile.preload"])
    # One worker more than runs: it is forked while the others work, so no launch waits for it.
    session.run(lambda: ProcessPool(context.workers + 1, max_tasks=1, context=processes))
    session.tell("end", cpu_seconds=_cpu_seconds(directory))
    if os.getppid() != parent:
        # The coordinator was killed, and nobody else knows of these.
        for left in (directory, Path(os.environ["ROCM_PATH"])):
            shutil.rmtree(left, ignore_errors=True)
    return 0


def _require_semaphores() -> None:
    """The pool of workers has locks, which Linux keeps in /dev/shm; a sandbox may not have it."""
    try:
        multiprocessing.get_context("forkserver").Lock()
    except OSError as error:
        sys.exit(
            f"no semaphore can be made ({error.strerror or error}): processes share locks in /dev/shm,"
            " which has to be a directory that this user can write (usually a tmpfs)"
        )


def _watch_input(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(4096):
        continue
    stop.set()


def _cpu_seconds(directory: Path) -> float:
    """User and system time of the fork server and of every worker, the killed ones too.

    The session's own time is its parent's to count, who waits for it.
    """
    try:
        pid = int((directory / PID_FILE).read_text())
        _wait_for_children(pid)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0.0
    # proc(5): utime, stime, cutime and cstime are fields 14 to 17; the text here starts at field 3.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _wait_for_children(pid: int) -> None:
    # The fork server collects its last workers a moment after the pool has stopped.
    children = Path(f"/proc/{pid}/task/{pid}/children")
    end = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < end and children.read_text().strip():
        time.sleep(0.01)


def _use_short_directory() -> None:
    """Put the fork server's socket where its name fits, whatever TMPDIR is."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]
    fitting = [p for p in places if len(os.fsencode(p)) + _SOCKET_NAME <= _SOCKET_LIMIT]
    usable = next((p for p in fitting if os.access(p, os.W_OK | os.X_OK)), None)
    if usable is None:
        sys.exit(f"no temporary directory has a name short enough for a socket: {places[0]}")
    tempfile.tempdir = usable
