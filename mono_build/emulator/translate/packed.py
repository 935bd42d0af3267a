"""Packed instructions: two f32 in a register pair, or two 16-bit integers in a register."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.operands import sources_of
from mono_build.emulator.translate.registry import Emitter, names

_FLOATS = {"v_pk_add_f32": 0, "v_pk_mul_f32": 1, "v_pk_fma_f32": 2, "v_pk_mov_b32": 3}
_INTEGERS = names(
    "v_pk_add_u16 v_pk_sub_u16 v_pk_mul_lo_u16 v_pk_mad_u16 v_pk_lshlrev_b16 v_pk_lshrrev_b16"
    " v_pk_ashrrev_i16 v_pk_min_u16 v_pk_max_u16 v_pk_min_i16 v_pk_max_i16"
)
# Addition and subtraction of two's complement are the same for both signs.
_SAME = {
    "v_pk_add_i16": "v_pk_add_u16",
    "v_pk_sub_i16": "v_pk_sub_u16",
    "v_pk_mad_i16": "v_pk_mad_u16",
}


def high_selection(i: Instruction) -> int:
    """op_sel_hi of the three sources: bit k takes source k's upper part for the upper result."""
    return i.modifier("opsel_hi") | i.modifier("opsel_hi2") << 2


def _floats(i: Instruction, ctx: Context) -> None:
    if i.modifier("clmp"):
        raise NotModelled("clamp on packed floats")
    target = ctx.row(i.operands[0].code)
    rows = [ctx.rows(o, i, "pk") for o in sources_of(i)]
    if i.mnemonic == "v_pk_mov_b32":
        # The low result is source 0's chosen register, the high one source 1's: op_sel chooses both.
        low = high = i.modifier("opsel")
    else:
        low, high = i.modifier("opsel"), high_selection(i)
    arguments = ", ".join([*rows, "NULL"][:3])
    signs = f"{i.modifier('neg')}, {i.modifier('neg_hi')}"
    operation = _FLOATS[i.mnemonic]
    ctx.line(f"pk_f32({target}, {arguments}, w->m, {operation}, {low}, {high}, {signs});")


def _integers(i: Instruction, ctx: Context) -> None:
    if i.modifier("clmp") or i.modifier("neg") or i.modifier("neg_hi"):
        raise NotModelled("modifiers on packed integers")
    low, high = i.modifier("opsel"), high_selection(i)
    rows = []
    for number, operand in enumerate(sources_of(i)):
        # An inline integer is 32 bits wide: its upper half is the sign.
        row = ctx.rows(operand, i, "b32")
        if (low >> number & 1, high >> number & 1) != (0, 1):
            place = ctx.temporary()
            ctx.line(f"choose_halves({place}, {row}, {low >> number & 1}, {high >> number & 1});")
            row = place
        rows.append(row)
    arguments = ", ".join([*rows, "NULL", "NULL"][:3])
    function = _SAME.get(i.mnemonic, i.mnemonic)
    ctx.line(f"{function}({ctx.row(i.operands[0].code)}, {arguments}, w->m);")


EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_FLOATS, _floats),
    **dict.fromkeys((*_INTEGERS, *_SAME), _integers),
}
