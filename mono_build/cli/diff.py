"""``mono-build diff``: which launches of two stores differ, in what, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mono_build.cli.options import json_option, selection_options
from mono_build.cli.output import Output, amount, named
from mono_build.plan import Selection
from mono_build.store.diff import Change, LaunchDiff, diff
from mono_runtime.index import Index
from mono_runtime.oci import StoreReader, parse_json

# Digests are cut to this many characters in the text form; --json has them whole.
_SHORT = 19


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@selection_options
@json_option
def command(a: str, b: str, selection: Selection, as_json: bool) -> int:
    """Compare two builds: launches, inputs, plans, code objects and resource figures.

    A and B are stores, or earlier builds in them: DIR@sha256:... with the index digest that a build
    printed. Exit code 0 when the selected launches are equal, 1 when they differ.
    """
    output = Output(json=as_json)
    found = diff(_opened(a, selection), _opened(b, selection))
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
    for change in (*launch.inputs, *launch.plan, *launch.resources):
        output.text(f"  {_line(change)}")


def _line(change: Change) -> str:
    return f"{change.section} {change.name}: {_value(change.a)} -> {_value(change.b)}"


def _value(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 40 else text[:_SHORT] + "..."
