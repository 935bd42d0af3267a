"""``mono-build export``: a store, or a part of it, as one file."""

from __future__ import annotations

from pathlib import Path

import click

from mono_build.cli.options import json_option, open_store, selection_options, store_option
from mono_build.cli.output import Output, amount, size
from mono_build.errors import NotFound
from mono_build.plan import Selection, emptied_by
from mono_build.store.transport import export


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@store_option
@selection_options
@json_option
def command(file: Path, store: Path | None, selection: Selection, as_json: bool) -> None:
    """Write the selected launches to FILE: a tar of an OCI image layout, compressed with zstandard.

    Equal content gives equal bytes, wherever and by whomever it is written.
    """
    output = Output(json=as_json)
    reader = open_store(store)
    keys = [e.key for e in reader.index.entries]
    if not any(selection.accepts(k) for k in keys):
        raise NotFound(emptied_by(keys, selection), where=str(reader.path))
    report = export(reader.path, file, selection.accepts)
    output.text(
        f"{report.file}: {amount(report.entries, 'launch')}, {amount(report.blobs, 'blob')},"
        f" {size(report.size)} ({size(report.raw_size)} unpacked), index {report.index}"
    )
    output.data(report.to_json())
