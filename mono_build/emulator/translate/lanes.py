"""Moves between lanes, and between vector and scalar registers."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction, Operand
from mono_build.emulator.translate.context import Context
from mono_build.emulator.translate.operands import form, sources_of
from mono_build.emulator.translate.registry import Emitter


def _target(i: Instruction) -> Operand:
    return i.operands[0]


def _read_first(i: Instruction, ctx: Context) -> None:
    """The first active lane; lane 0 when none is."""
    (source,) = sources_of(i)
    if not source.is_vector:
        ctx.set_scalar(_target(i), ctx.scalar(source, i))
        return
    lane = "exec_of(w) ? __builtin_ctzll(exec_of(w)) : 0"
    ctx.set_scalar(_target(i), f"{ctx.row(source.code)}[{lane}]")


def _read(i: Instruction, ctx: Context) -> None:
    source, lane = sources_of(i)
    if not source.is_vector:
        ctx.set_scalar(_target(i), ctx.scalar(source, i))
        return
    ctx.set_scalar(_target(i), f"{ctx.row(source.code)}[{ctx.scalar(lane, i)} & 63]")


def _write(i: Instruction, ctx: Context) -> None:
    """Ignores EXEC."""
    value, lane = sources_of(i)
    row = ctx.row(_target(i).code)
    ctx.line(f"{row}[{ctx.scalar(lane, i)} & 63] = {ctx.scalar(value, i)};")


def _swap(i: Instruction, ctx: Context) -> None:
    prepared = form(i, ctx)
    ctx.line(f"{i.mnemonic}({prepared.target}, {prepared.rows[0]}, {prepared.mask});")


def _accumulator(i: Instruction, ctx: Context) -> None:
    """v_accvgpr_read, v_accvgpr_write, v_accvgpr_mov: moves."""
    prepared = form(i, ctx)
    ctx.line(f"v_mov_b32({prepared.target}, {prepared.rows[0]}, NULL, NULL, {prepared.mask});")


EMITTERS: dict[str, Emitter] = {
    "v_readfirstlane_b32": _read_first,
    "v_readlane_b32": _read,
    "v_writelane_b32": _write,
    "v_permlane16_swap_b32": _swap,
    "v_permlane32_swap_b32": _swap,
    "v_swap_b32": _swap,
    "v_accvgpr_read": _accumulator,
    "v_accvgpr_write": _accumulator,
    "v_accvgpr_mov_b32": _accumulator,
}
