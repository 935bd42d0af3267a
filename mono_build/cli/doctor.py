"""``mono-build doctor``: what a build finds here, where it looked, and how to get what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from mono_build.cli.building import kernels_option
from mono_build.cli.options import json_option, store_option
from mono_build.cli.output import Output, styled
from mono_build.doctor import MISSING, OK, UNSUPPORTED, Item, examine
from mono_build.errors import ToolchainError
from mono_build.families.registry import families
from mono_build.families.registry import family as find_family
from mono_build.store.default import default_store
from mono_build.toolbox import ENGINE
from mono_runtime.errors import StoreError

_STYLES = {OK: "green", MISSING: "red", UNSUPPORTED: "red"}


@click.command("doctor")
@store_option
@kernels_option
@click.option("--family", multiple=True, help="Look for these families' kernels only.")
@json_option
def command(store: Path | None, kernels: str | None, family: tuple[str, ...], as_json: bool) -> int:
    """Show every tool and source a build needs, with version, digest and where it was looked for.

    Exit code 0 when a build can start, 4 when something it needs is missing.
    """
    output = Output(json=as_json)
    known = {name: find_family(name) for name in family} or families()
    packages = [p for f in known.values() if f.source == ENGINE for p in f.packages]
    report = examine(os.environ, kernels=kernels, packages=packages, store=_store(store))
    for item in report.items:
        _show(output, item)
    for note in report.notes:
        output.warn(note)
    output.text()
    output.text(
        "ready to build" if report.ready else "a build cannot start: see what is missing above"
    )
    output.data(report.to_json())
    return 0 if report.ready else ToolchainError.exit_code


def _store(store: Path | None) -> Path | None:
    try:
        return store or default_store(os.environ)
    except StoreError:
        return None


def _show(output: Output, item: Item) -> None:
    state = styled(f"{item.state:11}", _STYLES.get(item.state, "dim"), stream=sys.stdout)
    output.text(f"{state} {item.name}  {item.version or ''}".rstrip())
    for label, value in (("at", item.where), ("digest", item.digest), ("note", item.note)):
        if value:
            output.text(f"            {label:7} {value}")
    for place in item.looked:
        output.text(f"            looked  {place.where}: {place.outcome}")
    if item.fix:
        output.text(f"            do      {item.fix}")
