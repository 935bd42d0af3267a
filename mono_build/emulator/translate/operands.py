"""Operands of vector instructions: modifiers, DPP, SDWA, halves, and how a result is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mono_build.emulator.instruction import LITERAL, VCC, Instruction, Operand
from mono_build.emulator.translate.context import Context, NotModelled

_SOURCES = ("src0", "vsrc0", "src1", "vsrc1", "src2")
_WHOLE = 6  # SDWA selection of all 32 bits
_ROW = 16
_NO_LANE = 64


@dataclass(frozen=True, slots=True)
class Kinds:
    """Type suffixes (``f32``, ``u16`` ...) of the result and of each source."""

    result: str
    sources: tuple[str, ...]


def kinds_of(mnemonic: str) -> Kinds:
    """What types a mnemonic's suffixes name."""
    parts = [p for p in mnemonic.split("_") if p[:1] in "fiub" and p[1:].isdigit()]
    last = parts[-1] if parts else "b32"
    if mnemonic.startswith("v_ldexp"):
        return Kinds(last, (last, "i32"))
    if mnemonic.startswith("v_cmp_class"):
        return Kinds(last, (last, "b32"))
    if mnemonic.startswith("v_cvt") and len(parts) > 1:
        return Kinds(parts[0], (last,) * 3)
    return Kinds(last, (last,) * 3)


def sources_of(i: Instruction) -> list[Operand]:
    """The source operands, in order; the literal of v_fmaak and v_fmamk is not among them."""
    # SDWA and DPP encodings list the first source behind the second.
    return sorted((o for o in i.operands if o.field in _SOURCES), key=lambda o: o.field[-1])


@dataclass
class Form:
    """One vector instruction's sources as rows, and how its result has to be written.

    Attributes:
        rows: C for the rows of each source.
        target: C for the result's rows.
        mask: C for the lanes to write.
    """

    instruction: Instruction
    ctx: Context
    kinds: Kinds
    rows: list[str]
    target: str
    mask: str

    def write(self, compute: Callable[[str, str], None]) -> None:
        """Emit the instruction: ``compute(target, mask)`` adds the call that computes it."""
        i, ctx = self.instruction, self.ctx
        omod, clamp = i.modifier("omod"), i.modifier("clmp")
        partial = "SDWA" in i.encoding and i.modifier("dst_sel") != _WHOLE
        half = _writes_half(i, self.kinds)
        if not (omod or clamp or partial or half):
            compute(self.target, self.mask)
            return
        wide = 2 if self.kinds.result.endswith("64") else 1
        place = ctx.temporary(wide)
        compute(place, ctx.tables.constant(0xFFFFFFFF))
        if omod or clamp:
            if self.kinds.result not in ("f32", "f64"):
                raise NotModelled(f"output modifiers on {self.kinds.result}")
            ctx.line(f"finish_{self.kinds.result}({place}, {omod}, {clamp});")
        if partial:
            selection = f"{i.modifier('dst_sel')}, {i.modifier('dst_unused')}"
            ctx.line(f"sdwa_result({self.target}, {place}, {selection}, {self.mask});")
        elif half:
            high = i.modifier("opsel") >> 3 & 1
            ctx.line(f"merge_half({self.target}, {place}, {high}, {self.mask});")
        else:
            ctx.line(f"move({self.target}, {place}, {self.mask}, {wide});")


# 16-bit instructions that leave the other half of their result alone, also without op_sel (LLVM's list
# of gfx9 instructions that clear it does not have them).
_KEEP_HALF = frozenset(("v_mad_u16", "v_mad_i16", "v_mad_f16", "v_fma_f16", "v_bitop3_b16"))


def _writes_half(i: Instruction, kinds: Kinds) -> bool:
    if not i.encoding.startswith("VOP3") or not kinds.result.endswith("16"):
        return False
    return i.mnemonic in _KEEP_HALF or bool(i.modifier("opsel") >> 3 & 1)


def form(
    i: Instruction,
    ctx: Context,
    *,
    kinds: Kinds | None = None,
    sources: Sequence[Operand] | None = None,
    has_modifiers: bool = True,
) -> Form:
    """Prepare the operands of a vector instruction.

    ``has_modifiers`` False leaves the fields omod, abs and neg to the emitter (they mean other things).
    """
    kinds = kinds or kinds_of(i.mnemonic)
    target = i.operand("vdst")
    mask = "w->m"
    rows = []
    for number, operand in enumerate(sources if sources is not None else sources_of(i)):
        kind = kinds.sources[number] if number < len(kinds.sources) else "b32"
        row = ctx.rows(operand, i, kind)
        if number == 0 and i.encoding.endswith("DPP16"):
            row, mask = _dpp(i, ctx, operand, row)
        if "SDWA" in i.encoding and number < 2:
            row = _selected(i, ctx, number, row)
        if has_modifiers:
            row = _half(i, ctx, number, kind, row)
            row = _signs(i, ctx, number, kind, row)
        rows.append(row)
    place = ctx.row(target.code) if target is not None and target.is_vector else ""
    return Form(i, ctx, kinds, rows, place, mask)


