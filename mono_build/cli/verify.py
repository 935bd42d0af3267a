"""``mono-build verify``: every digest, every reference, every code object against its plan."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mono_build.cli.options import json_option, store_option
from mono_build.cli.output import Output, amount, size, styled
from mono_build.elf import check_artefact
from mono_build.store.default import resolve_read
from mono_build.store.verify import verify


@click.command("verify")
@store_option
@json_option
def command(store: Path | None, as_json: bool) -> int:
    """Check a store and list every fault in it.

    Exit code 0 when nothing is wrong, else the sum of: 1 something is corrupt, 2 something could have
    been put there by another user or leads out of the store, 4 something could not be checked.
    """
    output = Output(json=as_json)
    place = resolve_read(os.environ, store)[0].absolute()
    report = verify(place, check_artefact)
    for fault in report.faults:
        output.text(f"{styled(fault.kind, 'red')}: {fault.file}: {fault.what}")
        if fault.expected is not None:
            output.text(f"  expected {fault.expected}")
        if fault.found is not None:
            output.text(f"  found    {fault.found}")
    for file, what in report.notices:
        output.note(f"notice: {file}: {what}")
    verdict = f"{amount(len(report.faults), 'fault')}" if report.faults else "no faults"
    output.text(
        f"{verdict} in {place}: {amount(report.entries, 'launch')},"
        f" {amount(report.blobs, 'blob')}, {size(report.size)}, index {report.index or 'unreadable'}"
    )
    output.data(report.to_json())
    return report.exit_code
