"""Streams and events of emulated devices: handles, and the times of what was submitted before a mark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from mono_build.emulator.launches import Launch
from mono_runtime.errors import DriverError


@dataclass
class _Event:
    launch: Launch | None = None
    recorded_at: float | None = None

    @property
    def is_done(self) -> bool:
        return self.launch is None or self.launch.is_done

    @property
    def time(self) -> float | None:
        """When everything before the mark was done, or None."""
        if self.launch is None:
            return self.recorded_at
        return self.launch.finished_at


class Streams:
    """The streams beside the default ones, and the events; handles come from ``numbers``."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._streams: dict[int, int] = {}
        self._events: dict[int, _Event] = {}

    def create(self, device: int) -> int:
        """A stream that runs beside the default one."""
        handle = next(self._numbers)
        self._streams[handle] = device
        return handle

    def destroy(self, stream: int) -> None:
        """Release a stream."""
        del self._streams[stream]

    def check(self, device: int, stream: int) -> None:
        """Raise `DriverError` unless ``stream`` is the default one or one of this device."""
        if stream and self._streams.get(stream) != device:
            raise DriverError(f"device {device} has no stream {stream}")

    def create_event(self) -> int:
        """A new event."""
        handle = next(self._numbers)
        self._events[handle] = _Event()
        return handle

    def destroy_event(self, event: int) -> None:
        """Release an event."""
        self._event(event)
        del self._events[event]

    def record(self, event: int, last: Launch | None) -> None:
        """Mark the end of ``last``, or this moment when there is none."""
        found = self._event(event)
        found.launch = last
        found.recorded_at = time.perf_counter()

    def is_done(self, event: int) -> bool:
        """Whether everything before the mark has ended."""
        return self._event(event).is_done

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two marks, by this computer's clock."""
        first, last = self._event(start).time, self._event(end).time
        if first is None or last is None:
            raise DriverError("an event was not recorded, or is not done")
        return last - first

    def _event(self, handle: int) -> _Event:
        found = self._events.get(handle)
        if found is None:
            raise DriverError(f"no event {handle}")
        return found
