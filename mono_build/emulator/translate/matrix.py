"""Matrix instructions (MFMA)."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.packed import high_selection
from mono_build.emulator.translate.registry import Emitter, names

_SIX_BITS = (2, 3)
_SMALL = tuple(f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8"))
_PLAIN = names(
    "16x16x4_f32 32x32x2_f32 16x16x16_f16 32x32x8_f16 16x16x16_bf16 32x32x8_bf16"
    " 16x16x32_f16 32x32x16_f16 16x16x32_bf16 32x32x16_bf16"
)


def _operands(i: Instruction, ctx: Context) -> str:
    """C for the arguments d, a, b, c, splat."""
    found = {o.field: o for o in i.operands}
    target, first, second, third = (found[n] for n in ("vdst", "src0", "src1", "src2"))
    if third.is_vector:
        addend = f"&{ctx.row(third.code)}, 0"
    else:
        value = ctx.constant(third, i, "f32") if third.bits < 64 else None
        if value is None:
            value = ctx.constant(type(third)(third.field, third.code, 32), i, "f32")
        if value is None:
            raise NotModelled("a scalar register as addend")
        addend = f"NULL, 0x{value:x}u"
    return f"&{ctx.row(target.code)}, &{ctx.row(first.code)}, &{ctx.row(second.code)}, {addend}"


def _check_formats(i: Instruction) -> str:
    cbsz, blgp = i.modifier("cbsz"), i.modifier("blgp")
    if cbsz in _SIX_BITS or blgp in _SIX_BITS or cbsz > 4 or blgp > 4:
        raise NotModelled("6-bit operands")
    return f"{cbsz}, {blgp}"


def _plain(i: Instruction, ctx: Context) -> None:
    if i.modifier("cbsz") or i.modifier("abid") or i.modifier("blgp"):
        raise NotModelled("broadcasts between blocks")
    fnuz = "_fnuz" if ctx.arch == "gfx942" and i.mnemonic.endswith(_SMALL) else ""
    ctx.line(f"{i.mnemonic}{fnuz}({_operands(i, ctx)});")


def _mixed(i: Instruction, ctx: Context) -> None:
    """v_mfma_*_f8f6f4 without scales."""
    formats = _check_formats(i)
    ctx.line(f"{i.mnemonic}({_operands(i, ctx)}, {formats});")


def _scaled(i: Instruction, ctx: Context) -> None:
    """v_mfma_scale_*: op_sel and op_sel_hi together choose the byte of each scale."""
    formats = _check_formats(i)
    operands = _operands(i, ctx)
    low, high = i.modifier("opsel"), high_selection(i)
    scales = []
    for number, field in enumerate(("scale_src0", "scale_src1")):
        operand = i.operand(field)
        if operand is None:
            raise NotModelled("no scale operand")
        byte = (low >> number & 1) | (high >> number & 1) << 1
        scales.append(f"{ctx.rows(operand, i)}, {byte}")
    ctx.line(f"{i.mnemonic}({operands}, {formats}, {', '.join(scales)});")


EMITTERS: dict[str, Emitter] = {
    **{f"v_mfma_f32_{n}": _plain for n in _PLAIN},
    **{f"v_mfma_f32_{s}_{f}": _plain for s in ("16x16x32", "32x32x16") for f in _SMALL},
    **{f"v_mfma_f32_{s}_f8f6f4": _mixed for s in ("16x16x128", "32x32x64")},
    **{f"v_mfma_scale_f32_{s}_f8f6f4": _scaled for s in ("16x16x128", "32x32x64")},
}
