"""``mono-build plan``: what a build would do, without doing it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from mono_build.assessment import assess
from mono_build.cli.building import Request, make_plan, make_toolbox, request_options
from mono_build.cli.options import json_option, readable_store, store_option
from mono_build.cli.output import Output, amount, named
from mono_build.plan import BuildPlan, Pins
from mono_runtime.errors import MonoError, StoreMissing
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

COMPILE, REUSE, UNKNOWN = "compile", "reuse", "unknown"
_STATES = {"absent": COMPILE, "damaged": COMPILE, "changed": UNKNOWN}


@click.command("plan")
@store_option
@request_options
@click.option("--list", "listed", is_flag=True, help="List every launch key, not only the counts.")
@json_option
def command(store: Path | None, request: Request, listed: bool, as_json: bool) -> None:
    """List what would be built, with counts by family and launch.

    A launch is to `compile`, to `reuse` (its direct key is in the store), or `unknown`: its inputs
    changed, and only a trace can tell whether its code did.
    """
    output = Output(json=as_json)
    plan, pins = make_plan(request, output)
    states = _states(plan, pins, request, readable_store(store), output)
    if listed:
        rows = [(k.digest.removeprefix("sha256:")[:12], states[k], named(k)) for k in plan.keys]
        output.table(("key", "state", "launch"), rows)
    _counts(output, plan, states)
    output.data(
        {
            "planned": len(plan),
            "states": Counter(states.values()),
            "counts": plan.to_json()["counts"],
            "keys": [
                {"key": k.to_json(), "key_digest": k.digest, "state": states[k]} for k in plan.keys
            ],
        }
    )


def _states(
    plan: BuildPlan, pins: Pins, request: Request, store: Path, output: Output
) -> dict[LaunchKey, str]:
    try:
        entries = StoreReader.open(store).index.by_key()
    except StoreMissing:
        return dict.fromkeys(plan.keys, COMPILE)
    if not any(k in entries for k in plan.keys):
        return dict.fromkeys(plan.keys, COMPILE)
    try:
        toolbox = make_toolbox(plan, pins, request, output)
        found = assess(store, plan, entries, toolbox)
    except MonoError as error:
        # A plan can be read where nothing can be built; what is in the store is then unknown.
        output.warn(f"cannot tell what is current in the store: {error.what}")
        return {k: UNKNOWN if k in entries else COMPILE for k in plan.keys}
    stale = {k: _STATES[fresh.state] for k, fresh in found.stale.items()}
    return {k: stale.get(k, REUSE) for k in plan.keys}


def _counts(output: Output, plan: BuildPlan, states: dict[LaunchKey, str]) -> None:
    by_group = Counter((k.family, k.arch, k.launch, states[k]) for k in plan.keys)
    rows = []
    for count in plan.counts():
        group = (count.family, count.arch, count.launch)
        groups = [(*group, state) for state in (COMPILE, REUSE, UNKNOWN)]
        rows.append((*group, count.keys, *(by_group[g] for g in groups)))
    header = ("family", "arch", "launch", "keys", COMPILE, REUSE, UNKNOWN)
    output.table(header, rows)
    total = Counter(states.values())
    output.text(
        f"{amount(len(plan), 'launch')}: {total[COMPILE]} to compile, {total[REUSE]} to reuse,"
        f" {total[UNKNOWN]} unknown"
    )
