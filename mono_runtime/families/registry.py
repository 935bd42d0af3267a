"""The families that this release describes; those from outside are known to mono_build alone."""

from __future__ import annotations

import importlib

from mono_runtime.errors import InvalidValue
from mono_runtime.families.base import FamilyKeys
from mono_runtime.families.fields import hint

BUILT_IN = ("deepseek_v41", "deepseek_v4", "kimi_k3", "minimax_m3")


def family_keys(name: str) -> FamilyKeys:
    """The launches of this family; an unknown name raises `InvalidValue` with the nearest ones."""
    if name not in BUILT_IN:
        raise InvalidValue(f"unknown family {name!r}", fix=hint(name, BUILT_IN))
    keys: FamilyKeys = importlib.import_module(f"mono_runtime.families.{name}").KEYS
    return keys
