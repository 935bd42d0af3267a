"""``mono-build import``: take the launches of an exported file into a store."""

from __future__ import annotations

from pathlib import Path

import click

from mono_build.cli.options import json_option, selection_options, store_option, writable_store
from mono_build.cli.output import Output, amount
from mono_build.plan import Selection
from mono_build.store.transport import import_


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@store_option
@selection_options
@json_option
def command(file: Path, store: Path | None, selection: Selection, as_json: bool) -> None:
    """Check FILE, every byte of it, and add its launches, or the selected ones, to the store."""
    output = Output(json=as_json)
    place = writable_store(store)
    report = import_(file, place, select=selection.accepts)
    output.text(
        f"{place}: {amount(report.entries, 'launch')} imported, {amount(report.blobs, 'blob')},"
        f" index {report.index}"
    )
    output.data(report.to_json())
