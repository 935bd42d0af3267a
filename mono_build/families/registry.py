"""The registry: the built-in families, and those that other distributions add by entry point."""

from __future__ import annotations

import importlib.metadata

from mono_build.errors import ToolchainError, UsageError
from mono_build.families.base import Family, load_reference
from mono_runtime.families.fields import hint
from mono_runtime.families.registry import BUILT_IN

GROUP = "mono_build.families"
# Named here too, so that a checkout that was never installed has them.
_BUILT_IN = {name: f"mono_build.families.{name}:FAMILY" for name in BUILT_IN}


def families() -> dict[str, Family]:
    """Every family by name. A broken or clashing entry point raises `ToolchainError`."""
    found: dict[str, Family] = {name: load_reference(ref) for name, ref in _BUILT_IN.items()}
    owners: dict[str, str] = {}
    for entry in sorted(_outside(), key=lambda e: (e.name, e.value)):
        owner = f"{entry.name} = {entry.value} of {_distribution(entry)}"
        if entry.name in found and owners.get(entry.name) != owner:
            raise ToolchainError(
                f"two distributions name the family {entry.name!r}",
                where=owner,
                fix=f"uninstall one of them; the other is {owners.get(entry.name, 'mono-build')}",
            )
        owners[entry.name] = owner
        found[entry.name] = _loaded(entry, owner)
    return found


def family(name: str) -> Family:
    """The family of this name; an unknown one raises `UsageError` with the nearest names."""
    if name in _BUILT_IN:
        built_in: Family = load_reference(_BUILT_IN[name])
        return built_in
    known = families()
    if name not in known:
        raise UsageError(f"unknown family {name!r}", fix=hint(name, known))
    return known[name]


def _outside() -> list[importlib.metadata.EntryPoint]:
    entries = importlib.metadata.entry_points(group=GROUP)
    return [e for e in entries if _BUILT_IN.get(e.name) != e.value.replace(" ", "")]


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    dist = getattr(entry, "dist", None)
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"


def _loaded(entry: importlib.metadata.EntryPoint, owner: str) -> Family:
    try:
        loaded = entry.load()
    # A foreign module may raise anything while it is imported.
    except Exception as error:
        raise _broken(owner, f"{type(error).__name__}: {error}") from error
    if not isinstance(loaded, Family):
        raise _broken(owner, f"it is a {type(loaded).__name__}, not a mono_build Family instance")
    needed = ("name", "source", "packages", "targets", "launches", "deployment_fields")
    missing = [n for n in needed if not hasattr(loaded, n)]
    if missing:
        raise _broken(owner, f"it lacks {', '.join(missing)}")
    if loaded.name != entry.name:
        raise _broken(owner, f"it calls itself {loaded.name!r}, not {entry.name!r}")
    return loaded


def _broken(owner: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"a family from outside cannot be used: {why}",
        where=owner,
        fix="repair, upgrade or uninstall that distribution",
    )
