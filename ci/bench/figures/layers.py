"""The host cost of a decode layer: this project's runner beside vLLM's, with FlyDSL's launchers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from figures.bench import PROJECT, Bench
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.figure import Figure, Goal
from figures.process import Command
from figures.rebuild import sampled
from figures.samples import median_ratio
from figures.served import kernels
from figures.standin import over_standin
from mono_build.plan import rows_of
from mono_runtime.families.deepseek_v41 import LAYERS

PART = "serve"
_PACKAGE = "vllm.models.deepseek_v41.amd.mono"
_TURNS = 15
_STEPS = 20


def figures(bench: Bench, store: DeploymentStore, pythons: Sequence[Path]) -> Iterator[Figure]:
    """Ratios for the FlyDSL of each of ``pythons``, and the time of a layer."""
    widths = sorted({rows for key in sampled(store.keys) if (rows := rows_of(key)) is not None})
    rows = widths[len(widths) // 2]
    with kernels(bench) as source:
        for python in pythons:
            bench.report(f"layers through both runners, with {python.parent.parent.name}")
            task = {
                **source.task({}),
                "package": _PACKAGE,
                "project": str(PROJECT),
                "store": str(store.path),
                "rows": rows,
                "tp": 4,
                "layers": len(LAYERS),
                "turns": 3 if bench.quick else _TURNS,
                "steps": 4 if bench.quick else _STEPS,
            }
            yield from _rows(bench, _run(bench, source.environment, python, task), task)


def _rows(bench: Bench, found: dict[str, Any], task: dict[str, Any]) -> Iterator[Figure]:
    wanted = 2 * task["layers"]
    if set(found["launched"].values()) != {wanted}:
        raise BenchError(f"a step launched {found['launched']} kernels instead of {wanted} each")
    samples, version = found["samples"], found["flydsl"]
    theirs = f"vLLM's with FlyDSL {version}'s launchers"
    for name, what, goal in (
        ("own", f"eager step's host cost of a layer, our runner / {theirs}", Goal(1 / 3)),
        ("plugin", f"the same, vLLM's runner with launches from the store / {theirs}", None),
    ):
        ratio = median_ratio(samples[name], samples["flydsl"])
        given = {**found, "task": {n: task[n] for n in ("rows", "layers", "turns", "steps")}}
        yield Figure(PART, what, ratio, "", 3, goal, judged=not bench.quick, samples=given)
    for name, what in (("own", "our runner"), ("flydsl", theirs)):
        value = 1e6 * median(samples[name])
        yield Figure(PART, f"a layer's host time through {what}", value, "us", 1)


def _run(
    bench: Bench, environment: dict[str, str], python: Path, task: dict[str, Any]
) -> dict[str, Any]:
    work = bench.directory("layers")
    task_file, answer = work / "task.json", work / "answer.json"
    task_file.write_text(json.dumps(task))
    given = over_standin(environment)
    # Here launches run, so nothing may tell FlyDSL that there is no device.
    del given["COMPILE_ONLY"]
    given |= {
        "FLYDSL_RUNTIME_CACHE_DIR": str(work / "cache"),
        "FLYDSL_RUNTIME_ENABLE_CACHE": "1",
    }
    script = Path(__file__).with_name("layer_worker.py")
    bench.measured([Command([str(python), str(script), str(task_file), str(answer)], given, work)])
    found = json.loads(answer.read_text())
    if not isinstance(found, dict):
        raise BenchError("the worker's answer is no JSON object")
    return found