def _half(i: Instruction, ctx: Context, number: int, kind: str, row: str) -> str:
    if not kind.endswith("16") or not i.encoding.startswith("VOP3"):
        return row
    if not i.modifier("opsel") >> number & 1:
        return row
    place = ctx.temporary()
    ctx.line(f"upper_half({place}, {row});")
    return place


def _signs(i: Instruction, ctx: Context, number: int, kind: str, row: str) -> str:
    if i.encoding.startswith("VOP3"):
        absolute = i.modifier("abs") >> number & 1
        negative = i.modifier("neg") >> number & 1
    else:
        absolute = i.modifier(f"src{number}_abs")
        negative = i.modifier(f"src{number}_neg")
    if not (absolute or negative):
        return row
    if i.mnemonic.startswith("v_cndmask"):
        kind = "f32"
    if kind not in ("f16", "f32", "f64"):
        raise NotModelled(f"sign modifiers on {kind}")
    place = ctx.temporary(2 if kind == "f64" else 1)
    ctx.line(f"modify_{kind}({place}, {row}, {absolute}, {negative});")
    return place


def _selected(i: Instruction, ctx: Context, number: int, row: str) -> str:
    select, extend = i.modifier(f"src{number}_sel"), i.modifier(f"src{number}_sext")
    if select == _WHOLE:
        return row
    place = ctx.temporary()
    ctx.line(f"sdwa_source({place}, {row}, {select}, {extend});")
    return place


def _dpp(i: Instruction, ctx: Context, operand: Operand, row: str) -> tuple[str, str]:
    if operand.bits >= 64:
        raise NotModelled("DPP on 64 bits")
    place, mask = ctx.temporary(), ctx.temporary()
    source = ctx.tables.pattern(tuple(dpp_sources(i.modifier("dpp"))))
    rows, banks = i.modifier("row_mask"), i.modifier("bank_mask")
    lanes = tuple(
        0xFFFFFFFF if rows >> (n // _ROW) & 1 and banks >> (n % _ROW // 4) & 1 else 0
        for n in range(64)
    )
    enabled = ctx.tables.pattern(lanes)
    zero = i.modifier("bc")
    ctx.line(f"dpp({place}, {mask}, {row}, {source}, {enabled}, w->m, {zero});")
    return place, mask


def dpp_sources(control: int) -> list[int]:
    """Which lane each lane reads (64: none) under a DPP control (CDNA3 ISA, "DPP", table of DPP_CTRL)."""
    lanes = range(64)
    if control <= 0xFF:
        return [n & ~3 | control >> (2 * (n & 3)) & 3 for n in lanes]
    shift, group = control & 15, control & ~15
    if group == 0x100 and shift:  # row_shl
        return [n + shift if n % _ROW + shift < _ROW else _NO_LANE for n in lanes]
    if group == 0x110 and shift:  # row_shr
        return [n - shift if n % _ROW >= shift else _NO_LANE for n in lanes]
    if group == 0x120 and shift:  # row_ror
        return [n - n % _ROW + (n - shift) % _ROW for n in lanes]
    if group == 0x150:  # row_newbcast
        return [n - n % _ROW + shift for n in lanes]
    whole: Callable[[int], int] | None = {
        0x130: lambda n: n + 1,  # wave_shl:1
        0x134: lambda n: (n + 1) % 64,  # wave_rol:1
        0x138: lambda n: n - 1 if n else _NO_LANE,  # wave_shr:1
        0x13C: lambda n: (n - 1) % 64,  # wave_ror:1
        0x140: lambda n: n ^ 15,  # row_mirror
        0x141: lambda n: n ^ 7,  # row_half_mirror
        0x142: lambda n: n - n % _ROW - 1 if n >= _ROW else _NO_LANE,  # row_bcast:15
        0x143: lambda n: 31 if n >= 32 else _NO_LANE,  # row_bcast:31
    }.get(control)
    if whole is None:
        raise NotModelled(f"DPP control 0x{control:x}")
    return [whole(n) for n in lanes]


def mask_target(i: Instruction) -> int:
    """The scalar pair that a comparison or a carry goes to."""
    operand = i.operand("sdst")
    if i.encoding.startswith("VOP3"):
        operand = operand or i.operand("vdst")
    elif not i.modifier("sd"):
        return VCC
    if operand is None or operand.is_vector:
        raise NotModelled("no scalar result")
    return operand.code


def literal_row(i: Instruction, ctx: Context) -> str:
    """The row of the constant of v_fmaak and v_fmamk."""
    return ctx.rows(Operand("literal", LITERAL, 32), i, "f32")
