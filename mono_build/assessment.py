"""What a store has for a plan, by direct keys: no FlyDSL, no trace, nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mono_build.compile import direct
from mono_build.errors import ResidencyError
from mono_build.plan import BuildPlan
from mono_build.residency import prove_residency
from mono_build.targets import devices_for
from mono_build.toolbox import Toolbox
from mono_runtime.artefact import Artefact
from mono_runtime.index import IndexEntry
from mono_runtime.launch_key import LaunchKey


@dataclass(frozen=True, slots=True)
class Assessment:
    """The store against the plan; every planned key is in exactly one of the three.

    Attributes:
        current: launches that can be used as they are, with their artefacts.
        refused: launches that are current and would deadlock on a device that was asked for.
        stale: why each other launch is not current.
    """

    current: dict[LaunchKey, tuple[IndexEntry, Artefact]]
    refused: dict[LaunchKey, ResidencyError]
    stale: dict[LaunchKey, direct.Freshness]


def assess(
    store: Path, plan: BuildPlan, entries: dict[LaunchKey, IndexEntry], toolbox: Toolbox
) -> Assessment:
    """Compare every planned key with what the store's index has of it."""
    found = Assessment({}, {}, {})
    for key in plan.keys:
        entry = entries.get(key)
        fresh = direct.examine(store, key, entry, toolbox.current(key))
        if entry is None or fresh.artefact is None:
            found.stale[key] = fresh
            continue
        try:
            prove_residency(fresh.artefact, devices_for(key.arch, toolbox.devices))
        except ResidencyError as error:
            found.refused[key] = error
        else:
            found.current[key] = (entry, fresh.artefact)
    return found
