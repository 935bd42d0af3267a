"""``mono-build inspect``: everything a store knows of one launch."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mono_build.cli.figures import show_launch
from mono_build.cli.options import (
    counts_option,
    json_option,
    open_store,
    selection_options,
    store_option,
)
from mono_build.cli.output import Output, named, styled
from mono_build.disassembly import disassemble
from mono_build.emulator.figures import LaunchFigures, read_figures
from mono_build.errors import NotFound, UsageError
from mono_build.plan import Selection, emptied_by
from mono_runtime.artefact import Artefact, KernelResources
from mono_runtime.canonical import Json
from mono_runtime.expressions import Arg, Const, Expression, Op
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_plan import Dispatch
from mono_runtime.occupancy import constant_product, workgroups_per_compute_unit
from mono_runtime.oci import StoreReader
from mono_runtime.targets import PRODUCTS, TARGETS

_CANDIDATES = 10
_INFIX = {"add": "+", "sub": "-", "mul": "*", "sdiv": "/", "udiv": "/", "srem": "%", "urem": "%"}


@click.command("inspect")
@click.argument("key", required=False)
@store_option
@selection_options
@click.option("--asm", is_flag=True, help="Disassemble the code object (needs LLVM's tools).")
@counts_option
@json_option
def command(
    key: str | None,
    store: Path | None,
    selection: Selection,
    asm: bool,
    counts: Path | None,
    as_json: bool,
) -> None:
    """Show one launch: key, plan, resources and provenance.

    KEY is the beginning of a key digest as `ls` shows it; without it the options must leave one launch.
    """
    output = Output(json=as_json)
    reader = open_store(store)
    entry = _one(reader, key, selection)
    artefact = reader.artefact(entry.artefact)
    inputs = reader.inputs(artefact.inputs)
    assembly = _assembly(reader, artefact) if asm else {}
    figures = _figures(counts, entry, artefact) if counts else None
    value = _json(reader, entry, artefact, inputs, assembly)
    output.data({**value, "figures": figures and figures.to_json()} if counts else value)
    _show_key(output, reader, entry, artefact)
    for item in artefact.plan.workspace:
        output.text(f"workspace {item.argument} {item.size} B")
    for dispatch in artefact.plan.dispatches:
        _show_dispatch(output, artefact, dispatch)
    if figures is not None:
        show_launch(output, figures)
    elif counts:
        output.text()
        output.text(f"not executed: {counts} has no figures of this code")
    _show_inputs(output, inputs)
    for text in assembly.values():
        output.text(text)


def _one(reader: StoreReader, prefix: str | None, selection: Selection) -> IndexEntry:
    wanted = (prefix or "").removeprefix("sha256:").lower()
    entries = [e for e in reader.index.entries if selection.accepts(e.key)]
    if not entries:
        keys = [e.key for e in reader.index.entries]
        raise NotFound(emptied_by(keys, selection), where=str(reader.path))
    found = [e for e in entries if e.key.digest.removeprefix("sha256:").startswith(wanted)]
    if not found:
        raise NotFound(
            f"no launch has a key that begins with {prefix!r}",
            where=str(reader.path),
            fix="mono-build ls shows the keys",
        )
    if len(found) > 1:
        shown = [
            f"{e.key.digest.removeprefix('sha256:')[:12]}  {named(e.key)}"
            for e in found[:_CANDIDATES]
        ]
        more = [f"and {len(found) - _CANDIDATES} more"] if len(found) > _CANDIDATES else []
        raise UsageError(
            "\n".join([f"{len(found)} launches are meant:", *shown, *more]),
            fix="name one by the beginning of its key",
        )
    return found[0]


def _figures(counts: Path, entry: IndexEntry, artefact: Artefact) -> LaunchFigures | None:
    return read_figures(counts).find(entry.key, [c.digest for c in artefact.code_objects])


def _assembly(reader: StoreReader, artefact: Artefact) -> dict[str, str]:
    return {
        c.digest: disassemble(reader.blob(c.digest), artefact.arch, os.environ)
        for c in artefact.code_objects
    }


def _json(
    reader: StoreReader,
    entry: IndexEntry,
    artefact: Artefact,
    inputs: Inputs,
    assembly: dict[str, str],
) -> Json:
    return {
        "store": str(reader.path),
        "key": entry.key.to_json(),
        "key_digest": entry.key.digest,
        "direct_key": inputs.direct_key(entry.key.digest),
        "artefact_digest": entry.artefact,
        "artefact": artefact.to_json(),
        "inputs": inputs.to_json(),
        "residency": {
            k.symbol: _residency(artefact, k) for c in artefact.code_objects for k in c.kernels
        },
        **({"assembly": assembly} if assembly else {}),
    }


def _residency(artefact: Artefact, kernel: KernelResources) -> Json:
    dispatch = next((d for d in artefact.plan.dispatches if d.symbol == kernel.symbol), None)
    if dispatch is None:
        return None
    threads, lds = constant_product(dispatch.block), constant_product((dispatch.dynamic_lds,))
    if threads is None or lds is None:
        return None
    each = workgroups_per_compute_unit(TARGETS[artefact.arch], kernel, threads, lds)
    rooms = {d.name: each * d.compute_units for d in PRODUCTS.values() if d.arch == artefact.arch}
    return {"workgroups_per_compute_unit": each, "resident_workgroups": rooms}


def _show_key(output: Output, reader: StoreReader, entry: IndexEntry, artefact: Artefact) -> None:
    output.text(styled(named(entry.key), "bold"))
    output.text(f"key       {entry.key.digest}")
    output.text(f"artefact  {entry.artefact}")
    output.text(f"ir        {entry.ir}")
    sharing = [e.key for e in reader.index.entries if e.artefact == entry.artefact and e != entry]
    for key in sharing:
        output.text(f"shared with {named(key)}")
    for code in artefact.code_objects:
        output.text(f"object    {code.digest}  {code.size} B, {code.text_size} B of instructions")
        output.text(f"machine   {code.machine_code}")


def _show_dispatch(output: Output, artefact: Artefact, dispatch: Dispatch) -> None:
    kernels = {k.symbol: k for c in artefact.code_objects for k in c.kernels}
    kernel = kernels[dispatch.symbol]
    grid = ", ".join(_expression(e) for e in dispatch.grid)
    block = ", ".join(_expression(e) for e in dispatch.block)
    output.text()
    output.text(f"dispatch  {dispatch.symbol}")
    output.text(f"  grid ({grid}) block ({block}), {dispatch.kernarg_size} B of kernel arguments")
    output.text(
        f"  VGPR {kernel.vgpr}, AGPR {kernel.agpr}, SGPR {kernel.sgpr}, LDS {kernel.lds} B, scratch"
        f" {kernel.scratch} B, spills {kernel.vgpr_spills} VGPR {kernel.sgpr_spills} SGPR"
    )
    rooms = _residency(artefact, kernel)
    if rooms:
        text = ", ".join(f"{name} {room}" for name, room in rooms["resident_workgroups"].items())
        word = "persistent; " if artefact.plan.persistent else ""
        output.text(f"  {word}workgroups resident at once: {text}")
    rows = [(f"  {a.offset}", a.type, a.name, _expression(a.value)) for a in dispatch.arguments]
    output.table(("  offset", "type", "argument", "value"), rows)


def _show_inputs(output: Output, inputs: Inputs) -> None:
    output.text()
    for label, facts in (("kernels", inputs.kernels), ("helpers", inputs.helpers)):
        output.text(f"{label:9} {' '.join(f'{n}={v}' for n, v in facts)}")
    for tool, facts in inputs.toolchain:
        output.text(f"{tool:9} {' '.join(f'{n}={v}' for n, v in facts)}")
    for name, value in inputs.environment:
        output.text(f"variable  {name}={value}")
    output.text(f"sources   {len(inputs.sources)} files (--json lists them with their digests)")


def _expression(expression: Expression) -> str:
    if isinstance(expression, Const):
        return str(expression.value)
    if isinstance(expression, Arg):
        return expression.name
    return _operation(expression)


def _operation(op: Op) -> str:
    operands = [_expression(e) for e in op.operands]
    if op.name in _INFIX:
        return f"({operands[0]} {_INFIX[op.name]} {operands[1]})"
    return f"{op.name}({', '.join(operands)})"
