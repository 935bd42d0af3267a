"""``mono-build diff``: which launches of two stores differ, in what, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from mono_build.cli.options import counts_option, json_option, selection_options
from mono_build.cli.output import Output, amount, named
from mono_build.emulator.figures import FigureTable, read_figures
from mono_build.plan import Selection
from mono_build.store.diff import Change, Counted, LaunchDiff, diff
from mono_runtime.canonical import Json
from mono_runtime.index import Index
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader, parse_json

# Digests are cut to this many characters in the text form; --json has them whole.
_SHORT = 19


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@selection_options
@counts_option
@json_option
def command(a: str, b: str, selection: Selection, counts: Path | None, as_json: bool) -> int:
    """Compare two builds: launches, inputs, plans, code objects, resource figures and counts.

    A and B are stores, or earlier builds in them: DIR@sha256:... with the index digest that a build
    printed. Exit code 0 when the selected launches are equal, 1 when they differ.
    """
    output = Output(json=as_json)
    table = read_figures(counts) if counts else None
    found = diff(_opened(a, selection), _opened(b, selection), _counted(table))
    for key in found.only_a:
        output.text(f"only in {a}: {named(key)}")
    for key in found.only_b:
        output.text(f"only in {b}: {named(key)}")
    for launch in found.changed:
        _show(output, launch)
    output.text(
        f"{amount(found.same, 'launch')} equal, {len(found.changed)} changed,"
        f" {len(found.only_a)} only in {a}, {len(found.only_b)} only in {b}"
    )
    output.data(found.to_json())
    return 0 if found.equal else 1


def _counted(table: FigureTable | None) -> Counted | None:
    if table is None:
        return None

    def counted(key: LaunchKey, code_objects: tuple[str, ...]) -> Mapping[str, Json] | None:
        found = table.find(key, code_objects)
        return None if found is None else found.flat()

    return counted


def _opened(text: str, selection: Selection) -> StoreReader:
    directory, _, digest = text.partition("@")
    reader = StoreReader.open(Path(directory).absolute())
    index = reader.index
    if digest:
        index = Index.from_json(parse_json(reader.blob(digest), text))
    entries = tuple(e for e in index.entries if selection.accepts(e.key))
    return replace(reader, index=Index(entries))


def _show(output: Output, launch: LaunchDiff) -> None:
    output.text(named(launch.key))
    if launch.code_objects is None:
        output.text("  same code objects")
    else:
        word = (
            "same machine code, other symbols" if launch.same_machine_code else "other machine code"
        )
        output.text(f"  {word}")
    for change in (*launch.inputs, *launch.plan, *launch.resources, *launch.counts):
        output.text(f"  {_line(change)}")


def _line(change: Change) -> str:
    return f"{change.section} {change.name}: {_value(change.a)} -> {_value(change.b)}"


def _value(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 40 else text[:_SHORT] + "..."
