"""An unchanged rebuild: its time, what it does not import, and FlyDSL's warm cache beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from figures.bench import PROJECT, Bench, inherited, parsed
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.figure import Bound, Figure, Goal
from figures.plain import PlainRun, cores, plain
from figures.process import Command, measure, successful
from figures.samples import interpolate, spread
from mono_build.plan import rows_of
from mono_runtime.launch_key import LaunchKey

PART = "rebuild"
# More rounds than elsewhere: one takes about a second.
_ROUNDS = 5
# The exit code of a process that imports what a rebuild must not.
_POISONED = 99
# Finding FlyDSL is allowed, as its files are digested; running any of it is not.
_POISON = f"""\
import os
import sys
from importlib.machinery import PathFinder


class Trap:
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        os.write(2, f"imported {{module.__name__}}\\n".encode())
        os._exit({_POISONED})


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ("flydsl", "torch"):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = Trap()
        return spec


sys.meta_path.insert(0, Finder())
"""
# The variant of which the backbone has most layers (15 of 40); see the family's module.
_TYPICAL = {"ratio": 2, "fold": True, "index": False}


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One unchanged rebuild, the whole process: seconds, and what it reported."""

    cpu: float
    wall: float
    report: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        counts = ("planned", "traced", "compiled", "reused")
        return {"cpu": self.cpu, "wall": self.wall, **{n: self.report[n] for n in counts}}


@dataclass(frozen=True, slots=True)
class WarmCache:
    """What FlyDSL takes for the deployment's keys with a warm disk cache, from a sample.

    Attributes:
        cpu, wall: seconds for all keys, one process a core, imports included.
        samples: what was measured.
    """

    cpu: float
    wall: float
    samples: dict[str, Any]


def figures(bench: Bench, store: DeploymentStore) -> Iterator[Figure]:
    """The rows of an unchanged rebuild of ``store``'s deployment."""
    imports = _forbidden_imports(bench, store)
    bench.report(f"{_ROUNDS} unchanged rebuilds of {len(store.keys)} launches")
    rebuilds = [_rebuild(bench, store) for _ in range(_ROUNDS)]
    if len({r.report["index_digest"] for r in rebuilds}) != 1:
        raise BenchError("an unchanged rebuild changed the index")
    warm = _warm_cache(bench, store.keys)
    judged = not bench.quick
    raw = {"rebuilds": [r.to_json() for r in rebuilds], "flydsl": warm.samples}

    def row(what: str, value: float, goal: Goal, unit: str = "", digits: int = 0) -> Figure:
        return Figure(PART, what, value, unit, digits, goal, judged, raw)

    cpu, wall = median(r.cpu for r in rebuilds), median(r.wall for r in rebuilds)
    traced = max(r.report["traced"] for r in rebuilds)
    n = len(store.keys)
    yield row("imports of FlyDSL or torch", imports, Goal(0, Bound.EXACT))
    yield row("launches traced", traced, Goal(0, Bound.EXACT))
    yield row(f"wall of the whole command, {n} keys", wall, Goal(2.0), "s", 2)
    yield row("CPU / FlyDSL's with a warm disk cache", cpu / warm.cpu, Goal(0.01), digits=4)
    yield row("wall / FlyDSL's with a warm disk cache", wall / warm.wall, Goal(0.01), digits=4)


def _forbidden_imports(bench: Bench, store: DeploymentStore) -> int:
    """1 when a rebuild imports FlyDSL or torch, else 0."""
    poison = bench.directory("poison")
    (poison / "sitecustomize.py").write_text(_POISON)
    path = f"{poison}:{PROJECT}"
    environment = {**inherited(), "PYTHONPATH": path}
    for module in ("flydsl.compiler", "torch"):
        control = Command([sys.executable, "-c", f"import {module}"], environment, bench.scratch)
        (refused,) = measure([control], bench.directory("run")).results
        if refused.exit_code != _POISONED:
            raise BenchError(f"the trap for imports does not notice {module}")
    command = _command(bench, store)
    trapped = Command(
        command.arguments, {**command.environment, "PYTHONPATH": path}, command.directory
    )
    measured = measure([trapped], bench.directory("run"))
    if measured.results[0].exit_code == _POISONED:
        return 1
    _unchanged(parsed(successful(measured)), store)
    return 0


