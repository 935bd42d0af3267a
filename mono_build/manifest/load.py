"""Loading manifests: ready ones by name, others by path, several into one."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from mono_build.errors import NotFound, UsageError
from mono_build.families.base import Family
from mono_build.families.registry import families as known_families
from mono_build.manifest.checks import check_entries
from mono_build.manifest.document import documents, read_text
from mono_build.manifest.model import Entry, Manifest
from mono_build.manifest.problem import Mark, Problems
from mono_build.manifest.reader import MAX_NODES, Reader, TooMuch
from mono_build.manifest.schema import read_document
from mono_build.plan import Pins
from mono_runtime.families.fields import hint

DEFAULT_FAMILY = "deepseek_v41"


def ready_manifests() -> dict[str, Path]:
    """The installed manifests by name, such as ``deepseek_v41-gfx950`` and ``quick``."""
    folder = Path(str(importlib.resources.files("manifests")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_manifests(names_or_paths: Sequence[str]) -> Manifest:
    """The manifests of these names or paths as one.

    Raises `ManifestError` with every problem of all of them, `NotFound` for a file that is not
    there, and `UsageError` for one that cannot be read.
    """
    problems = Problems()
    known = known_families()
    entries: list[Entry] = []
    pins: list[tuple[Mark, Pins]] = []
    for path in map(_resolved, dict.fromkeys(names_or_paths)):
        for read, pinned in _read(path, known, problems):
            entries += read
            pins += pinned
    check_entries(entries, known, problems)
    merged = _merged_pins(pins, problems)
    problems.raise_any()
    return Manifest(tuple(entries), merged, tuple(names_or_paths))


def default_manifest(arch: str, family: str | None = None) -> Manifest:
    """What is built for ``arch`` when no manifest is named: the family's ready one, else its defaults.

    Raises `UsageError` when the family is unknown or is not built for the architecture.
    """
    known = known_families()
    name = family or DEFAULT_FAMILY
    if name not in known:
        raise UsageError(f"unknown family {name!r}", fix=hint(name, known))
    refusal = known[name].refusal(arch)
    if refusal:
        targets = ", ".join(known[name].targets)
        raise UsageError(refusal, fix=f"{name} is built for {targets}")
    ready = f"{name}-{arch}"
    if ready in ready_manifests():
        return load_manifests([ready])
    return Manifest((Entry(name, (arch,), (), Mark(f"the defaults of {name}", 1, 1)),))


def merge_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """Several manifests as one; those that come with the project agree on pins."""
    merged = Pins()
    for manifest in manifests:
        merged = replace(merged, **_set_pins(manifest.pins))
    entries = tuple(e for m in manifests for e in m.entries)
    return Manifest(entries, merged, tuple(s for m in manifests for s in m.sources))


def _resolved(name: str) -> tuple[Path, str]:
    path = Path(name)
    if os.sep in name or path.suffix in (".yaml", ".yml") or path.is_file():
        return path, name
    ready = ready_manifests()
    if name not in ready:
        raise NotFound(
            f"there is no manifest {name!r}",
            fix=f"name a file, or a ready manifest ({hint(name, ready)})",
        )
    return ready[name], ready[name].name


def _read(
    location: tuple[Path, str], known: Mapping[str, Family], problems: Problems
) -> Iterator[tuple[list[Entry], list[tuple[Mark, Pins]]]]:
    path, shown = location
    text = read_text(path, shown, problems)
    for root in documents(text, shown, problems) if text is not None else []:
        reader = Reader(shown, problems)
        try:
            yield read_document(reader, root, known)
        except TooMuch:
            reader.fault(root, f"aliases expand to more than {MAX_NODES} values")


def _set_pins(pins: Pins) -> dict[str, str]:
    each = {f.name: getattr(pins, f.name) for f in fields(pins)}
    return {name: pin for name, pin in each.items() if pin is not None}


def _merged_pins(pins: list[tuple[Mark, Pins]], problems: Problems) -> Pins:
    merged: dict[str, tuple[Mark, str]] = {}
    for mark, given in pins:
        for name, pin in _set_pins(given).items():
            first, before = merged.setdefault(name, (mark, pin))
            if before != pin:
                problems.add(mark, f"{name} {pin!r} contradicts {before!r} at {first}")
    return Pins(**{name: pin for name, (_, pin) in merged.items()})
