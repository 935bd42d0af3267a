"""Run a case through the runtime: load its launches from a store, call them by name, check what they left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mono_build.emulator.cases.case import Address, Call, Case
from mono_build.emulator.cases.compare import Comparison
from mono_build.emulator.cases.memory import CaseMemory
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launching.launch import Launch
from mono_runtime.store import Store


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step's check found.

    Attributes:
        launches: the keys of what ran.
        seconds: between the first call and the end of the last launch.
    """

    launches: tuple[LaunchKey, ...]
    comparisons: tuple[Comparison, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every comparison passed."""
        return all(c.passed for c in self.comparisons)


class CaseRunner:
    """A case's launches, loaded on the devices of an opened store's driver: rank ``r`` on device ``r``."""

    def __init__(self, case: Case, store: Store) -> None:
        """Load every launch on the ranks that call it.

        Raises:
            LaunchMissing: the store does not hold a launch that the case calls.
            MonoError: as for `mono_runtime.loader.Loader.load`.
        """
        self._case = case
        self._driver = store.driver
        self._launches: dict[tuple[int, LaunchKey], Launch] = {}
        for step in case.steps:
            for call in step.calls:
                key = key_of(case, call)
                self._launches[call.rank, key] = store.on(call.rank).load(key)
        for rank in range(case.ranks):
            for peer in range(case.ranks):
                if peer != rank:
                    self._driver.enable_peer_access(rank, peer)
        # A default stream belongs to the thread's current device, and ranks wait for each other.
        self._streams = [self._driver.create_stream(r) for r in range(case.ranks)]

    def run(self, memory: CaseMemory) -> list[StepResult]:
        """Run every step on ``memory``, each followed by its check.

        Raises:
            ArgumentMismatch: a call lacks an argument of its launch, or has one too many.
            DriverError: a launch failed (an emulator: a wild access, a deadlock, an unknown instruction).
        """
        results = []
        for step in self._case.steps:
            keys = [key_of(self._case, call) for call in step.calls]
            start = time.perf_counter()
            for call, key in zip(step.calls, keys, strict=True):
                arguments = {
                    name: memory.address(call.rank, v) if isinstance(v, Address) else v
                    for name, v in call.arguments.items()
                }
                launch = self._launches[call.rank, key]
                launch(stream=self._streams[call.rank], **arguments)
            for rank in range(self._case.ranks):
                self._driver.synchronize(rank)
            seconds = time.perf_counter() - start
            comparisons = tuple(step.check(memory))
            results.append(StepResult(tuple(dict.fromkeys(keys)), comparisons, seconds))
        return results

    def close(self) -> None:
        """Release the streams; the launches belong to the store."""
        streams, self._streams = self._streams, []
        for rank, stream in enumerate(streams):
            self._driver.destroy_stream(rank, stream)


def key_of(case: Case, call: Call) -> LaunchKey:
    """The launch key that a call names."""
    return LaunchKey.of(case.family, call.launch, case.arch, call.build)
