"""``mono-build explain``: why a launch would be rebuilt."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from mono_build.assessment import assess
from mono_build.cli.building import Request, make_plan, make_toolbox, request_options
from mono_build.cli.options import json_option, open_store, store_option
from mono_build.cli.output import Output, amount, named
from mono_build.compile.direct import Difference, Freshness
from mono_runtime.launch_key import LaunchKey

_SHORT = 12


@click.command("explain")
@store_option
@request_options
@json_option
def command(store: Path | None, request: Request, as_json: bool) -> None:
    """Say for each planned launch whether the store's is current, and which inputs changed if not."""
    output = Output(json=as_json)
    reader = open_store(store)
    plan, pins = make_plan(request, output)
    toolbox = make_toolbox(plan, pins, request, output)
    found = assess(reader.path, plan, reader.index.by_key(), toolbox)
    for reason, keys in _grouped(found.stale).items():
        for launch in keys:
            output.text(named(launch))
        for line in reason:
            output.text(f"  {line}")
    output.text(
        f"{amount(len(found.current), 'launch')} current, {len(found.stale)} to build or to trace"
    )
    output.data(
        {
            "store": str(reader.path),
            "current": [k.to_json() for k in found.current],
            "stale": [
                {
                    "key": k.to_json(),
                    "state": f.state,
                    "damage": f.damage or None,
                    "differences": [asdict(d) for d in f.differences],
                }
                for k, f in found.stale.items()
            ],
        }
    )


def _grouped(stale: dict[LaunchKey, Freshness]) -> dict[tuple[str, ...], list[LaunchKey]]:
    """Launches that are stale for the same reasons are told together."""
    groups: dict[tuple[str, ...], list[LaunchKey]] = {}
    for key, found in stale.items():
        groups.setdefault(_reason(found), []).append(key)
    return groups


def _reason(found: Freshness) -> tuple[str, ...]:
    if found.state == "absent":
        return ("not in the store",)
    if found.state == "damaged":
        return tuple(found.damage.splitlines())
    return tuple(_line(d) for d in found.differences)


def _line(difference: Difference) -> str:
    before, after = (_value(v) for v in (difference.recorded, difference.current))
    return f"{difference.kind} {difference.name}: {before} -> {after}"


def _value(value: str | None) -> str:
    if value is None:
        return "absent"
    return value[:_SHORT] if len(value) == 64 else value