def _command(bench: Bench, store: DeploymentStore) -> Command:
    return bench.mono_build("build", *store.asked, "--store", str(store.path), "--json")


def _rebuild(bench: Bench, store: DeploymentStore) -> Rebuild:
    measured = bench.measured([_command(bench, store)])
    report = parsed(measured)
    _unchanged(report, store)
    return Rebuild(measured.cpu, measured.wall, report)


def _unchanged(report: Mapping[str, Any], store: DeploymentStore) -> None:
    if report["reused"] != len(store.keys) or report["compiled"]:
        raise BenchError(f"a rebuild reused {report['reused']} of {len(store.keys)} launches")


def _warm_cache(bench: Bench, keys: Sequence[LaunchKey]) -> WarmCache:
    sample = sampled(keys)
    cache = bench.directory("flydsl-cache")
    with plain(bench, "deepseek_v41", "gfx950", cores()) as processes:
        bench.report(f"filling FlyDSL's disk cache with {len(sample)} launches")
        cold = processes.run(sample, cache)
        filled = _content(cache)
        bench.report("plain FlyDSL with that cache, in new processes")
        runs = [processes.run(sample, cache) for _ in range(bench.repeats)]
        if not filled or _content(cache) != filled:
            raise BenchError("FlyDSL's disk cache was not warm: a second run changed it")
        imports = processes.run([])
    each = [_scaled(run, imports, sample, keys) for run in runs]
    return WarmCache(
        cpu=median(cpu for cpu, _ in each),
        wall=median(wall for _, wall in each),
        samples={
            "sample": [str(key) for key in sample],
            "cold": cold.to_json(),
            "warm": [run.to_json() for run in runs],
            "imports": imports.to_json(),
            "scaled_cpu_wall": [list(pair) for pair in each],
            "processes": cores(),
        },
    )


def sampled(keys: Sequence[LaunchKey]) -> list[LaunchKey]:
    """Of each launch, the typical layer's key at the smallest, a middle and the largest width."""
    chosen = spread([rows for key in keys if (rows := rows_of(key)) is not None])
    return [
        key
        for key in keys
        if rows_of(key) in chosen and all(key.values[n] == v for n, v in _TYPICAL.items())
    ]


def _scaled(
    run: PlainRun, imports: PlainRun, sample: Sequence[LaunchKey], keys: Sequence[LaunchKey]
) -> tuple[float, float]:
    """(CPU, wall) seconds for all ``keys``: imports once a process, launches by their width.

    Wall time assumes that the keys divide evenly between the processes, which favours FlyDSL.
    """
    cpu = imports.cpu + scaled(sample, [cpu for cpu, _ in run.by_launch], keys)
    launches = scaled(sample, [wall for _, wall in run.by_launch], keys)
    return cpu, imports.wall + launches / cores()


def scaled(
    sample: Sequence[LaunchKey], seconds: Sequence[float], keys: Sequence[LaunchKey]
) -> float:
    """Seconds of all ``keys``, each on a straight line between its launch's samples by width."""
    points: dict[str, dict[int, float]] = {}
    for key, value in zip(sample, seconds, strict=True):
        points.setdefault(key.launch, {})[_rows(key)] = value
    return sum(interpolate(points[key.launch], _rows(key)) for key in keys)


def _rows(key: LaunchKey) -> int:
    rows = rows_of(key)
    if rows is None:
        raise BenchError(f"{key} has no width")
    return rows


def _content(directory: Path) -> dict[str, tuple[int, int]]:
    """The files of FlyDSL's cache; its lock files, which every use touches, are left out."""
    files = (p for p in directory.rglob("*") if p.is_file() and p.suffix != ".lock")
    return {
        p.relative_to(directory).as_posix(): (p.stat().st_size, p.stat().st_mtime_ns) for p in files
    }
