"""The store of the standard deployment that several figures look at, built or given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.bench import Bench, parsed
from figures.errors import BenchError
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

STANDARD = ("--arch", "gfx950", "--tp", "4")
# What stands for the deployment in a reduced run: two widths of K1, or one width of everything.
TWO_WIDTHS = ("--launch", "k1", "--rows", "6", "--rows", "48")
ONE_WIDTH = ("--rows", "6")


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


def deployment_store(
    bench: Bench, *, current: bool = True, reduced: tuple[str, ...] = TWO_WIDTHS
) -> DeploymentStore:
    """Take the store that was given, else build one; `BenchError` unless it is sound and complete.

    Args:
        current: whether every launch must be what a build would make now, and not only be there.
        reduced: options that narrow the deployment in a reduced run.
    """
    asked = (*STANDARD, *reduced) if bench.quick else STANDARD
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
    held = {entry.key for entry in StoreReader.open(path).index.entries}
    unfit = [
        k
        for k in keys
        if LaunchKey.from_json(k["key"]) not in held or (current and k["state"] != "reuse")
    ]
    if unfit:
        raise BenchError(
            f"{len(unfit)} of {len(keys)} launches are not {'current in' if current else 'in'} the store",
            fix="build them with the same --kernels and tools first, or leave --store out",
        )
    return DeploymentStore(path, asked, tuple(LaunchKey.from_json(k["key"]) for k in keys), built)
