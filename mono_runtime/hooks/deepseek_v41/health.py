"""Reports launches that wait for too long, from a thread that looks now and then.

V4.1's kernels wait for each other without a limit: when a rank is gone, the others' launches never end,
and neither does whatever waits for them. The thread reads the epoch words beside the launch that spins,
on a stream of its own. Steps do nothing for it, so a replayed graph is watched like an eager step.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mono_runtime.driver import Driver
from mono_runtime.errors import MonoError
from mono_runtime.hooks.deepseek_v41.wait_limit import wait_seconds
from mono_runtime.hooks.deepseek_v41.waiting import (
    EPOCH_BYTES,
    Arrived,
    Recovered,
    Stuck,
    Watch,
    arrival_bytes,
    arrived,
    explain,
    progress_of,
    width_of,
    width_pushed,
)
from mono_runtime.log import logger

# After so many failures in a row the device is not going to answer any more.
_FAILURES = 3
_LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Area:
    """A piece of device memory: an address, and bytes."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a runner's launches leave what is watched.

    Attributes:
        epoch: the epoch words.
        scratch: every scratch there is, with the rows of its step width.
        peer: this rank's peer memory, both halves.
    """

    epoch: Area
    scratch: tuple[tuple[int, Area], ...] = ()
    peer: Area | None = None


@dataclass(frozen=True, slots=True)
class HealthCounts:
    """What was seen so far.

    Attributes:
        incidents: launches that were reported.
        recovered: those of them that ended after all.
        failures: looks that failed.
        longest: seconds that the longest of the reported launches is known to have waited.
    """

    incidents: int = 0
    recovered: int = 0
    failures: int = 0
    longest: float = 0.0


class Health:
    """A rank's watch over its launches; a thread runs while there is something to watch.

    Nothing here raises into a step, and nothing waits for one.

    Args:
        driver: the device's driver.
        device: this rank's device.
        rank: this rank's number, and ``tp`` how many share a layer.
        seconds: after how long a launch is reported; by default as `wait_seconds` says.
        tell: is told ``reported`` of a launch that waits too long, and ``ended`` when it ends after all.
        clock: seconds that never go back.

    Raises:
        InvalidValue: ``MONO_WAIT_SECONDS`` is no number of seconds.
        DriverError: the device gives no stream.
    """

    def __init__(
        self,
        driver: Driver,
        device: int,
        rank: int,
        tp: int,
        *,
        seconds: float | None = None,
        tell: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = wait_seconds() if seconds is None else seconds
        self._driver, self._device = driver, device
        self._rank, self._tp = rank, tp
        self._tell = tell
        self._clock = clock
        self._counts = HealthCounts()
        self._watches: dict[str, tuple[Callable[[], Watched | None], Watch]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream = driver.create_stream(device) if self.seconds else 0

    def watch(self, name: str, areas: Callable[[], Watched | None]) -> None:
        """Watch a runner from now on, by this name in reports; the same name again replaces it.

        Args:
            areas: tells at each look where to look; None while there is nothing yet. Called in the
                watching thread, so it must only read what other threads replace as a whole.
        """
        if not self.seconds or self._stop.is_set():
            return
        with self._lock:
            self._watches[name] = (areas, Watch(self.seconds))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"mono-health-{self._rank}", daemon=True
                )
                # At the end of the process HIP goes away under a thread that is still looking.
                atexit.register(self.close)
                self._thread.start()

    def counts(self) -> HealthCounts:
        """What was seen so far."""
        return self._counts

    def look(self) -> None:
        """Look once, as the thread does; never raises."""
        with self._lock:
            watches = list(self._watches.items())
        for name, (areas, watch) in watches:
            try:
                self._look_at(name, areas, watch)
            except Exception as error:
                self._count(failures=1)
                logger().debug("rank %d: launches cannot be watched: %s", self._rank, error)

    def close(self) -> None:
        """Stop the thread and release the stream. Calling it again does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        atexit.unregister(self.close)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_LONGEST_PAUSE)
        # A thread that hangs in the driver still uses the stream.
        if self._stream and not (thread is not None and thread.is_alive()):
            stream, self._stream = self._stream, 0
            self._driver.destroy_stream(self._device, stream)

    def _run(self) -> None:
        pause = min(self.seconds / 4, _LONGEST_PAUSE)
        failed = 0
        while failed < _FAILURES and not self._stop.wait(pause):
            before = self._counts.failures
            self.look()
            failed = failed + 1 if self._counts.failures > before else 0
        if failed:
            logger().warning(
                "rank %d: the device did not answer %d times, so launches are not watched any more",
                self._rank,
                failed,
            )

    def _look_at(self, name: str, areas: Callable[[], Watched | None], watch: Watch) -> None:
        watched = areas()
        if watched is None:
            return
        progress = progress_of(self._read(Area(watched.epoch.address, EPOCH_BYTES)))
        found = watch.observe(progress, self._clock())
        if isinstance(found, Stuck):
            self._count(incidents=1, waited=found.seconds)
            self._tell("reported")
            rows, came = self._details(watched, progress.epoch)
            logger().error("%s", explain(found, self._rank, name, rows, came))
        elif isinstance(found, Recovered):
            self._count(recovered=1, waited=found.seconds)
            self._tell("ended")
            logger().warning(
                "rank %d: the launch of epoch %d (%s) has ended, after up to %.1f s",
                self._rank,
                found.epoch,
                name,
                found.seconds,
            )

    def _details(self, watched: Watched, epoch: int) -> tuple[int | None, tuple[Arrived, ...]]:
        """The width of the step that waits, and what has come from each rank, as far as it can be told."""
        try:
            widths = {rows for rows, _ in watched.scratch}
            pushed = self._pushed(watched.peer, max(widths, default=0), epoch)
            rows = width_of(((rows, self._read(area)) for rows, area in watched.scratch), epoch)
            if rows is None:
                rows = width_pushed(pushed, self._tp, self._rank, widths, epoch)
            if rows is None or not pushed:
                return rows, ()
            return rows, arrived(pushed, self._tp, rows, epoch)
        except MonoError:
            # The report matters more than its details.
            return None, ()

    def _pushed(self, peer: Area | None, rows: int, epoch: int) -> bytes:
        """The epoch's half of peer memory, as far as steps of up to so many rows use it."""
        if peer is None:
            return b""
        half = peer.size // 2
        size = min(half, arrival_bytes(self._tp, rows))
        return self._read(Area(peer.address + epoch % 2 * half, size)) if size else b""

    def _read(self, area: Area) -> bytes:
        return self._driver.read(self._device, area.address, area.size, stream=self._stream)

    def _count(
        self, incidents: int = 0, recovered: int = 0, failures: int = 0, waited: float = 0.0
    ) -> None:
        was = self._counts
        self._counts = replace(
            was,
            incidents=was.incidents + incidents,
            recovered=was.recovered + recovered,
            failures=was.failures + failures,
            longest=max(was.longest, waited),
        )
