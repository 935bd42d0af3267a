"""Manifests as text: what builds the launches of a deployment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import yaml

from mono_build.families.registry import family as find_family
from mono_runtime.families.base import Deployment, FamilyKeys
from mono_runtime.families.fields import Setting
from mono_runtime.launch_key import LaunchKey, Scalar


def manifest_text(family: FamilyKeys, deployment: Deployment, keys: Collection[LaunchKey]) -> str:
    """A manifest that plans ``keys``, the launches of ``deployment``.

    It states the deployment where that gives just these launches. A checkpoint with layers of its own has
    others than the family plans for that deployment; then it states widths and variants.
    """
    stated = _stated(family, deployment)
    if set(find_family(family.name).deployment_keys(deployment)) == set(keys):
        builds = [stated]
    else:
        builds = [{**stated, **build} for build in _explicit(family, keys)]
    text: str = yaml.safe_dump(
        {"schema": 1, "builds": builds}, sort_keys=False, default_flow_style=None, width=100
    )
    return text


def _stated(family: FamilyKeys, deployment: Deployment) -> dict[str, object]:
    defaults = family.deployment(deployment.arch, deployment.tp, {}).settings
    settings = {
        name: _value(value)
        for name, value in deployment.settings.items()
        if value != defaults.get(name)
    }
    head: dict[str, object] = {
        "family": family.name,
        "arch": deployment.arch,
        "tp": deployment.tp,
    }
    return {**head, "deployment": settings} if settings else head


def _explicit(family: FamilyKeys, keys: Collection[LaunchKey]) -> list[dict[str, object]]:
    """Widths with the variants that they have in common."""
    variants: defaultdict[int, list[dict[str, object]]] = defaultdict(list)
    for key in keys:
        rows, variant = _variant(family, key)
        variants[rows].append(variant)
    widths: defaultdict[str, list[int]] = defaultdict(list)
    for rows, found in sorted(variants.items()):
        found.sort(key=repr)
        widths[repr(found)].append(rows)
    return [{"rows": rows, "variants": variants[rows[0]]} for rows in widths.values()]


def _variant(family: FamilyKeys, key: LaunchKey) -> tuple[int, dict[str, object]]:
    build: dict[str, Scalar] = key.values
    rows = int(build.pop(family.rows_field))
    build.pop("tp", None)
    spec = family.spec(key.launch)
    order = [f.name for f in spec.fields] if spec else list(build)
    return rows, {"launch": key.launch, **{n: build[n] for n in order if n in build}}


def _value(value: Setting) -> object:
    return list(value) if isinstance(value, tuple) else value
