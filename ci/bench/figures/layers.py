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
    if set(found["launched"].values()) != {2}:
        raise BenchError(f"a layer launched {found['launched']} kernels instead of 2 on each side")
    samples, version = found["samples"], found["flydsl"]
    given = {**found, "task": {n: task[n] for n in ("rows", "layers", "turns", "steps")}}
    named = f"FlyDSL {version}'s"
    for side, other, what, goal in (
        ("own", "flydsl", f"our runner / vLLM's with {named} launchers", Goal(1 / 3)),
        ("own", "compiled", f"our runner / vLLM's with {named} compiled functions", None),
        ("plugin", "flydsl", f"vLLM's runner, launches from the store / {named} launchers", None),
    ):
        ratio = _ratio(samples[side], samples[other])
        label = f"host cost of a layer in an eager step: {what}"
        digits = 3 if ratio >= 0.01 else 6
        judged = not bench.quick
        yield Figure(PART, label, ratio, "", digits, goal, judged=judged, samples=given)
    for side, what in (
        ("own", "our runner"),
        ("flydsl", f"vLLM's runner with {named} launchers"),
        ("compiled", f"vLLM's runner with {named} compiled functions"),
    ):
        value = 1e6 * median(samples[side])
        yield Figure(PART, f"a layer's host time: {what}", value, "us", 1)


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median ratio of the turns that both had; who takes seconds for a layer has fewer."""
    turns = min(len(ours), len(theirs))
    return median_ratio(ours[:turns], theirs[:turns])


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
