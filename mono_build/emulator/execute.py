"""Execute a store's launches on emulated devices, through the runtime, and compare them with references.

A launch that passes matches its reference under an ISA model. That is no statement about silicon:
docs/emulator.md says what is not modelled.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

import mono_runtime
from mono_build.emulator.cases.case import Case, NoCase
from mono_build.emulator.cases.compare import Comparison
from mono_build.emulator.cases.memory import CaseMemory
from mono_build.emulator.cases.run import CaseRunner
from mono_build.emulator.compiler import find_compiler
from mono_build.emulator.counts import stages_of, total_of
from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule
from mono_build.emulator.figures import LaunchFigures
from mono_build.emulator.launches import LaunchRecord
from mono_build.errors import ToolchainError
from mono_build.families.base import load_reference
from mono_build.families.registry import family
from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError
from mono_runtime.launch_key import LaunchKey
from mono_runtime.store import Store

# The case of a launch key and a seed.
Maker = Callable[[LaunchKey, int], Case]
# Very short turns, long ones, and random ones, in turn; the first is the one that figures are taken in.
_QUANTA = (512, 1, 64, 4096, 8)
_PACKAGES = ("tinygrad", "torch", "numpy")


class Outcome(Enum):
    """What came of executing a launch."""

    MATCHES = "matches"
    DIFFERS = "differs"
    VARIES = "varies"
    STOPPED = "stopped"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run in one schedule.

    Attributes:
        comparisons: every output against its reference.
        reads: digests of the memory that the checks read, by place.
        error: what stopped it, or None.
        seconds: while launches ran; making inputs, translation and checks are not in it.
    """

    schedule: Schedule
    comparisons: tuple[Comparison, ...]
    reads: dict[str, str]
    error: MonoError | None
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """How this run ended, seen alone."""
        if self.error is not None:
            return Outcome.STOPPED
        return Outcome.MATCHES if all(c.passed for c in self.comparisons) else Outcome.DIFFERS


