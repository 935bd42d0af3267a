"""``build --check``: everything a second time, into an empty store, and what differs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mono_build.build import build
from mono_build.cli.output import Output, amount, error_to_json, named
from mono_build.cli.progress import make_progress
from mono_build.compile.job import Outcome
from mono_build.errors import INTERRUPTED
from mono_build.limits import Limits
from mono_build.plan import BuildPlan
from mono_build.report import failure_to_json
from mono_build.toolbox import Toolbox
from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError, StoreMissing
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader


@dataclass(slots=True)
class Check:
    """What a second build gave.

    Attributes:
        planned: launches to compare.
        compared: launches that both builds have.
        differing: launches whose launch plan or code objects differ; provenance may.
        failures: launches that the second build did not get done.
        interrupted: whether Ctrl-C or SIGTERM ended it.
        error: what kept it from being done at all.
    """

    planned: int
    compared: int = 0
    differing: list[LaunchKey] = field(default_factory=list)
    failures: list[Outcome] = field(default_factory=list)
    interrupted: bool = False
    error: MonoError | None = None

    @property
    def exit_code(self) -> int:
        """0 when everything planned was built twice and is equal."""
        if self.interrupted:
            return INTERRUPTED
        if self.error is not None:
            return self.error.exit_code
        return 1 if self.differing or self.failures or self.compared < self.planned else 0

    @property
    def verdict(self) -> str:
        """One line for people."""
        if self.exit_code == 0:
            return "check: built twice, equal bytes"
        parts = [f"{self.compared} of {amount(self.planned, 'launch')} built twice"]
        parts += [f"{len(self.differing)} of them differ"] if self.differing else []
        parts += [f"{len(self.failures)} failed the second time"] if self.failures else []
        parts += ["interrupted"] if self.interrupted else []
        return f"check: {', '.join(parts)}"

    def to_json(self) -> Json:
        return {
            "compared": self.compared,
            "differing": [k.to_json() for k in self.differing],
            "failures": [failure_to_json(o) for o in self.failures],
            "interrupted": self.interrupted,
            "error": self.error and error_to_json(self.error),
        }


def check(plan: BuildPlan, place: Path, toolbox: Toolbox, limits: Limits, output: Output) -> Check:
    """Build ``plan`` into an empty store and compare it with ``place``.

    Nothing is raised for what goes wrong: the first build is done and has to be reported.
    """
    found = Check(len(plan))
    output.note("building a second time, to compare")
    try:
        with tempfile.TemporaryDirectory(prefix="mono-build-check-") as directory:
            other = Path(directory, "store")
            report = build(plan, other, toolbox, limits, make_progress(output, plain=True))
            found.failures, found.interrupted = report.failures, report.interrupted
            first, second = (_artefacts(p, plan.keys) for p in (place, other))
            _compare(found, first, second, output)
    except KeyboardInterrupt:
        found.interrupted = True
    except MonoError as error:
        found.error = error
    return found


def _artefacts(place: Path, keys: Iterable[LaunchKey]) -> dict[LaunchKey, Artefact]:
    try:
        reader = StoreReader.open(place)
    except StoreMissing:
        # Of a build in which nothing succeeded nothing is published.
        return {}
    entries = reader.index.by_key()
    return {k: reader.artefact(entries[k].artefact) for k in keys if k in entries}


def _compare(
    found: Check,
    first: dict[LaunchKey, Artefact],
    second: dict[LaunchKey, Artefact],
    output: Output,
) -> None:
    for key, one in first.items():
        two = second.get(key)
        if two is None:
            continue
        found.compared += 1
        difference = _difference(one, two)
        if difference:
            found.differing.append(key)
            output.text(f"differs: {named(key)}: {difference}")


def _difference(one: Artefact, two: Artefact) -> str:
    if one.code_objects != two.code_objects:
        a, b = (", ".join(c.digest for c in artefact.code_objects) for artefact in (one, two))
        return f"code objects {a} and then {b}"
    return "" if one.plan == two.plan else "equal code objects, another launch plan"
