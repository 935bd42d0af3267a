"""From one entry of a manifest to launch keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from mono_build.families.base import Deployment, Family
from mono_build.manifest.model import Entry, Variant
from mono_runtime.launch_key import LaunchKey

# Far beyond any server (the largest deployment of a built-in family asks for some hundreds).
MAX_KEYS = 20_000


def deployment_of(
    entry: Entry, family: Family, arch: str, tp: int, rows: tuple[int, ...] | None = None
) -> Deployment:
    """The deployment that ``entry`` describes; ``rows`` replaces its explicit widths."""
    return family.deployment(arch, tp, entry.settings, entry.rows if rows is None else rows)


def unfiltered_keys(entry: Entry, family: Family, deployment: Deployment) -> list[LaunchKey]:
    """The keys before ``include`` and ``exclude``, each once."""
    if not entry.variants:
        return list(dict.fromkeys(family.deployment_keys(deployment)))
    keys = (k for v in entry.variants for k in variant_keys(v, family, deployment))
    return list(dict.fromkeys(keys))


def variant_keys(variant: Variant, family: Family, deployment: Deployment) -> Iterator[LaunchKey]:
    """Every combination of a variant's values, at every width and in every launch it names."""
    names = [name for name, _ in variant.values]
    for rows in family.widths(deployment):
        for launch in variant.launches:
            for chosen in product(*(values for _, values in variant.values)):
                build = dict(zip(names, chosen, strict=True))
                yield family.key(deployment, launch, rows, build)


def variant_size(variant: Variant) -> int:
    """How many keys a variant has at one width."""
    return len(variant.launches) * math.prod(len(values) for _, values in variant.values)


def filtered_keys(entry: Entry, family: Family, tp: int, keys: list[LaunchKey]) -> list[LaunchKey]:
    """``keys`` that ``include`` admits (all, when there is none) and ``exclude`` does not drop."""
    field = family.rows_field
    return [
        key
        for key in keys
        if (not entry.include or any(s.matches(key, tp, field) for s in entry.include))
        and not any(s.matches(key, tp, field) for s in entry.exclude)
    ]


def entry_keys(
    entry: Entry, family: Family, arch: str, tp: int, rows: tuple[int, ...] | None = None
) -> list[LaunchKey]:
    """The keys of ``entry`` for one target."""
    deployment = deployment_of(entry, family, arch, tp, rows)
    return filtered_keys(entry, family, tp, unfiltered_keys(entry, family, deployment))