@dataclass(frozen=True, slots=True)
class Execution:
    """A launch with one case, in one or more schedules.

    Attributes:
        case: its name; empty without one.
        trials: in the order of the schedules; empty when nothing could run.
        figures: of the first trial, or None when it did not end.
        error: what kept it from running at all.
        reason: why there is no reference, or None.
        varying: places that checks read and that hold other bytes in another schedule.
    """

    key: LaunchKey
    seed: int
    case: str = ""
    ranks: int = 0
    trials: tuple[Trial, ...] = ()
    figures: LaunchFigures | None = None
    error: MonoError | None = None
    reason: str | None = None
    varying: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of what happened."""
        if self.reason is not None:
            return Outcome.UNCHECKED
        outcomes = {t.outcome for t in self.trials}
        if self.error is not None or Outcome.STOPPED in outcomes:
            return Outcome.STOPPED
        if Outcome.DIFFERS in outcomes:
            return Outcome.DIFFERS
        return Outcome.VARIES if self.varying else Outcome.MATCHES

    def outputs(self) -> list[tuple[Comparison, str]]:
        """Each output as it was in the schedule in which it came worst, with that schedule in words."""
        ended = [
            [(c, told(t.schedule)) for c in t.comparisons] for t in self.trials if t.error is None
        ]
        return [max(same, key=lambda x: x[0].excess) for same in zip(*ended, strict=True)]

    def stops(self) -> list[tuple[str, MonoError]]:
        """What could not run, or in which schedules it stopped, and why."""
        whole = [("not started", self.error)] if self.error is not None else []
        return whole + [(told(t.schedule), t.error) for t in self.trials if t.error is not None]

    def to_json(self) -> Json:
        return {
            "key": self.key.to_json(),
            "key_digest": self.key.digest,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "error": self.error and _error_json(self.error),
            "case": self.case,
            "seed": self.seed,
            "ranks": self.ranks,
            "outputs": [
                {**_comparison_json(c), "schedule": schedule} for c, schedule in self.outputs()
            ],
            "varying": list(self.varying),
            "runs": [
                {
                    "schedule": told(t.schedule),
                    "outcome": t.outcome.value,
                    "error": t.error and _error_json(t.error),
                    "seconds": round(t.seconds, 3),
                }
                for t in self.trials
            ],
            "figures": self.figures and self.figures.to_json(),
        }


def _comparison_json(found: Comparison) -> dict[str, Json]:
    value = {**asdict(found), "where": list(found.where), "passed": found.passed}
    # JSON has no infinity: an output that is not finite has no error that could be told.
    return {
        n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in value.items()
    }


def _error_json(error: MonoError) -> Json:
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "fix": error.fix,
    }


def require_emulator() -> None:
    """Raise `ToolchainError` unless everything that the emulator needs is installed."""
    missing = [n for n in _PACKAGES if importlib.util.find_spec(n) is None]
    if missing:
        raise ToolchainError(
            f"the emulator needs {' and '.join(missing)}",
            fix="pip install '.[emulator]' in this project's directory",
        )
    find_compiler()


def schedules(count: int, seed: int) -> tuple[Schedule, ...]:
    """The first ``count`` schedules of a sweep; every second one is random, by ``seed``."""
    return tuple(
        Schedule(_QUANTA[n % len(_QUANTA)], seed=seed + n if n % 2 else None)
        if n
        else Schedule(_QUANTA[0])
        for n in range(count)
    )


def told(schedule: Schedule) -> str:
    """A schedule in words."""
    if schedule.seed is None:
        return f"turns of {schedule.quantum}"
    return f"random turns of up to {schedule.quantum}, seed {schedule.seed}"


def maker_for(name: str, launch: str) -> Maker:
    """What makes the cases of a family.

    Raises:
        NoCase: the family names none.
        ToolchainError: it names one that is not there.
    """
    reference = family(name).cases
    if reference is None:
        raise NoCase(f"no reference for {name}/{launch}")
    made: Maker = load_reference(reference)
    return made


def execute(store: Path, key: LaunchKey, seed: int, sweep: Sequence[Schedule]) -> Execution:
    """Run the case of ``key`` and ``seed`` in every schedule of ``sweep``.

    What goes wrong with the launch is in the result: errors of the emulator and of the runtime, and
    that there is no reference.
    """
    try:
        case = maker_for(key.family, key.launch)(key, seed)
    except NoCase as lack:
        return Execution(key, seed, reason=lack.what)
    return execute_case(store, key, case, sweep)


def execute_case(store: Path, key: LaunchKey, case: Case, sweep: Sequence[Schedule]) -> Execution:
    """Run ``case``, whose figures are those of ``key``, in every schedule of ``sweep``; errors are in the result."""
    driver = EmulatedDriver((key.arch,) * case.ranks, schedule=sweep[0], wait=0.0)
    try:
        with mono_runtime.open(store, driver=driver, policy="strict", check=True) as opened:
            trials, records = _trials(case, opened, driver, sweep)
            return Execution(
                key,
                case.seed,
                case.name,
                case.ranks,
                tuple(trials),
                _figures(key, case, opened, sweep[0], records),
                varying=() if case.varies else _varying(trials),
            )
    except MonoError as error:
        return Execution(key, case.seed, case.name, case.ranks, error=error)
    finally:
        driver.close()


def _trials(
    case: Case, store: Store, driver: EmulatedDriver, sweep: Sequence[Schedule]
) -> tuple[list[Trial], list[LaunchRecord]]:
    """A run in each schedule, and the records of the first."""
    runner = CaseRunner(case, store)
    memory = CaseMemory(driver, case)
    trials: list[Trial] = []
    records: list[LaunchRecord] = []
    try:
        if len(sweep) > 1:
            memory.remember()
        for number, schedule in enumerate(sweep):
            if number:
                memory.restore()
                driver.use(schedule)
            trials.append(_trial(runner, memory, schedule))
            found = driver.take_records()
            records = records or found
    finally:
        memory.close()
        runner.close()
    return trials, records


def _trial(runner: CaseRunner, memory: CaseMemory, schedule: Schedule) -> Trial:
    start = time.perf_counter()
    memory.take_reads()
    try:
        results = runner.run(memory)
    except MonoError as error:
        return Trial(schedule, (), {}, error, time.perf_counter() - start)
    comparisons = tuple(c for r in results for c in r.comparisons)
    seconds = sum(r.seconds for r in results)
    return Trial(schedule, comparisons, memory.take_reads(), None, seconds)


def _varying(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Places whose bytes differ between runs that ended."""
    ended = [t.reads for t in trials if t.error is None]
    return tuple(
        place for place in (ended[0] if ended else ()) if len({r.get(place) for r in ended}) > 1
    )


def _figures(
    key: LaunchKey,
    case: Case,
    store: Store,
    schedule: Schedule,
    records: Sequence[LaunchRecord],
) -> LaunchFigures | None:
    """Figures of the launch that was asked for; other launches of its case are left out."""
    if not records:
        return None
    layers = store.layers
    codes = tuple(c.digest for c in layers.artefact(layers.find(key)).code_objects)
    stages = stages_of(r for r in records if r.code.image.digest in codes)
    return LaunchFigures(
        key, codes, case.name, case.seed, case.ranks, told(schedule), total_of(stages), stages
    )
