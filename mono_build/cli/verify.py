"""``mono-build verify``: every digest, every reference, every code object against its plan."""

from __future__ import annotations

from pathlib import Path

import click

from mono_build.cli.executing import Wish, execute_launches, execution_options
from mono_build.cli.options import (
    json_option,
    readable_store,
    selection_options,
    store_option,
)
from mono_build.cli.output import Output, amount, size, styled
from mono_build.elf import check_artefact
from mono_build.plan import Selection
from mono_build.store.verify import verify


@click.command("verify")
@store_option
@selection_options
@execution_options
@json_option
def command(store: Path | None, selection: Selection, wish: Wish, as_json: bool) -> int:
    """Check a store, or the selected launches of it, and list every fault.

    With --execute the launches also run on an emulator, on made inputs, and are compared with
    references: what passes matches under an ISA model.

    Exit code 0 when nothing is wrong, else the sum of: 1 something is corrupt, 2 something could have
    been put there by another user or leads out of the store, 4 something could not be checked,
    8 an executed launch differs, varies or stopped, 16 a launch to execute has no reference.
    """
    output = Output(json=as_json)
    place = readable_store(store)
    select = selection.accepts if selection.restrictions() else None
    report = verify(place, check_artefact, select)
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
    if not wish.execute:
        output.data(report.to_json())
        return report.exit_code
    if report.index is None:
        output.text("nothing was executed: the store cannot be opened")
        output.data({**report.to_json(), "executed": None})
        return report.exit_code
    executed = execute_launches(place, selection, wish, output)
    code = report.exit_code + executed.exit_code
    output.data({**report.to_json(), "exit_code": code, "executed": executed.data})
    return code
