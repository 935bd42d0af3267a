"""FlyDSL serving launches from its warm disk cache over the stand-in HIP, for each of its versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.bench import PROJECT, Bench
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.plain import Plain, plain
from figures.process import Command
from figures.rebuild import scaled
from figures.standin import over_standin
from mono_runtime.launch_key import LaunchKey

# Calls of one launch that are timed together, and how often each side has its turn.
_CALLS = 20_000
_TURNS = 9


@dataclass(frozen=True, slots=True)
class Served:
    """What one version of FlyDSL takes over the stand-in HIP.

    Attributes:
        version: FlyDSL's.
        wall: seconds to the end of every launch's first call, for all keys, from a sample; imports
            of FlyDSL and of the kernels are not in it.
        call: seconds of one call of K2, FlyDSL's and ours.
        samples: what was measured.
    """

    version: str
    wall: float
    call: dict[str, float]
    samples: dict[str, Any]


@contextmanager
def kernels(bench: Bench) -> Iterator[Plain]:
    """The tools and kernel sources of the deployment's family, for one process."""
    with plain(bench, "deepseek_v41", "gfx950", 1) as found:
        yield found


def served(
    bench: Bench,
    source: Plain,
    python: Path,
    store: DeploymentStore,
    sample: Sequence[LaunchKey],
    call: LaunchKey,
) -> Served:
    """Measure the FlyDSL of ``python``: fill its cache with ``sample``, then serve from it anew."""
    cache = bench.directory("flydsl-cache")
    task = source.task(dict(enumerate(sample)))
    bench.report(f"filling the disk cache of {python.parent.parent.name}: {len(sample)} launches")
    cold = _run(bench, source, python, cache, task)
    version = cold["flydsl"]
    bench.report(f"FlyDSL {version} with that cache, in new processes")
    warm = [_run(bench, source, python, cache, task) for _ in range(bench.repeats)]
    walls = [_all(run, sample, store.keys) for run in warm]
    one = source.task({0: call})
    bench.report(f"one call of K2, FlyDSL {version} and mono_runtime in turns")
    called = _run(bench, source, python, cache, {**one, "call": _call(one, store, call, bench)})
    return Served(
        version,
        sorted(walls)[len(walls) // 2],
        called["call"]["medians"],
        {"sample": [str(k) for k in sample], "cold": cold, "warm": warm, "call": called["call"]},
    )


def _call(
    task: dict[str, Any], store: DeploymentStore, key: LaunchKey, bench: Bench
) -> dict[str, Any]:
    return {
        "launch": task["launches"][0],
        "project": str(PROJECT),
        "store": str(store.path),
        "key": key.to_json(),
        "rounds": 3 if bench.quick else _TURNS,
        "calls": 2_000 if bench.quick else _CALLS,
    }


def _all(run: dict[str, Any], sample: Sequence[LaunchKey], keys: Sequence[LaunchKey]) -> float:
    return scaled(sample, [launch["wall"] for launch in run["launches"]], keys)


def _run(
    bench: Bench, source: Plain, python: Path, cache: Path, task: dict[str, Any]
) -> dict[str, Any]:
    work = bench.directory("served")
    task_file, answer = work / "task.json", work / "answer.json"
    task_file.write_text(json.dumps(task))
    environment = over_standin(source.environment)
    # Here launches run, so nothing may tell FlyDSL that there is no device.
    del environment["COMPILE_ONLY"]
    environment |= {
        "FLYDSL_RUNTIME_CACHE_DIR": str(cache),
        "FLYDSL_RUNTIME_ENABLE_CACHE": "1",
    }
    script = Path(__file__).with_name("flydsl_worker.py")
    arguments = [str(python), str(script), str(task_file), str(answer)]
    bench.measured([Command(arguments, environment, work)])
    found = json.loads(answer.read_text())
    if not isinstance(found, dict):
        raise BenchError("the worker's answer is no JSON object")
    return found
