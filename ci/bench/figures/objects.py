"""One width of V4.1: how many objects it has, and whether two builders get the same bytes."""

from __future__ import annotations

import os
import shutil
import site
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.bench import PROJECT, Bench, inherited, parsed
from figures.figure import Bound, Figure, Goal
from figures.tree import compare
from mono_build.sources import resolve_kernels

PART = "objects"
ONE_WIDTH = ("--manifest", "quick")
# Where mono-build keeps what belongs to a user; each builder of this part has its own.
_PERSONAL = ("MONO_CACHE", "XDG_CACHE_HOME")


@dataclass(frozen=True, slots=True)
class Builder:
    """One of two builders, who share the machine and nothing else.

    Attributes:
        name: of their folder; the names differ in length, so that paths do too.
        umask: as their shell has it.
        seed: their ``PYTHONHASHSEED``.
    """

    name: str
    umask: int
    seed: str


BUILDERS = (
    Builder("one", 0o022, "1"),
    Builder("another-builder/in a deeper folder", 0o077, "2"),
)


def figures(bench: Bench) -> Iterator[Figure]:
    """Counts of one width, and the comparison of the two builders' stores."""
    narrowed = ("--launch", "k1") if bench.quick else ()
    kernels = resolve_kernels(bench.kernels, os.environ, report=bench.report).root
    stores, answers = [], []
    for builder in BUILDERS:
        bench.report(f"building one width in the folder {builder.name!r}")
        store, answer = _build(bench, builder, kernels, narrowed)
        stores.append(store)
        answers.append(answer)
    same = compare(*stores)
    digests = [str(a["index_digest"]) for a in answers]
    # The digest is stated by each build, and the trees hold it: both must agree.
    differing = len(same.differing) + (digests[0] != digests[1])
    first, judged = answers[0], not bench.quick
    raw = {"builds": answers, "differing": list(same.differing), "entries": same.entries}
    yield Figure(PART, "build keys of one width", first["planned"], goal=_12, judged=judged)
    yield Figure(PART, "code objects", first["code_objects"], goal=_11, judged=judged)
    yield Figure(PART, "distinct machine codes", first["machine_codes"], goal=_9, judged=judged)
    what = f"differing of {same.entries} files and folders, built twice"
    yield Figure(PART, what, differing, goal=Goal(0, Bound.EXACT), judged=judged, samples=raw)


_12, _11, _9 = Goal(12, Bound.EXACT), Goal(11), Goal(9, Bound.EXACT)


def _build(
    bench: Bench, builder: Builder, kernels: Path, narrowed: tuple[str, ...]
) -> tuple[Path, dict[str, Any]]:
    folder = bench.directory("builder") / builder.name
    for name in ("home", "work"):
        (folder / name).mkdir(parents=True)
    for package in ("mono_build", "mono_runtime", "manifests"):
        shutil.copytree(
            PROJECT / package,
            folder / "project" / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copytree(
        kernels / "vllm" / "models",
        folder / "kernels" / "vllm" / "models",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    environment = {n: v for n, v in inherited().items() if n not in _PERSONAL}
    environment |= {
        "HOME": str(folder / "home"),
        # Sockets are made there, whose names may have 107 bytes.
        "TMPDIR": str(bench.directory("t")),
        "PYTHONHASHSEED": builder.seed,
        # FlyDSL may be installed for the user alone, whom a new HOME would hide.
        "PYTHONUSERBASE": site.getuserbase(),
    }
    store = folder / "store"
    command = bench.mono_build(
        *("build", *ONE_WIDTH, *narrowed, "--store", str(store), "--json"),
        environment=environment,
        kernels=str(folder / "kernels"),
        project=folder / "project",
        directory=folder / "work",
        umask=builder.umask,
    )
    answer = parsed(bench.measured([command]))
    # Where the store lies is the one thing in the answer that should differ.
    return store, {name: value for name, value in answer.items() if name != "store"}
