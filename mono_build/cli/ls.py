"""``mono-build ls``: what a store holds."""

from __future__ import annotations

from pathlib import Path

import click

from mono_build.cli.options import json_option, open_store, selection_options, store_option
from mono_build.cli.output import Output, amount, named, size
from mono_build.errors import NotFound
from mono_build.plan import Selection, emptied_by
from mono_runtime.artefact import Artefact
from mono_runtime.oci import StoreReader


@click.command("ls")
@store_option
@selection_options
@json_option
def command(store: Path | None, selection: Selection, as_json: bool) -> None:
    """List the launches of a store with their code objects and resource figures."""
    output = Output(json=as_json)
    reader = open_store(store)
    entries = [e for e in reader.index.entries if selection.accepts(e.key)]
    if reader.index.entries and not entries:
        keys = [e.key for e in reader.index.entries]
        raise NotFound(emptied_by(keys, selection), where=str(reader.path))
    artefacts = {digest: reader.artefact(digest) for digest in {e.artefact for e in entries}}
    objects = {c.digest: c for a in artefacts.values() for c in a.code_objects}
    rows = []
    for entry in entries:
        first = artefacts[entry.artefact].code_objects[0]
        kernel = max(first.kernels, key=lambda k: k.vgpr)
        launch, _, build = named(entry.key).removeprefix(f"{entry.key.family}/").partition(" ")
        rows.append(
            (
                entry.key.digest.removeprefix("sha256:")[:12],
                entry.key.family,
                launch,
                build,
                first.digest.removeprefix("sha256:")[:12],
                first.size,
                kernel.vgpr,
                kernel.lds,
            )
        )
    output.table(
        ("key", "family", "launch", "architecture and build key", "object", "bytes", "VGPR", "LDS"),
        rows,
    )
    total = sum(c.size for c in objects.values())
    codes = len({c.machine_code for c in objects.values()})
    output.text(
        f"{amount(len(entries), 'launch')}, {amount(len(objects), 'code object')}"
        f" ({codes} distinct machine codes), {size(total)}, index {reader.index_digest}"
    )
    output.data(_json(reader, artefacts, selection))


def _json(reader: StoreReader, artefacts: dict[str, Artefact], selection: Selection) -> object:
    return {
        "store": str(reader.path),
        "index_digest": reader.index_digest,
        "launches": [
            {
                "key": e.key.to_json(),
                "key_digest": e.key.digest,
                "artefact": e.artefact,
                "ir": e.ir,
                "code_objects": artefacts[e.artefact].to_json()["code_objects"],
            }
            for e in reader.index.entries
            if selection.accepts(e.key)
        ],
    }
