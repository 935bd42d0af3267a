"""From a manifest and what the command line restricts or overrides to the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mono_build.errors import UsageError
from mono_build.families.base import Family
from mono_build.families.registry import families as known_families
from mono_build.manifest.expansion import entry_keys
from mono_build.manifest.load import (
    DEFAULT_FAMILY,
    default_manifest,
    load_manifests,
    merge_manifests,
)
from mono_build.manifest.model import Entry, Manifest
from mono_build.plan import BuildPlan, Selection, emptied_by, rows_of
from mono_runtime.arch import KNOWN, parse_architecture
from mono_runtime.families.fields import hint
from mono_runtime.launch_key import LaunchKey


@dataclass(frozen=True, slots=True)
class _Target:
    """One entry for one architecture and TP size."""

    entry: Entry
    family: Family
    arch: str
    tp: int

    def expanded(self, rows: tuple[int, ...] | None = None) -> list[LaunchKey]:
        return entry_keys(self.entry, self.family, self.arch, self.tp, rows)


def manifest_for(names_or_paths: Sequence[str], selection: Selection) -> Manifest:
    """The manifests that were named, else the ready ones for the selected families and architectures.

    Raises `UsageError` when nothing is named and no architecture is selected.
    """
    if names_or_paths:
        return load_manifests(names_or_paths)
    archs = _normalised(selection).archs
    if not archs:
        raise _no_architecture()
    names = selection.families or (DEFAULT_FAMILY,)
    return merge_manifests([default_manifest(arch, name) for name in names for arch in archs])


def plan_for(manifest: Manifest, selection: Selection) -> BuildPlan:
    """The launch keys of ``manifest`` that ``selection`` leaves.

    A selected architecture, TP size or width that the manifest lists narrows it to that; one that
    it does not list replaces what it has. Families and launches only narrow.

    Raises `UsageError`: for an unknown name, for a combination that cannot be built (with the
    reason), and for a plan with nothing in it (with the restriction that emptied it).
    """
    selection = _normalised(selection)
    known = known_families()
    entries = _of_families(manifest, selection, known)
    _check_launches(entries, selection, known)
    targets = _targets(entries, selection, known)
    keys = _keys(targets, selection.rows)
    _refuse_illegal(keys, known)
    plan = BuildPlan.of(keys).narrowed(replace(selection, archs=(), tps=()))
    if not plan.keys:
        raise UsageError(
            f"the plan is empty: {emptied_by(keys, selection)}",
            fix="drop or change that restriction",
        )
    return plan


def _normalised(selection: Selection) -> Selection:
    archs = dict.fromkeys(parse_architecture(a).name for a in selection.archs)
    return replace(selection, archs=tuple(archs))


def _no_architecture() -> UsageError:
    return UsageError(
        "no architecture was given",
        fix=f"name one with --arch ({', '.join(KNOWN)}), or a manifest that has one",
    )


def _of_families(
    manifest: Manifest, selection: Selection, known: Mapping[str, Family]
) -> list[Entry]:
    listed = {e.family for e in manifest.entries}
    for name in selection.families:
        if name not in known:
            raise UsageError(f"unknown family {name!r}", fix=hint(name, known))
        if name not in listed:
            raise UsageError(
                f"the plan is empty: --family {name} leaves nothing of the manifest",
                where=", ".join(manifest.sources) or None,
                fix=f"its families are {', '.join(sorted(listed))}",
            )
    return [e for e in manifest.entries if not selection.families or e.family in selection.families]


def _check_launches(
    entries: list[Entry], selection: Selection, known: Mapping[str, Family]
) -> None:
    names = list(dict.fromkeys(s.name for e in entries for s in known[e.family].launches))
    for launch in selection.launches:
        if launch not in names:
            raise UsageError(f"unknown launch {launch!r}", fix=hint(launch, names))


def _targets(
    entries: list[Entry], selection: Selection, known: Mapping[str, Family]
) -> list[_Target]:
    listed = {arch for e in entries for arch in e.archs}
    foreign = tuple(a for a in selection.archs if a not in listed)
    pairs: list[tuple[Entry, str]] = []
    for entry in entries:
        kept = tuple(a for a in entry.archs if not selection.archs or a in selection.archs)
        if not entry.archs:
            kept = selection.archs
            if not kept:
                raise _no_architecture()
        pairs += [(entry, arch) for arch in dict.fromkeys((*kept, *foreign))]
    return list(_with_sizes(pairs, selection.tps, known))


def _with_sizes(
    pairs: list[tuple[Entry, str]], wanted: tuple[int, ...], known: Mapping[str, Family]
) -> Iterator[_Target]:
    sizes: list[tuple[Entry, str, tuple[int, ...]]] = []
    for entry, arch in pairs:
        family = known[entry.family]
        if refusal := family.refusal(arch):
            raise UsageError(refusal, fix=f"it is built for {', '.join(family.targets)}")
        sizes.append((entry, arch, entry.tps or family.targets[arch]))
    listed = {tp for _, _, each in sizes for tp in each}
    foreign = tuple(tp for tp in wanted if tp not in listed)
    for entry, arch, each in sizes:
        family = known[entry.family]
        for tp in dict.fromkeys((*(t for t in each if not wanted or t in wanted), *foreign)):
            if refusal := family.refusal(arch, tp):
                legal = ", ".join(map(str, family.targets[arch]))
                raise UsageError(refusal, fix=f"use --tp {legal}")
            yield _Target(entry, family, arch, tp)


def _keys(targets: list[_Target], rows: tuple[int, ...]) -> list[LaunchKey]:
    keys = [key for target in targets for key in target.expanded()]
    listed = {rows_of(key) for key in keys}
    foreign = tuple(r for r in rows if r not in listed)
    if foreign:
        keys += [key for target in targets for key in target.expanded(foreign)]
    return keys


def _refuse_illegal(keys: list[LaunchKey], known: Mapping[str, Family]) -> None:
    reasons = dict.fromkeys(p for k in dict.fromkeys(keys) for p in known[k.family].problems(k))
    if reasons:
        raise UsageError(
            "; ".join(reasons), fix="change --rows, --tp or --arch, or the manifest they override"
        )
