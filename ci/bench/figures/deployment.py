"""The store of the standard deployment that several figures look at, built or given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.bench import Bench, parsed
from figures.errors import BenchError
from mono_runtime.launch_key import LaunchKey

STANDARD = ("--arch", "gfx950", "--tp", "4")
# Two launches at two widths stand for seven widths in a reduced run.
_REDUCED = ("--launch", "k1", "--rows", "6", "--rows", "48")


@dataclass(frozen=True, slots=True)
class DeploymentStore:
    """A verified store that has every key of the deployment.

    Attributes:
        asked: the options that plan the deployment.
        keys: what they plan.
        built: seconds and counts of the build; empty for a store that was given.
    """

    path: Path
    asked: tuple[str, ...]
    keys: tuple[LaunchKey, ...]
    built: dict[str, Any]


def deployment_store(bench: Bench) -> DeploymentStore:
    """Take the store that was given, else build one; `BenchError` unless it is sound and complete."""
    asked = (*STANDARD, *_REDUCED) if bench.quick else STANDARD
    path = bench.store or bench.scratch / "deployment"
    built: dict[str, Any] = {}
    if bench.store is None:
        bench.report("building the deployment's store; this takes some minutes")
        command = bench.mono_build("build", *asked, "--store", str(path), "--json")
        measured = bench.measured([command])
        built = {**parsed(measured), "measured_cpu": measured.cpu, "measured_wall": measured.wall}
        del built["store"]
    bench.report("verifying the deployment's store")
    bench.answer(bench.mono_build("verify", "--store", str(path), "--json", kernels=""))
    keys = bench.planned(*asked, store=path)
    stale = sum(k["state"] != "reuse" for k in keys)
    if stale:
        raise BenchError(
            f"{stale} of {len(keys)} launches are not current in the store",
            fix="build them with the same --kernels and tools first, or leave --store out",
        )
    return DeploymentStore(path, asked, tuple(LaunchKey.from_json(k["key"]) for k in keys), built)
