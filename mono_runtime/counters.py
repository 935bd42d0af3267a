"""What the runtime has done so far, as numbers: lookups, loads, fallbacks and launches."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypedDict


class Snapshot(TypedDict):
    """The counters at one moment, as plain data that does not change afterwards.

    ``misses`` is by reason (`mono_runtime.policy.reason_of`), ``fallbacks`` by policy and reason,
    ``launches`` by family and launch. ``bytes_loaded`` is code objects, ``seconds_loading`` is the
    sum over loads, also of those that ran side by side. ``steps_declined`` is parts of steps that a
    hook left to the engine, by family and reason; ``waits`` is launches that waited too long for another
    rank, by what came of it: ``reported``, and ``ended`` for those that ended after all.
    """

    hits: int
    misses: dict[str, int]
    loads: int
    shared: int
    bytes_loaded: int
    seconds_loading: float
    fallbacks: dict[str, dict[str, int]]
    launches: dict[str, dict[str, int]]
    steps_declined: dict[str, dict[str, int]]
    waits: dict[str, int]


class Counters:
    """Counts from any thread. Nothing is ever counted down.

    Launches count their own calls, so that a call costs no lock; see `watch`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits = self._loads = self._shared = self._bytes = 0
        self._seconds = 0.0
        self._misses: Counter[str] = Counter()
        self._fallbacks: Counter[tuple[str, str]] = Counter()
        self._declined: Counter[tuple[str, str]] = Counter()
        self._waits: Counter[str] = Counter()
        self._past: Counter[tuple[str, str]] = Counter()
        self._sources: dict[object, tuple[tuple[str, str], Callable[[], int]]] = {}

    def hit(self) -> None:
        """A launch key was found in a store."""
        with self._lock:
            self._hits += 1

    def missed(self, reason: str) -> None:
        """A launch could not be had, for this reason."""
        with self._lock:
            self._misses[reason] += 1

    def loaded(self, size: int, seconds: float) -> None:
        """A code object of ``size`` bytes was read, checked and loaded in ``seconds``."""
        with self._lock:
            self._loads += 1
            self._bytes += size
            self._seconds += seconds

    def shared(self) -> None:
        """A code object was asked for that had been loaded already."""
        with self._lock:
            self._shared += 1

    def fell_back(self, policy: str, reason: str) -> None:
        """The policy answered a miss with something else than an error."""
        with self._lock:
            self._fallbacks[policy, reason] += 1

    def step_declined(self, family: str, reason: str) -> None:
        """A hook left a layer's part of a step to the engine; reasons come from a bounded set of texts."""
        with self._lock:
            self._declined[family, reason] += 1

    def waited(self, outcome: str) -> None:
        """A launch that waited too long for another rank was ``reported``, or has ``ended`` after all."""
        with self._lock:
            self._waits[outcome] += 1

    def watch(self, family: str, launch: str, calls: Callable[[], int]) -> Callable[[], None]:
        """Add what ``calls`` returns, now and later, to the launches of this name.

        Args:
            calls: how often a launch object was called so far; cheap, and never raises.

        Returns:
            Ends the watching and keeps the count as it then is. Call it before the launch goes away.
        """
        name, token = (family, launch), object()
        with self._lock:
            self._sources[token] = (name, calls)

        def stop() -> None:
            with self._lock:
                if self._sources.pop(token, None) is not None:
                    self._past[name] += calls()

        return stop

    def snapshot(self) -> Snapshot:
        """All counts of one moment."""
        with self._lock:
            launches = self._past.copy()
            for name, calls in self._sources.values():
                launches[name] += calls()
            return Snapshot(
                hits=self._hits,
                misses=dict(sorted(self._misses.items())),
                loads=self._loads,
                shared=self._shared,
                bytes_loaded=self._bytes,
                seconds_loading=self._seconds,
                fallbacks=_nested(self._fallbacks),
                launches=_nested(launches),
                steps_declined=_nested(self._declined),
                waits=dict(sorted(self._waits.items())),
            )


def _nested(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for (outer, inner), count in sorted(counts.items()):
        result.setdefault(outer, {})[inner] = count
    return result
