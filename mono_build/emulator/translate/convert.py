"""Conversions between number formats."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.operands import Kinds, form
from mono_build.emulator.translate.registry import Emitter

_OVERFLOW = "(int)(w->mode >> 23 & 1)"
_SCALED = "v_cvt_scalef32_pk_"
_WIDE = ("bf16", "f16", "f32")


def _format(name: str, arch: str) -> str:
    """The runtime's name of an 8- or 4-bit format: FNUZ on gfx942, OCP from gfx950 on."""
    formats = {"fp8": "E4M3", "bf8": "E5M2", "fp4": "E2M1"}
    if name not in formats:
        raise NotModelled(f"format {name}")
    return formats[name] + ("_FNUZ" if arch == "gfx942" and name != "fp4" else "")


def _pair(i: Instruction, ctx: Context) -> None:
    """Two f32 to one row of two 16-bit values."""
    prepared = form(i, ctx, kinds=Kinds("b32", ("f32", "f32")))
    first, second = prepared.rows
    more = "" if i.mnemonic.startswith("v_cvt_pkrtz") else f", {_OVERFLOW}"
    prepared.write(lambda d, m: ctx.line(f"{i.mnemonic}({d}, {first}, {second}, {m}{more});"))


def _integers(i: Instruction, ctx: Context) -> None:
    """Small integers: no floats to modify among the sources."""
    prepared = form(i, ctx, kinds=Kinds("b32", ("b32", "b32")))
    rows = ", ".join(prepared.rows)
    prepared.write(lambda d, m: ctx.line(f"{i.mnemonic}({d}, {rows}, {m});"))


def _single(i: Instruction, ctx: Context) -> None:
    prepared = form(i, ctx)
    (source,) = prepared.rows
    more = f", {_OVERFLOW}" if i.mnemonic == "v_cvt_f16_f32" else ""
    prepared.write(lambda d, m: ctx.line(f"{i.mnemonic}({d}, {source}, {m}{more});"))


def _part(i: Instruction, *, is_byte: bool) -> int:
    """Which byte or half the SDWA selection of the source names."""
    if "SDWA" not in i.encoding:
        return 0
    select = i.modifier("src0_sel")
    if i.modifier("dst_sel") != 6 or i.modifier("src0_sext"):
        raise NotModelled("SDWA form")
    if is_byte:
        return select if select < 4 else 0
    return 1 if select == 5 else 0


def _from_small(i: Instruction, ctx: Context) -> None:
    """v_cvt_f32_fp8, v_cvt_pk_f32_fp8: the SDWA selection is part of the instruction."""
    source, target = i.operands[-1], ctx.row(i.operands[0].code)
    if i.encoding.endswith("DPP16") or i.modifier("clmp") or i.modifier("omod"):
        raise NotModelled("modifiers on a conversion from 8 bits")
    rows = ctx.rows(source, i)
    format_ = _format(i.mnemonic.rsplit("_", 1)[1], ctx.arch)
    if "_pk_" in i.mnemonic:
        part = _part(i, is_byte=False)
        if i.encoding.startswith("VOP3"):
            part = i.modifier("opsel") & 1
        ctx.line(f"cvt_pk_f32_small_rows({target}, {rows}, w->m, {format_}, {part});")
    else:
        part = _part(i, is_byte=True)
        if i.encoding.startswith("VOP3"):
            part = i.modifier("opsel") & 3
        ctx.line(f"cvt_f32_small({target}, {rows}, w->m, {format_}, {part});")


def _to_small(i: Instruction, ctx: Context) -> None:
    """v_cvt_pk_fp8_f32: op_sel bit 3 chooses the half that is written; the other one stays."""
    prepared = form(i, ctx, kinds=Kinds("b32", ("f32", "f32")))
    first, second = prepared.rows
    format_ = _format(i.mnemonic.split("_")[3], ctx.arch)
    high = i.modifier("opsel") >> 3 & 1
    rows = f"{prepared.target}, {first}, {second}, {prepared.mask}"
    ctx.line(f"cvt_pk_small_f32_rows({rows}, {format_}, {high}, {_OVERFLOW});")


def _scaled(i: Instruction, ctx: Context) -> None:
    """v_cvt_scalef32_pk_TO_FROM; op_sel chooses the part of the source or of the result."""
    to, source = i.mnemonic.removeprefix(_SCALED).split("_")
    opsel = i.modifier("opsel")
    prepared = form(i, ctx, kinds=Kinds("b32", ("f32",) * 3 if source == "f32" else ("b32",) * 3))
    rows = ", ".join([prepared.target, *prepared.rows, prepared.mask])
    if to in _WIDE:
        format_ = _format(source, ctx.arch)
        part = opsel & 3 if source == "fp4" else opsel & 1
        more = "" if to == "f32" else f", {_OVERFLOW}"
        ctx.line(f"cvt_scaled_{to}_small({rows}, {format_}, {part}{more});")
    else:
        format_ = _format(to, ctx.arch)
        part = opsel >> 2 & 3 if to == "fp4" else opsel >> 3 & 1
        ctx.line(f"cvt_scaled_small_{source}({rows}, {format_}, {part}, {_OVERFLOW});")


EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(("v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32", "v_cvt_pkrtz_f16_f32"), _pair),
    **dict.fromkeys(("v_cvt_off_f32_i4", "v_cvt_pk_i16_i32", "v_cvt_pk_u16_u32"), _integers),
    **dict.fromkeys(("v_cvt_f16_f32", "v_cvt_f32_f16", "v_cvt_f32_bf16"), _single),
    **{f"v_cvt_{p}f32_{f}": _from_small for p in ("", "pk_") for f in ("fp8", "bf8")},
    **{f"v_cvt_pk_{f}_f32": _to_small for f in ("fp8", "bf8")},
    **{f"{_SCALED}{w}_{f}": _scaled for w in _WIDE for f in ("fp8", "bf8", "fp4")},
    **{f"{_SCALED}{f}_{w}": _scaled for w in _WIDE for f in ("fp8", "bf8", "fp4")},
}
