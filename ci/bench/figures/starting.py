"""What a server's ranks do at start with prebuilt launches: plug-in, configuration, loading, agreement."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from figures.bench import PROJECT, Bench, inherited
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.figure import Bound, Figure, Goal
from figures.process import Command
from figures.standin import over_standin

PART = "serve"
RANKS = 4
# A server starts once; each round starts all of its ranks anew.
_ROUNDS = 9
# The standard deployment as vLLM's configuration has it: V4.1, TP 4, five drafts.
_CONFIG: dict[str, Any] = {
    "model_config": {"hf_config": {"model_type": "deepseek_v41"}},
    "kernel_config": {"monokernel": True},
    "parallel_config": {"tensor_parallel_size": RANKS},
    "speculative_config": {"num_speculative_tokens": 5, "method": "mtp"},
    "scheduler_config": {"max_num_seqs": 8},
    "attention_config": {"indexer_kv_dtype": "mxfp4"},
}


def figures(bench: Bench, store: DeploymentStore) -> Iterator[Figure]:
    """Seconds of the slowest rank, and what of FlyDSL any rank has used."""
    seats = 1 if bench.quick else 8
    rounds = 2 if bench.quick else _ROUNDS
    bench.report(f"{rounds} starts of {RANKS} ranks")
    found = _starts(bench, store, rounds, seats)
    samples = {"rounds": found}
    slowest = [max(rank["wall"] for rank in one) for one in found]
    loaded = {rank["loaded"] for one in found for rank in one}
    if loaded != {len(store.keys)}:
        raise BenchError(f"ranks loaded {sorted(loaded)} launches instead of {len(store.keys)}")
    used = sum(len(rank["compilers"]) for one in found for rank in one)

    def row(what: str, value: float, goal: Goal | None = None, **options: Any) -> Figure:
        return Figure(PART, what, value, goal=goal, judged=not bench.quick, **options)

    what = f"start-up work of a rank for {len(store.keys)} launches, the slowest of {RANKS}"
    yield row(what, median(slowest), Goal(1.0), unit="s", digits=3, samples=samples)
    registering = median(rank["registered"] for one in found for rank in one)
    yield row("of it, registering the plug-in", 1000 * registering, unit="ms", digits=1)
    cpu = median(rank["cpu"] for one in found for rank in one)
    yield row("CPU time of a rank for it", cpu, unit="s", digits=3)
    yield row("modules of FlyDSL or MLIR that a rank imports", used, Goal(0, Bound.EXACT))


def _starts(
    bench: Bench, store: DeploymentStore, rounds: int, seats: int
) -> list[list[dict[str, Any]]]:
    """For each round what every rank told."""
    work = bench.directory("starts")
    task, answer = work / "task.json", work / "answer.json"
    config = {**_CONFIG, "scheduler_config": {"max_num_seqs": seats}}
    task.write_text(
        json.dumps({"project": str(PROJECT), "config": config, "ranks": RANKS, "rounds": rounds})
    )
    environment = over_standin(inherited())
    environment |= {"MONO_STORE": str(store.path), "MONO_POLICY": "strict"}
    script = Path(__file__).with_name("start_worker.py")
    arguments = [sys.executable, str(script), str(task), str(answer)]
    bench.measured([Command(arguments, environment, work)])
    found: list[list[dict[str, Any]]] = json.loads(answer.read_text())
    return found
