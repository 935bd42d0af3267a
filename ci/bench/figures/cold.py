"""A cold build of one width of V4.1 beside plain FlyDSL: CPU time, and wall time on two cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from figures.bench import Bench, parsed
from figures.errors import BenchError
from figures.figure import Figure, Goal
from figures.machine import at_most
from figures.objects import ONE_WIDTH
from figures.plain import Plain, PlainRun, plain
from figures.samples import median_ratio

CPU_PART, WALL_PART = "cpu_ratio", "wall_ratio"
_CORES = 2
# The build's own account includes all it can see; what is left is the end of its own process.
_ACCOUNT = Goal(0.05)


@dataclass(frozen=True, slots=True)
class ColdBuild:
    """One cold build: seconds as the kernel accounts them, and the CPU time it reports itself."""

    cpu: float
    wall: float
    reported: float

    def to_json(self) -> dict[str, Any]:
        return {"cpu": self.cpu, "wall": self.wall, "reported_cpu": self.reported}


@dataclass(frozen=True, slots=True)
class Rounds:
    """What was measured, one of each in every round."""

    builds: tuple[ColdBuild, ...]
    uncached: tuple[PlainRun, ...]
    cached: tuple[PlainRun, ...]
    cores: int

    @property
    def cpu(self) -> list[float]:
        return [b.cpu for b in self.builds]


def figures(bench: Bench) -> Iterator[Figure]:
    """The CPU ratios, the check of the build's own account, and the wall ratio."""
    with at_most(_CORES) as cores:
        rounds = _rounds(bench, cores)
    judged = not bench.quick
    raw = {
        "builds": [b.to_json() for b in rounds.builds],
        "plain, disk cache off": [r.to_json() for r in rounds.uncached],
        "plain, own fresh disk cache": [r.to_json() for r in rounds.cached],
        "cores": rounds.cores,
    }
    for name, runs in (("off", rounds.uncached), ("fresh", rounds.cached)):
        ratio = median_ratio(rounds.cpu, [r.cpu for r in runs])
        what = f"CPU of a cold build / plain FlyDSL, its disk cache {name}"
        yield Figure(CPU_PART, what, ratio, digits=3, goal=Goal(1.10), judged=judged, samples=raw)
    account = median(abs(b.reported - b.cpu) / b.cpu for b in rounds.builds)
    what = "error of cpu_seconds in the build's report"
    yield Figure(CPU_PART, what, account, digits=3, goal=_ACCOUNT, judged=judged)
    ratio = median_ratio([b.wall for b in rounds.builds], rounds.cpu)
    what = f"wall / CPU of a cold build on {rounds.cores} cores"
    # On one core the goal cannot be reached and says nothing.
    judged = judged and rounds.cores == _CORES
    yield Figure(WALL_PART, what, ratio, digits=3, goal=Goal(0.60), judged=judged, samples=raw)


def _rounds(bench: Bench, cores: int) -> Rounds:
    narrowed = ("--launch", "k1") if bench.quick else ()
    keys = bench.keys(*ONE_WIDTH, *narrowed)
    builds, uncached, cached = [], [], []
    with plain(bench, "deepseek_v41", "gfx950", cores) as baseline:
        bench.report("warming up: imports alone")
        baseline.run([])
        for number in range(1, bench.repeats + 1):
            bench.report(f"round {number} of {bench.repeats}: a cold build of {len(keys)} launches")
            builds.append(_cold_build(bench, narrowed, len(keys)))
            bench.report(f"round {number} of {bench.repeats}: plain FlyDSL, disk cache off")
            uncached.append(baseline.run(keys))
            bench.report(f"round {number} of {bench.repeats}: plain FlyDSL, fresh disk cache")
            cached.append(_with_cache(bench, baseline, keys))
    return Rounds(tuple(builds), tuple(uncached), tuple(cached), cores)


def _with_cache(bench: Bench, baseline: Plain, keys: list[Any]) -> PlainRun:
    cache = bench.directory("flydsl-cache")
    run = baseline.run(keys, cache)
    if not any(p.is_file() for p in cache.rglob("*")):
        raise BenchError("FlyDSL wrote nothing into its disk cache, so the run compared nothing")
    return run


def _cold_build(bench: Bench, narrowed: tuple[str, ...], planned: int) -> ColdBuild:
    store = bench.directory("cold") / "store"
    command = bench.mono_build("build", *ONE_WIDTH, *narrowed, "--store", str(store), "--json")
    measured = bench.measured([command])
    report = parsed(measured)
    if report["traced"] != planned:
        raise BenchError(f"a cold build traced {report['traced']} launches of {planned}")
    return ColdBuild(measured.cpu, measured.wall, float(report["cpu_seconds"]))
