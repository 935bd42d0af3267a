"""The families that this release describes; those from outside are known to mono_build alone."""

from __future__ import annotations

from mono_runtime.errors import InvalidValue
from mono_runtime.families import deepseek_v4, deepseek_v41, kimi_k3, minimax_m3
from mono_runtime.families.base import FamilyKeys
from mono_runtime.families.fields import hint

_FAMILIES: dict[str, FamilyKeys] = {
    "deepseek_v41": deepseek_v41.KEYS,
    "deepseek_v4": deepseek_v4.KEYS,
    "kimi_k3": kimi_k3.KEYS,
    "minimax_m3": minimax_m3.KEYS,
}
BUILT_IN = tuple(_FAMILIES)


def family_keys(name: str) -> FamilyKeys:
    """The launches of this family; an unknown name raises `InvalidValue` with the nearest ones."""
    if name not in _FAMILIES:
        raise InvalidValue(f"unknown family {name!r}", fix=hint(name, BUILT_IN))
    return _FAMILIES[name]
