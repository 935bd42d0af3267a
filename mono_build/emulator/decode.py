"""Machine code to `Instruction`s, by the instruction tables of the package ``tinygrad``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from mono_build.emulator.instruction import AGPR, LITERAL, VGPR, Instruction, Operand
from mono_build.errors import ToolchainError

# The first word's upper half of v_mfma_scale_*: only then two instructions form one of 16 bytes
# (CDNA4 ISA, "VOP3PX2"). The table of the wheel would also accept an unscaled MFMA.
_SCALED_PREFIX = 0xD3AC
_SDWA = 249
_DPP = 250
# Operands that lie in accumulation registers by the instruction itself, not by bits of the encoding
# (CDNA3 ISA, V_ACCVGPR_READ, V_ACCVGPR_WRITE and V_ACCVGPR_MOV_B32).
_ACCUMULATION = {
    "v_accvgpr_read": ("src0",),
    "v_accvgpr_write": ("vdst",),
    "v_accvgpr_mov_b32": ("vdst", "src0"),
}
# Source operands of a scaled MFMA that the wheel's table gives as plain bits.
_SCALES = ("scale_src0", "scale_src1")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    mask: int
    first: int | None  # number of its first register in the source encoding; None: a modifier
    scale: int


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    words: int
    opcode: _Field
    names: Mapping[int, str]
    fields: tuple[_Field, ...]
    widths: Mapping[int, Mapping[str, int]]


def decode(text: bytes, address: int) -> tuple[Instruction, ...]:
    """Every instruction of ``text``, which lies at ``address``.

    A word that no table has becomes an instruction of encoding ``UNKNOWN``; decoding goes on behind it.

    Raises:
        ToolchainError: the package ``tinygrad`` is not installed, or has no such tables.
    """
    words = struct.unpack(f"<{len(text) // 4}I", text[: len(text) // 4 * 4])
    formats = _formats()
    found: list[Instruction] = []
    position = 0
    while position < len(words):
        instruction = _decode_one(words, position, address + 4 * position, formats)
        found.append(instruction)
        position += len(instruction.words)
    return tuple(found)


def _decode_one(
    words: tuple[int, ...], at: int, address: int, formats: Mapping[str, _Format]
) -> Instruction:
    word = words[at]
    for name in _candidates(word):
        form = formats.get(name)
        if form is None or at + form.words > len(words):
            continue
        bits = sum(words[at + i] << (32 * i) for i in range(form.words))
        number = (bits >> form.opcode.low) & form.opcode.mask
        mnemonic = form.names.get(number)
        if mnemonic is None:
            continue
        operands, modifiers = _fields(form, number, bits)
        length = form.words
        literal = None
        if "literal" in modifiers:
            literal = modifiers.pop("literal")
        elif length == 1 and any(o.code == LITERAL for o in operands) and at + 1 < len(words):
            literal, length = words[at + 1], 2
        return Instruction(
            address=address,
            words=words[at : at + length],
            encoding=form.name,
            mnemonic=mnemonic,
            operands=tuple(operands),
            modifiers=tuple((n, v) for n, v in modifiers.items() if v),
            literal=literal,
        )
    return Instruction(address, (word,), "UNKNOWN", "unknown", (), ())


def _fields(form: _Format, number: int, bits: int) -> tuple[list[Operand], dict[str, int]]:
    widths = form.widths.get(number, {})
    operands: list[Operand] = []
    modifiers: dict[str, int] = {}
    for field in form.fields:
        value = (bits >> field.low) & field.mask
        if field.name in _SCALES:
            operands.append(Operand(field.name, value, 32))
            continue
        if field.first is None:
            modifiers[field.name] = value
        elif width := _width(form, widths, field.name):
            operands.append(Operand(field.name, field.first + value * field.scale, width))
    operands = _accumulation(_scalars(form, number, operands, modifiers), modifiers)
    return _to_accumulation(operands, _ACCUMULATION.get(form.names[number], ())), modifiers


def _width(form: _Format, widths: Mapping[str, int], field: str) -> int | None:
    width = widths.get(field) or widths.get(field.removeprefix("v"))
    # The tables have no entry for the result that a comparison can name in its SDWA encoding.
    return width or (64 if field == "sdst" and form.name.endswith("_SDST") else None)


def _scalars(
    form: _Format, number: int, operands: list[Operand], modifiers: dict[str, int]
) -> list[Operand]:
    """Turn what the tables call a vector register into a scalar one, where the encoding means that."""
    scalar = set()
    if form.names[number] in ("v_readfirstlane_b32", "v_readlane_b32"):
        scalar.add("vdst")
    for flag, field in (("s0", "vsrc0"), ("s1", "vsrc1")):  # SDWA
        if modifiers.pop(flag, 0):
            scalar.add(field)
    return [Operand(o.field, o.code - VGPR, o.bits) if o.field in scalar else o for o in operands]


def _accumulation(operands: list[Operand], modifiers: dict[str, int]) -> list[Operand]:
    """Turn vector registers into accumulation registers where the encoding's bits say so."""
    sources = modifiers.pop("acc", 0)
    result = modifiers.pop("acc_cd", 0)
    if not sources and not result:
        return operands
    chosen = {
        "src0": sources & 1,
        "src1": sources >> 1 & 1,
        "src2": result,
        "vdst": result or sources & 1,
        "data": sources,
        "data0": sources,
        "data1": sources,
        "vdata": sources,
    }
    return _to_accumulation(operands, [field for field, is_chosen in chosen.items() if is_chosen])


