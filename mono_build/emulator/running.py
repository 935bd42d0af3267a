"""The launches of all emulated devices, from their submission to their ends, and the lock that guards them."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mono_build.emulator.engine import Engine, LaunchState, Outcome, Schedule
from mono_build.emulator.launches import Launch, LaunchRecord
from mono_build.emulator.memory import DeviceMemory
from mono_build.emulator.reports import deadlock_error, fault_error
from mono_runtime.errors import DriverError

# Wave-instructions between two looks at what other threads want: some tenths of a second.
_SLICE = 1_000_000


class Running:
    """What runs and what is queued.

    Launches of all devices run together, whenever somebody waits, so that ranks can wait for each other.

    Args:
        memory: the devices' memory.
        schedule: how waves take turns.
        wait: seconds that a launch may wait for what other threads or processes have yet to do.
    """

    def __init__(self, memory: DeviceMemory, schedule: Schedule, wait: float) -> None:
        self._engine = Engine(schedule)
        self._memory = memory
        self._launches: list[Launch] = []
        self._last: dict[tuple[int, int], Launch] = {}
        self._records: list[LaunchRecord] = []
        self._lock = threading.RLock()
        self._waiting = 0
        self._wait = wait
        self._submissions = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else runs, submits or changes memory inside; a thread may enter again."""
        # A thread that runs slices takes the lock again at once; it looks at the count to let others in.
        self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()
            if self._waiting:
                time.sleep(0)

    # All below but `run_until` is called with the lock held.

    def submit(self, launch: Launch) -> None:
        """Queue a launch behind those of its stream."""
        launch.struct.memory = ctypes.pointer(self._memory.table())
        self._launches.append(launch)
        self._last[launch.device, launch.stream] = launch
        self._submissions += 1
        self._engine.submit(launch.struct)

    def last(self, device: int, stream: int) -> Launch | None:
        """What was submitted last to a stream."""
        return self._last.get((device, stream))

    def forget_sites(self) -> None:
        """Let no access remember an allocation, because one came or went."""
        for launch in self._launches:
            launch.forget_sites()

    def use(self, schedule: Schedule) -> None:
        """Let waves take turns by ``schedule`` from now on; `DriverError` while something runs."""
        if self._launches:
            raise DriverError("the schedule cannot change while launches run")
        self._engine.close()
        self._engine = Engine(schedule)

    def take_records(self) -> list[LaunchRecord]:
        """What finished launches did since the last call, in the order of their ends."""
        taken, self._records = self._records, []
        return taken

    def close(self) -> None:
        """End what runs and release the scheduler."""
        self._stop(DriverError("the emulator was closed"))
        self._engine.close()

    def run_until(self, is_meant: Callable[[Launch], bool]) -> None:
        """Run until none is left of the launches that are meant; the lock is taken for each slice.

        Raises:
            EmulationError: one of them stopped; its subclasses say why.
        """
        since, seen = time.monotonic(), -1
        while True:
            with self.locked():
                mine = [launch for launch in self._launches if is_meant(launch)]
                if not mine:
                    return
                if self._submissions != seen:
                    since, seen = time.monotonic(), self._submissions
                stuck = self.advance()
                if stuck and not self._may_move(since):
                    self._stop(deadlock_error(self._engine.waves(), self._by_address()))
                failures = [launch.failure for launch in mine if launch.failure]
            if failures:
                raise failures[0]
            if stuck:
                time.sleep(0.001)

    def advance(self) -> bool:
        """Run one slice and take out what has ended; True when nobody moves."""
        table = self._memory.table()
        for launch in self._launches:
            launch.struct.memory = ctypes.pointer(table)
        outcome = self._engine.run(_SLICE)
        now = time.perf_counter()
        for launch in [x for x in self._launches if x.state is LaunchState.FINISHED]:
            launch.finished_at = now
            self._records.append(launch.finish())
            self._retire(launch)
        if outcome is Outcome.FAULT:
            fault, place = self._engine.fault()
            launch = self._by_address()[place.launch]
            self._stop(fault_error(fault, place, launch, self._memory.explain))
        elif outcome is Outcome.MEMORY:
            self._stop(DriverError("no memory for the registers of one more workgroup"))
        return outcome is Outcome.DEADLOCK

    def _may_move(self, since: float) -> bool:
        """Whether another thread or process may still do what the launches wait for."""
        if threading.active_count() == 1 and not self._memory.has_imports():
            return False
        return time.monotonic() - since < self._wait

    def _by_address(self) -> dict[int, Launch]:
        return {ctypes.addressof(launch.struct): launch for launch in self._launches}

    def _stop(self, error: Exception) -> None:
        """End every launch with ``error``; whoever waits for one gets it."""
        self._engine.abort()
        for launch in list(self._launches):
            launch.failure = error
            launch.finished_at = time.perf_counter()
            self._retire(launch)

    def _retire(self, launch: Launch) -> None:
        self._launches.remove(launch)
        self._memory.free(launch.kernargs)
        if launch.struct.dispatch:
            self._memory.free(launch.struct.dispatch)
