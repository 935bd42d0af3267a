"""What is wrong with entries as a whole: combinations, selectors that match nothing, empty plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mono_build.families.base import Deployment, Family
from mono_build.manifest.expansion import (
    MAX_KEYS,
    deployment_of,
    filtered_keys,
    unfiltered_keys,
    variant_size,
)
from mono_build.manifest.model import Entry
from mono_build.manifest.problem import Problems
from mono_runtime.launch_key import LaunchKey


def check_entry(entry: Entry, family: Family, problems: Problems) -> int:
    """Note every problem of an entry whose single values are legal; returns its number of keys."""
    targets = list(_targets(entry, family))
    too_many = sum(map(variant_size, entry.variants)) * max(len(entry.rows), 1) * len(targets)
    if too_many > MAX_KEYS:
        problems.add(entry.mark, f"asks for {too_many} launches, more than {MAX_KEYS}")
        return 0
    before = len(problems.found)
    keys: list[tuple[int, LaunchKey]] = []
    for arch, tp in targets:
        deployment = deployment_of(entry, family, arch, tp)
        for conflict in family.deployment_conflicts(deployment):
            problems.add(entry.settings_mark or entry.mark, f"the deployment: {conflict}")
        if problems.since(before):
            continue
        if not family.widths(deployment):
            problems.add(entry.mark, f"no width of this deployment fits {family.name} on {arch}")
            continue
        check = _check_variants if entry.variants else _check_rows
        check(entry, family, deployment, problems)
        keys += [(tp, k) for k in unfiltered_keys(entry, family, deployment)]
    _check_selectors(entry, family, keys, problems)
    return len(keys)


def _targets(entry: Entry, family: Family) -> Iterator[tuple[str, int]]:
    for arch in entry.archs or family.targets:
        for tp in entry.tps or family.targets[arch]:
            if family.refusal(arch, tp) is None:
                yield arch, tp


def _check_rows(entry: Entry, family: Family, deployment: Deployment, problems: Problems) -> None:
    for rows, mark in zip(entry.rows, entry.row_marks, strict=True):
        at = deployment_of(entry, family, deployment.arch, deployment.tp, (rows,))
        for key in unfiltered_keys(entry, family, at):
            for problem in family.problems(key):
                problems.add(mark, problem)


def _check_variants(
    entry: Entry, family: Family, deployment: Deployment, problems: Problems
) -> None:
    for variant in entry.variants:
        alone = replace(entry, variants=(variant,))
        # What is wrong at every width is the variant's fault; the rest is said at the width.
        faults = [
            {
                problem
                for key in unfiltered_keys(
                    alone,
                    family,
                    deployment_of(alone, family, deployment.arch, deployment.tp, (rows,)),
                )
                for problem in family.problems(key)
            }
            for rows in family.widths(deployment)
        ]
        shared = set.intersection(*faults)
        for problem in sorted(shared):
            problems.add(variant.mark, problem)
        marks = dict(zip(entry.rows, entry.row_marks, strict=True))
        for rows, found in zip(family.widths(deployment), faults, strict=True):
            for problem in sorted(found - shared):
                problems.add(marks.get(rows, variant.mark), problem)


def _check_selectors(
    entry: Entry, family: Family, keys: list[tuple[int, LaunchKey]], problems: Problems
) -> None:
    if not keys:
        return
    before = len(problems.found)
    for which, selectors in (("include", entry.include), ("exclude", entry.exclude)):
        for selector in selectors:
            if not any(selector.matches(k, tp, family.rows_field) for tp, k in keys):
                problems.add(selector.mark, f"this {which} matches none of {len(keys)} launches")
    left = [k for tp, key in keys for k in filtered_keys(entry, family, tp, [key])]
    if not left and not problems.since(before):
        problems.add(
            entry.mark, f"include and exclude leave none of {len(keys)} launches: an empty plan"
        )


def check_entries(entries: list[Entry], families: Mapping[str, Family], problems: Problems) -> None:
    """Note what is wrong with each of ``entries``."""
    total = 0
    for entry in entries:
        total += check_entry(entry, families[entry.family], problems)
        if total > MAX_KEYS:
            problems.add(entry.mark, f"the builds up to here are {total} launches, over {MAX_KEYS}")
            return
