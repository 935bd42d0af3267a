"""Kernarg buffers with their prepared launches: each is used by one call at a time."""

from __future__ import annotations

import threading

from mono_runtime.driver import Submit
from mono_runtime.errors import Released


class Slot:
    """A kernarg buffer, the `Submit` that launches with it, and typed views of it for single writes."""

    __slots__ = ("buffer", "submit", "views")

    def __init__(
        self, buffer: bytearray, submit: Submit, views: tuple[memoryview, ...] = ()
    ) -> None:
        self.buffer = buffer
        self.submit = submit
        self.views = views


class SlotPool:
    """Slots that are free. Taking and giving back are atomic, so calls need no lock.

    There are as many as calls ever ran at once. All live until `close`.

    Attributes:
        pop: takes a free slot, or raises `IndexError`.
        push: gives a slot back.
    """

    __slots__ = ("_all", "_closed", "_lock", "_where", "pop", "push")

    def __init__(self, where: str) -> None:
        self._all: list[Slot] = []
        self._closed = False
        self._lock = threading.Lock()
        self._where = where
        free: list[Slot] = []
        self.pop = free.pop
        self.push = free.append

    def add(self, slot: Slot) -> Slot:
        """One more slot, in use; `Released` after `close`."""
        with self._lock:
            self.require_open()
            self._all.append(slot)
            return slot

    def require_open(self) -> None:
        """Raise `Released` after `close`."""
        if self._closed:
            raise self._error()

    def close(self) -> None:
        """Every later use raises `Released`, also through a slot that a running call gives back late."""
        with self._lock:
            self._closed = True
            for slot in self._all:
                slot.submit = self._refuse
            self._all.clear()

    def _refuse(self, stream: int) -> None:
        raise self._error()

    def _error(self) -> Released:
        return Released(
            "the launch was called after it had been closed",
            where=self._where,
            fix="load it again from a store that is open",
        )
