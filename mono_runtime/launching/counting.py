"""Counting calls, exactly and from any thread, at the price of one step of an iterator."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator


class CallCounter:
    """Counts how often ``next(tick)`` was called.

    Advancing an `itertools.count` is one atomic step, so calls need no lock. Reading advances it too, and
    takes its own steps off again under a lock: reads are rare.

    Attributes:
        tick: what a call advances; it also calls ``on_call`` when there is one.
    """

    __slots__ = ("_count", "_lock", "_reads", "tick")

    def __init__(self, on_call: Callable[[], object] | None = None) -> None:
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._reads = 0
        self.tick: Iterator[object] = (
            self._count if on_call is None else _Hooked(self._count, on_call)
        )

    @property
    def value(self) -> int:
        """Calls so far."""
        with self._lock:
            calls = next(self._count) - self._reads
            self._reads += 1
            return calls


class _Hooked:
    """An iterator that counts and then calls a function."""

    __slots__ = ("_count", "_on_call")

    def __init__(self, count: Iterator[int], on_call: Callable[[], object]) -> None:
        self._count = count
        self._on_call = on_call

    def __iter__(self) -> _Hooked:
        return self

    def __next__(self) -> None:
        next(self._count)
        self._on_call()
