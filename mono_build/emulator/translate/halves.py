"""Arithmetic on f16: in the low half of a register, or packed in both."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.operands import form, sources_of
from mono_build.emulator.translate.packed import high_selection
from mono_build.emulator.translate.registry import Emitter

_OVERFLOW = "(int)(w->mode >> 23 & 1)"
_SINGLE = [
    "v_add_f16",
    "v_sub_f16",
    "v_subrev_f16",
    "v_mul_f16",
    "v_fma_f16",
    "v_min_f16",
    "v_max_f16",
]
_PACKED = ["v_pk_add_f16", "v_pk_mul_f16", "v_pk_fma_f16", "v_pk_min_f16", "v_pk_max_f16"]


def _arguments(rows: list[str]) -> str:
    return ", ".join([*rows, "NULL"][:3])


def _single(i: Instruction, ctx: Context) -> None:
    prepared = form(i, ctx)
    rows = _arguments(prepared.rows)
    prepared.write(lambda d, m: ctx.line(f"{i.mnemonic}({d}, {rows}, {m}, {_OVERFLOW});"))


def _packed(i: Instruction, ctx: Context) -> None:
    if i.modifier("clmp"):
        raise NotModelled("clamp on packed f16")
    low, high = i.modifier("opsel"), high_selection(i)
    negative_low, negative_high = i.modifier("neg"), i.modifier("neg_hi")
    rows = []
    for number, operand in enumerate(sources_of(i)):
        row = ctx.rows(operand, i, "f16")
        picked = [mask >> number & 1 for mask in (low, high, negative_low, negative_high)]
        if picked != [0, 1, 0, 0]:
            place = ctx.temporary()
            ctx.line(f"pick_halves({place}, {row}, {', '.join(map(str, picked))});")
            row = place
        rows.append(row)
    target = ctx.row(i.operands[0].code)
    ctx.line(f"{i.mnemonic}({target}, {_arguments(rows)}, w->m, {_OVERFLOW});")


EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_SINGLE, _single),
    **dict.fromkeys(_PACKED, _packed),
}
