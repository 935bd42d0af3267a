"""``mono-build gc``: remove what no index needs."""

from __future__ import annotations

from pathlib import Path

import click

from mono_build.cli.options import json_option, store_option, writable_store
from mono_build.cli.output import Output, amount, size
from mono_build.store.gc import collect


@click.command("gc")
@store_option
@click.option(
    "--keep",
    multiple=True,
    metavar="INDEX",
    help="Also keep what this index needs: a digest, a file or a store. Repeatable.",
)
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be removed.")
@json_option
def command(store: Path | None, keep: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Remove blobs that neither the current index nor a kept one needs."""
    output = Output(json=as_json)
    report = collect(writable_store(store), keep, dry_run)
    for digest, count in report.removed:
        output.text(f"{digest}  {size(count)}")
    word = "would remove" if report.dry_run else "removed"
    output.text(
        f"{word} {amount(len(report.removed), 'blob')} ({size(report.freed)}), kept {report.kept}"
    )
    for digest in report.missing:
        output.warn(f"{digest} is needed and not there; mono-build verify says by what")
    output.data(report.to_json())
