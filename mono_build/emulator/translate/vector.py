"""Vector arithmetic, comparisons, carries and selection."""

from __future__ import annotations

from mono_build.emulator.instruction import EXEC, VCC, Instruction, Operand
from mono_build.emulator.translate.context import Context
from mono_build.emulator.translate.operands import (
    Form,
    form,
    kinds_of,
    literal_row,
    mask_target,
    sources_of,
)
from mono_build.emulator.translate.registry import Emitter, names

# Instructions whose runtime function has their name and the common signature.
_PLAIN = names("""
v_mov_b32 v_mov_b64 v_not_b32 v_bfrev_b32 v_ffbh_u32 v_ffbl_b32 v_ffbh_i32
v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 v_mul_legacy_f32 v_min_f32 v_max_f32 v_fma_f32
v_min3_f32 v_max3_f32 v_med3_f32 v_minimum3_f32 v_maximum3_f32
v_fract_f32 v_trunc_f32 v_ceil_f32 v_rndne_f32 v_floor_f32
v_rcp_f32 v_rcp_iflag_f32 v_rsq_f32 v_sqrt_f32 v_exp_f32 v_log_f32
v_ldexp_f32 v_frexp_exp_i32_f32 v_frexp_mant_f32
v_cvt_f32_i32 v_cvt_f32_u32 v_cvt_i32_f32 v_cvt_u32_f32 v_cvt_rpi_i32_f32 v_cvt_flr_i32_f32
v_cvt_f32_ubyte0 v_cvt_f32_ubyte1 v_cvt_f32_ubyte2 v_cvt_f32_ubyte3
v_div_fixup_f32 v_add_f64 v_mul_f64 v_fma_f64 v_min_f64 v_max_f64
v_cvt_f64_f32 v_cvt_f32_f64 v_cvt_f64_i32 v_cvt_f64_u32 v_cvt_i32_f64 v_cvt_u32_f64
v_add_u32 v_sub_u32 v_subrev_u32 v_add_i32 v_sub_i32 v_mul_lo_u32 v_mul_hi_u32 v_mul_hi_i32
v_mul_i32_i24 v_mul_u32_u24 v_mul_hi_i32_i24 v_mul_hi_u32_u24 v_mad_i32_i24 v_mad_u32_u24
v_min_i32 v_max_i32 v_min_u32 v_max_u32 v_min3_i32 v_max3_i32 v_med3_i32
v_min3_u32 v_max3_u32 v_med3_u32 v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32
v_lshlrev_b64 v_lshrrev_b64 v_ashrrev_i64 v_and_b32 v_or_b32 v_xor_b32 v_xnor_b32
v_bfe_u32 v_bfe_i32 v_bfi_b32 v_bfm_b32 v_bcnt_u32_b32 v_alignbit_b32 v_alignbyte_b32 v_perm_b32
v_add3_u32 v_add_lshl_u32 v_lshl_add_u32 v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_xad_u32
v_lshl_add_u64 v_sad_u8 v_sad_u32 v_add_u16 v_sub_u16 v_subrev_u16 v_mul_lo_u16 v_mad_u16
v_mad_legacy_u16 v_lshlrev_b16 v_lshrrev_b16 v_ashrrev_i16
v_min_u16 v_max_u16 v_min_i16 v_max_i16 v_mbcnt_lo_u32_b32 v_mbcnt_hi_u32_b32
""")
_CARRY_OUT = names(
    "v_add_co_u32 v_sub_co_u32 v_subrev_co_u32 v_mad_u64_u32 v_mad_i64_i32 v_div_scale_f32"
)
_CARRY_IN = ("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
_ORDERED = ("lt", "eq", "le", "gt", "ge")
_FLOAT_RELATIONS = (*_ORDERED, "lg", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt")
_INTEGERS = ("i16", "u16", "i32", "u32", "i64", "u64")
_FLOATS = ("f32", "f64")


def _arguments(rows: list[str]) -> str:
    return ", ".join([*rows, "NULL", "NULL", "NULL"][:3])


def _plain(i: Instruction, ctx: Context) -> None:
    prepared = form(i, ctx)
    _call(prepared, i.mnemonic, prepared.rows)


def _call(prepared: Form, function: str, rows: list[str]) -> None:
    ctx, arguments = prepared.ctx, _arguments(rows)
    prepared.write(lambda d, m: ctx.line(f"{function}({d}, {arguments}, {m});"))


def _accumulating(i: Instruction, ctx: Context) -> None:
    """v_fmac: the result is the third source."""
    prepared = form(i, ctx)
    _call(prepared, "v_fma_f32", [*prepared.rows, prepared.target])


def _with_literal(i: Instruction, ctx: Context) -> None:
    """v_fmaak: a * b + K, v_fmamk: a * K + b."""
    prepared = form(i, ctx)
    first, second = prepared.rows
    constant = literal_row(i, ctx)
    if i.mnemonic.startswith("v_fmaak"):
        _call(prepared, "v_fma_f32", [first, second, constant])
    else:
        _call(prepared, "v_fma_f32", [first, constant, second])


def _select(i: Instruction, ctx: Context) -> None:
    sources = sources_of(i)
    condition = sources[2].code if i.encoding.startswith("VOP3") else VCC
    prepared = form(i, ctx, sources=sources[:2])
    chosen = ctx.mask_rows(condition)
    _call(prepared, "v_cndmask_b32", [*prepared.rows, chosen])


def _carry(i: Instruction, ctx: Context) -> None:
    sources = sources_of(i)
    takes_carry = i.mnemonic in _CARRY_IN
    prepared = form(i, ctx, sources=sources[:2] if takes_carry else sources)
    rows = list(prepared.rows)
    if takes_carry:
        rows.append(ctx.mask_rows(sources[2].code if i.encoding == "VOP3SD" else VCC))
    target = mask_target(i)
    arguments = _arguments(rows)
    ctx.line("{ uint64_t carry;")
    prepared.write(lambda d, m: ctx.line(f"carry = {i.mnemonic}({d}, {arguments}, {m});"))
    ctx.set_mask(target, "carry")
    ctx.line("}")


def _divide(i: Instruction, ctx: Context) -> None:
    """v_div_fmas: the function finds VCC by lane behind its third row."""
    prepared = form(i, ctx)
    place = ctx.temporary(2)
    ctx.line(f"move({place}, {prepared.rows[2]}, NULL, 1);")
    ctx.line(f"expand({place} + LANES, pair(s + VCC));")
    _call(prepared, "v_div_fmas_f32", [*prepared.rows[:2], place])


def _compare(i: Instruction, ctx: Context) -> None:
    name = i.mnemonic.replace("v_cmpx_", "v_cmp_")
    prepared = form(i, ctx, kinds=kinds_of(name))
    target = mask_target(i)
    relation = name.split("_")[2]
    if relation in ("f", "t", "tru"):
        ctx.set_mask(target, "0" if relation == "f" else "~0ull")
    else:
        ctx.set_mask(target, f"{name}({prepared.rows[0]}, {prepared.rows[1]})")
    if name != i.mnemonic:
        ctx.set_scalar(Operand("sdst", EXEC, 64), f"pair(&{ctx.register(target)})")


def _truth_table(i: Instruction, ctx: Context) -> None:
    """v_bitop3: omod, abs and neg together are the table."""
    table = i.modifier("omod") << 6 | i.modifier("abs") << 3 | i.modifier("neg")
    kinds = kinds_of(i.mnemonic)
    prepared = form(i, ctx, has_modifiers=False)
    rows = []
    for number, row in enumerate(prepared.rows):
        if kinds.result == "b16" and i.modifier("opsel") >> number & 1:
            place = ctx.temporary()
            ctx.line(f"upper_half({place}, {row});")
            row = place
        rows.append(row)
    arguments = ", ".join(rows)
    if kinds.result == "b16":
        place = ctx.temporary()
        everywhere = ctx.tables.constant(0xFFFFFFFF)
        ctx.line(f"{i.mnemonic}({place}, {arguments}, {everywhere}, {table});")
        high = i.modifier("opsel") >> 3 & 1
        ctx.line(f"merge_half({prepared.target}, {place}, {high}, {prepared.mask});")
    else:
        ctx.line(f"{i.mnemonic}({prepared.target}, {arguments}, {prepared.mask}, {table});")


def _nothing(i: Instruction, ctx: Context) -> None:
    """v_nop."""


def _comparisons() -> list[str]:
    names = [f"{r}_{t}" for r in (*_ORDERED, "ne", "f", "t") for t in _INTEGERS]
    names += [f"{r}_{t}" for r in (*_FLOAT_RELATIONS, "f", "tru") for t in _FLOATS]
    names.append("class_f32")
    return [f"{stem}_{n}" for stem in ("v_cmp", "v_cmpx") for n in names]


EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_PLAIN, _plain),
    **dict.fromkeys((*_CARRY_OUT, *_CARRY_IN), _carry),
    **dict.fromkeys(_comparisons(), _compare),
    "v_fmac_f32": _accumulating,
    "v_fmaak_f32": _with_literal,
    "v_fmamk_f32": _with_literal,
    "v_cndmask_b32": _select,
    "v_div_fmas_f32": _divide,
    "v_bitop3_b32": _truth_table,
    "v_bitop3_b16": _truth_table,
    "v_nop": _nothing,
}