def _to_accumulation(operands: list[Operand], fields: Collection[str]) -> list[Operand]:
    return [
        Operand(o.field, o.code - VGPR + AGPR, o.bits)
        if o.field in fields and VGPR <= o.code < AGPR
        else o
        for o in operands
    ]


def _candidates(word: int) -> tuple[str, ...]:
    """The encodings that a first word can begin, most special first (CDNA3 ISA, chapter 13)."""
    top6, top9 = word >> 26, word >> 23
    if not word >> 31:
        return _vector(word)
    if word >> 30 == 0b10:
        special = {0b101111101: "SOP1", 0b101111110: "SOPC", 0b101111111: "SOPP"}.get(top9)
        if special:
            return (special,)
        return ("SOPK", "SOPK_LIT") if word >> 28 == 0b1011 else ("SOP2",)
    if top9 == 0b110100111:
        return ("VOP3PX2",) if word >> 16 == _SCALED_PREFIX else ("VOP3P_MFMA", "VOP3P")
    if top6 == 0b110100:
        return ("VOP3SD", "VOP3_SDST", "VOP3")
    if top6 == 0b110111:
        return (("FLAT",), ("SCRATCH",), ("GLOBAL",), ())[word >> 14 & 3]
    single = {0b110000: "SMEM", 0b110110: "DS", 0b111000: "MUBUF", 0b111010: "MTBUF"}.get(top6)
    return (single,) if single else ()


def _vector(word: int) -> tuple[str, ...]:
    base = {0b0111110: "VOPC", 0b0111111: "VOP1"}.get(word >> 25, "VOP2")
    if word & 0x1FF == _SDWA:
        return (f"{base}_SDWA_SDST",) if base == "VOPC" else (f"{base}_SDWA",)
    if word & 0x1FF == _DPP:
        return (f"{base}_DPP16",)
    return (base, f"{base}_LIT")


@cache
def _formats() -> Mapping[str, _Format]:
    try:
        from tinygrad.renderer.amd import dsl
        from tinygrad.runtime.autogen.amd.cdna import ins
        from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS
    except ImportError as error:
        raise ToolchainError(
            "the package tinygrad, whose instruction tables the emulator reads, cannot be imported",
            where=str(error),
            fix='pip install "mono-build[emulator]"',
        ) from error
    kinds = [c for c in vars(ins).values() if isinstance(c, type) and issubclass(c, dsl.Inst)]
    return {c.__name__: _format(c, dsl, OPERANDS) for c in kinds if c is not dsl.Inst}


def _format(
    kind: Any, dsl: Any, widths: Mapping[Any, Mapping[str, tuple[Any, int, Any]]]
) -> _Format:
    place: Callable[[str, Any], _Field] = lambda name, f: _Field(  # noqa: E731
        name, f.lo, f.mask, *_register(f, dsl)
    )
    fields = [(n, f) for n, f in kind._fields if not isinstance(f, dsl.FixedBitField)]
    (opcode,) = [f for n, f in fields if n == "op"]
    allowed = opcode.allowed if opcode.allowed is not None else set(opcode._enum)
    # src0 of a DPP or SDWA encoding only says that it is one; vsrc0 holds the register.
    marker = "src0" if any(n == "vsrc0" for n, _ in fields) else ""
    return _Format(
        name=kind.__name__,
        words=kind._base_size // 4,
        opcode=_Field("op", opcode.lo, opcode.mask, None, 1),
        names={op.value: _plain(op.name) for op in allowed},
        fields=tuple(place(n, f) for n, f in fields if n not in ("op", "x2encoding", marker)),
        widths={
            op.value: {n: int(bits) for n, (_, bits, _kind) in widths.get(op, {}).items()}
            for op in allowed
        },
    )


def _plain(name: str) -> str:
    """The mnemonic without the suffix that only names the encoding."""
    return name.lower().removesuffix("_e32").removesuffix("_e64")


def _register(field: Any, dsl: Any) -> tuple[int | None, int]:
    if isinstance(field, dsl.AlignedSGPRField):
        return 0, field._align
    if isinstance(field, dsl.SrcField):
        return field._valid_range[0], 1
    return None, 1
