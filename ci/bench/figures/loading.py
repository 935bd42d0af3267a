"""What a server pays for the runtime: import, open, look up, verify, load, call, and memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from figures.bench import PROJECT, Bench, inherited
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.figure import Figure, Goal
from figures.process import Command, Measured
from figures.rebuild import sampled
from figures.served import Served, kernels, served
from figures.standin import over_standin
from mono_runtime.launch_key import LaunchKey

IMPORT_PART, LOAD_PART, CALL_PART, MEMORY_PART = "import", "load", "call", "memory"
# Processes that load the deployment from cold; one takes a fraction of a second.
_PROCESSES = 9
_ROUNDS = 5
# At most this share of what each version of FlyDSL takes.
_SHARES = {"0.5": 0.01, "0.4": 0.2}


@dataclass(frozen=True, slots=True)
class Loads:
    """What processes that loaded the deployment took.

    Attributes:
        walls: seconds of each whole process that did nothing else, from its start to its end.
        answers: what each told of itself.
    """

    walls: tuple[float, ...]
    answers: tuple[dict[str, Any], ...]

    def all_launches(self) -> float:
        """Seconds to open the store and load every launch one by one, the median round."""
        return median(r["open"] + sum(r["launches"]) for r in self._rounds())

    def launch(self) -> float:
        """Seconds of one launch with its share of opening, the median of launches and rounds."""
        each = [
            seconds + r["open"] / len(r["launches"])
            for r in self._rounds()
            for seconds in r["launches"]
        ]
        return median(each)

    def _rounds(self) -> list[dict[str, Any]]:
        return [r for a in self.answers for r in a["rounds"]]


def figures(bench: Bench, store: DeploymentStore, pythons: Sequence[Path]) -> Iterator[Figure]:
    """The rows, judged against the FlyDSL of each of ``pythons``."""
    loads = _loads(bench, store)
    sample = sampled(store.keys)
    with kernels(bench) as source:
        flydsls = [served(bench, source, p, store, sample, _middle(sample)) for p in pythons]
    judged = not bench.quick
    raw = {
        "processes": [*loads.walls],
        "answers": [*loads.answers],
        "flydsl": {s.version: s.samples for s in flydsls},
    }
    n = len(store.keys)

    def row(part: str, what: str, value: float, goal: float, unit: str, digits: int) -> Figure:
        return Figure(part, what, value, unit, digits, Goal(goal), judged, raw)

    imports = 1e3 * median(a["import"] for a in loads.answers)
    yield row(IMPORT_PART, "import of mono_runtime, ready to open a store", imports, 60, "ms", 1)
    everything = 1e3 * median(a["import_everything"] for a in loads.answers)
    what = "the same with HIP, launching and ranks"
    yield Figure(IMPORT_PART, what, everything, "ms", 1, None, judged, raw)
    each, whole = 1e6 * loads.launch(), median(loads.walls)
    yield row(LOAD_PART, "open, look up, verify, load: a launch", each, 150, "us", 0)
    yield row(LOAD_PART, f"whole process that loads {n} launches, no torch", whole, 0.3, "s", 3)
    for found in flydsls:
        ratio = loads.all_launches() / found.wall
        what = f"{n} launches / FlyDSL {found.version} with a warm disk cache"
        yield row(LOAD_PART, what, ratio, _share(found), "", 5)
    for found in flydsls:
        yield from _calls(found, row)
    added = median(a["resident"] for a in loads.answers) / 1e6
    yield row(
        MEMORY_PART, f"resident memory that {n} launches add, import included", added, 15, "MB", 1
    )


def _calls(found: Served, row: Any) -> Iterator[Figure]:
    theirs = found.call["flydsl"]
    for name, what, goal in (
        ("unbound", "one call of K2, unbound", 1 / 3),
        ("bound", "one call of K2, bound, four arguments move", 1 / 8),
    ):
        label = f"{what} / FlyDSL {found.version}'s compiled function"
        yield row(CALL_PART, label, found.call[name] / theirs, goal, "", 3)


def _share(found: Served) -> float:
    for prefix, share in _SHARES.items():
        if found.version.startswith(prefix):
            return share
    raise BenchError(f"no goal is set against FlyDSL {found.version}")


def _middle(sample: Sequence[LaunchKey]) -> LaunchKey:
    of_k2 = [key for key in sample if key.launch == "k2"]
    if not of_k2:
        raise BenchError("the sample has no K2 to call")
    return of_k2[len(of_k2) // 2]


def _loads(bench: Bench, store: DeploymentStore) -> Loads:
    processes = 2 if bench.quick else _PROCESSES
    bench.report(f"{processes} processes that load {len(store.keys)} launches")
    # Bytecode and the store's files come from the page cache in every measured process.
    _load(bench, store, rounds=0)
    walls = [_load(bench, store, rounds=0)[0].wall for _ in range(processes)]
    answers = [_load(bench, store, rounds=_ROUNDS)[1] for _ in range(processes)]
    return Loads(tuple(walls), tuple(answers))


def _load(bench: Bench, store: DeploymentStore, rounds: int) -> tuple[Measured, dict[str, Any]]:
    work = bench.directory("load")
    keys, answer = work / "keys.json", work / "answer.json"
    keys.write_text(json.dumps([k.to_json() for k in store.keys]))
    script = Path(__file__).with_name("load_worker.py")
    arguments = [sys.executable, str(script), str(PROJECT), str(store.path)]
    command = Command(
        [*arguments, str(keys), str(answer), str(rounds)], over_standin(inherited()), work
    )
    measured = bench.measured([command])
    found: dict[str, Any] = json.loads(answer.read_text())
    if found["loaded"] != len(store.keys) or found["torch"]:
        raise BenchError(f"the process loaded {found['loaded']} launches, torch: {found['torch']}")
    return measured, found
