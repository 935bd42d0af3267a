"""Ranks of a server that start with prebuilt launches; run as a script, never imported.

``python start_worker.py TASK.json ANSWER.json``. The process imports torch, as an engine's worker has, and forks
the ranks of each round. A rank joins a gloo group and waits for the others; then its clock starts, and
it does what the plug-in does in a server, up to the agreement of all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed

COMPILERS = ("flydsl", "_mlir", "mlir")


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    sys.path.insert(0, task["project"])
    rounds = [_round(task) for _ in range(task["rounds"])]
    Path(answer_file).write_text(json.dumps(rounds))


def _round(task: dict[str, Any]) -> list[dict[str, Any]]:
    place = Path(tempfile.mkdtemp(dir="."))
    children = [_forked(task, rank, place) for rank in range(task["ranks"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        sys.exit(f"a rank failed: {codes}")
    return [json.loads((place / f"{rank}.json").read_text()) for rank in range(task["ranks"])]


def _forked(task: dict[str, Any], rank: int, place: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        found = _rank(task, rank, place)
        (place / f"{rank}.json").write_text(json.dumps(found))
        code = 0
    except BaseException as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _rank(task: dict[str, Any], rank: int, place: Path) -> dict[str, Any]:
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{place.resolve()}/rendezvous",
        rank=rank,
        world_size=task["ranks"],
    )
    group = torch.distributed.group.WORLD
    config = _as_object(task["config"])
    torch.distributed.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    from mono_runtime.hooks import plugin

    plugin.register()
    registered = time.perf_counter() - wall
    serving = plugin.serving()
    if serving is None:
        raise RuntimeError("the plug-in has no store")
    prepared = serving.prepare(config, group=group)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if prepared is None:
        raise RuntimeError("the deployment is not served")
    modules = {name.partition(".")[0] for name in sys.modules}
    return {
        "wall": wall,
        "cpu": cpu,
        "registered": registered,
        "loaded": prepared.summary.loaded,
        "needed": prepared.summary.needed,
        "compilers": sorted(modules & set(COMPILERS)),
    }


def _as_object(config: Any) -> Any:
    """A description as an engine's objects have it."""
    if not isinstance(config, dict):
        return config
    return SimpleNamespace(**{name: _as_object(value) for name, value in config.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
