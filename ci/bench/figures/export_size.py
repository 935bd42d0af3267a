"""How large the standard deployment is as one file."""

from __future__ import annotations

from collections.abc import Iterator

from figures.bench import Bench
from figures.deployment import DeploymentStore
from figures.figure import Figure, Goal

PART = "export_size"
_LIMIT = 2_000_000


def figures(bench: Bench, store: DeploymentStore) -> Iterator[Figure]:
    """The size of the exported store, and what its build took when the bench built it."""
    bench.report("exporting the deployment's store")
    file = bench.directory("export") / "deployment.tar.zst"
    command = bench.mono_build(
        "export", str(file), "--store", str(store.path), "--json", kernels=""
    )
    answer = bench.answer(command)
    raw = {name: value for name, value in answer.items() if name != "file"}
    what = f"exported store of {raw['entries']} keys"
    size = file.stat().st_size
    judged = not bench.quick
    yield Figure(PART, what, size, "bytes", goal=Goal(_LIMIT), judged=judged, samples=raw)
    if store.built:
        for name, what in (("measured_cpu", "CPU"), ("measured_wall", "wall")):
            text = f"{what} of the cold build of that store"
            yield Figure(PART, text, store.built[name], "s", samples=store.built)
