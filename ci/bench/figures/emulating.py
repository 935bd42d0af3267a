"""The emulator: how fast it runs, and what it takes to execute a launch of V4.1 and compare it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from figures.bench import PROJECT, Bench, inherited
from figures.errors import BenchError
from figures.figure import Bound, Figure, Goal
from figures.machine import at_most
from figures.process import Command
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

PART = "emulator"
_MANIFEST = """
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    rows: [8]
    variants:
      - {launch: k1, ratio: 2, fold: true, index: false}
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    rows: [6]
    variants:
      - {launch: ffn}
"""
_K1 = {"tokens": 8, "tp": 4, "ratio": 2, "fold": True, "index": False}
_FFN = {"tokens": 6, "tp": 4}
# Runs of K1, whose one takes less than a second.
_RUNS = 9
_CORES = 2


@dataclass(frozen=True, slots=True)
class Timed:
    """One launch in one process, as the worker tells it.

    Attributes:
        times: wall and CPU seconds by phase, one entry a run for those that are repeated.
        counts: wave-instructions of a run, all and of matrix instructions.
    """

    times: dict[str, list[dict[str, float]]]
    counts: list[dict[str, int]]

    def wall(self, *phases: str) -> float:
        """Wall seconds of the first time of each phase."""
        return sum(self.times[p][0]["wall"] for p in phases)

    def rates(self) -> list[float]:
        """Wave-instructions outside MFMA a CPU second, by run; the time that MFMA takes is not left out."""
        runs = zip(self.times["run"], self.counts, strict=True)
        return [(c["instructions"] - c["matrix"]) / t["cpu"] for t, c in runs]


def figures(bench: Bench) -> Iterator[Figure]:
    """K1 at 8 rows on one device, with and without its translation, and FFN at 6 rows on four."""
    store, k1, ffn = _store(bench)
    cache = bench.directory("translations")
    judged = not bench.quick
    with at_most(_CORES) as cores:
        bench.report(f"K1 at 8 rows with an empty cache, on {cores} cores")
        cold = _verify(bench, store, k1, cache)
        bench.report("K1 at 8 rows, translated already")
        warm = _verify(bench, store, k1, cache)
        seam = _timed(bench, store, k1, cache, 2 if bench.quick else _RUNS)
        rates = [r / 1e6 for r in seam.rates()]
        what, million = "K1: wave-instructions outside MFMA, a core", "million/s"
        goal = Goal(5, Bound.LEAST)
        samples = {"rates": rates, "counts": seam.counts, "times": seam.times}
        yield Figure(PART, what, median(rates), million, 1, goal, judged, samples)
        yield _seconds("K1, 8 rows: whole command, empty cache", cold, 90, judged)
        yield _seconds("K1, 8 rows: whole command, translated", warm, None, judged)
        yield _seconds("K1, 8 rows: load and run, translated", seam.wall("load", "run"), 3, judged)
        yield _count("K1, 8 rows: wave-instructions", seam)
        if bench.quick:
            return
        bench.report("FFN at 6 rows on four devices: translating it")
        _verify(bench, store, ffn, cache)
        bench.report("FFN at 6 rows on four devices")
        four = _timed(bench, store, ffn, cache, 1)
        whole = four.wall("load", "run", "check")
        name = "FFN, 4 ranks, 6 rows"
        yield _seconds(f"{name}: load, run and check, translated", whole, 60, judged, four.times)
        yield _seconds(f"{name}: load and run of it", four.wall("load", "run"), None, judged)
        yield _seconds(f"{name}: making the weights", four.wall("case", "inputs"), None, judged)
        yield _count(f"{name}: wave-instructions", four)


def _seconds(
    what: str, value: float, most: float | None, judged: bool, times: Any = None
) -> Figure:
    goal = Goal(most) if most is not None else None
    return Figure(PART, what, value, "s", 1, goal, judged, {"times": times} if times else {})


def _count(what: str, timed: Timed) -> Figure:
    return Figure(PART, what, timed.counts[0]["instructions"] / 1e6, "million", 1)


def _store(bench: Bench) -> tuple[Path, LaunchKey, LaunchKey]:
    """The store, and the keys of K1 and FFN in it; `BenchError` when one is missing."""
    path = bench.store or bench.scratch / "emulated"
    if bench.store is None:
        bench.report("building two launches")
        manifest = bench.scratch / "emulated.yaml"
        manifest.write_text(_MANIFEST)
        options = ("--manifest", str(manifest), "--store", str(path), "--json")
        bench.answer(bench.mono_build("build", *options))
    held = [entry.key for entry in StoreReader.open(path).index.entries]
    return path, _held(held, "k1", _K1), _held(held, "ffn", _FFN)


def _held(keys: list[LaunchKey], launch: str, build: dict[str, int | bool]) -> LaunchKey:
    for key in keys:
        if (key.family, key.launch, key.arch) == ("deepseek_v41", launch, "gfx950") and (
            build.items() <= key.values.items()
        ):
            return key
    wanted = " ".join(f"{n}={v}" for n, v in build.items())
    raise BenchError(
        f"the store has no deepseek_v41/{launch} gfx950 {wanted}", fix="leave --store out"
    )


def _verify(bench: Bench, store: Path, key: LaunchKey, cache: Path) -> float:
    """Wall seconds of the whole command that executes one launch; it has to match."""
    environment = {**inherited(), "MONO_CACHE": str(cache)}
    options = ("--store", str(store), "--execute", "--key", key.digest, "--json")
    command = bench.mono_build("verify", *options, environment=environment, kernels="")
    return bench.measured([command]).wall


def _timed(bench: Bench, store: Path, key: LaunchKey, cache: Path, runs: int) -> Timed:
    work = bench.directory("emulated")
    task_file, answer = work / "task.json", work / "answer.json"
    task = {
        "project": str(PROJECT),
        "store": str(store),
        "key": key.to_json(),
        "seed": 1,
        "runs": runs,
    }
    task_file.write_text(json.dumps(task))
    script = Path(__file__).with_name("emulator_worker.py")
    arguments = [sys.executable, str(script), str(task_file), str(answer)]
    environment = {**inherited(), "MONO_CACHE": str(cache)}
    bench.measured([Command(arguments, environment, work)])
    found = json.loads(answer.read_text())
    if not found["passed"]:
        raise BenchError(f"{key} does not match its reference")
    return Timed(found["times"], found["counts"])
