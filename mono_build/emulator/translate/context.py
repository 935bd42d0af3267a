"""What an emitter is given: names for operands in C, and where to put its lines."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from mono_build.emulator.instruction import (
    AGPR,
    EXEC,
    LITERAL,
    VCC,
    VGPR,
    Instruction,
    Operand,
)

# The inline float constants 240-248 (CDNA3 ISA, "Scalar ALU operands"); 248 is 1 / (2 pi).
_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_INVERSE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_SPECIAL = {
    251: "(uint32_t)(pair(s + VCC) == 0)",
    252: "(uint32_t)(exec_of(w) == 0)",
    253: "w->scc",
}
_TEMPORARIES = 40


class NotModelled(Exception):
    """An emitter met a form of its instruction that it does not model; the text says which."""


@dataclass
class Tables:
    """Rows that never change, made once when the code is loaded.

    Attributes:
        constants: rows that hold one value in all lanes, by value; pairs are keyed by two values.
        patterns: rows with a value a lane.
    """

    constants: dict[tuple[int, ...], int] = field(default_factory=dict)
    patterns: dict[tuple[int, ...], int] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)

    def constant(self, *values: int) -> str:
        """C for the row(s) that hold ``values``."""
        key = tuple(values)
        if key not in self.constants:
            self.constants[key] = len(self.values)
            self.values.extend(values)
        return f"K[{self.constants[key]}]"

    def pattern(self, lanes: tuple[int, ...]) -> str:
        """C for the row with these 64 values."""
        return f"P[{self.patterns.setdefault(lanes, len(self.patterns))}]"


@dataclass
class Context:
    """The place of one instruction in the program that is being written.

    Attributes:
        arch: base architecture.
        accumulation: the row of the first accumulation register.
        number: index of the instruction.
        segment: number of its segment.
        next_segment: the segment behind it.
        target: the segment that its branch goes to, or None.
    """

    arch: str
    tables: Tables
    accumulation: int
    new_site: Callable[[], int]
    number: int = 0
    segment: int = 0
    next_segment: int = 0
    target: int | None = None
    lines: list[str] = field(default_factory=list)
    used: int = 0

    def line(self, text: str) -> None:
        """Add a line of C."""
        self.lines.append(text)

    def temporary(self, rows: int = 1) -> str:
        """C for ``rows`` scratch rows that no other operand of this instruction uses."""
        first, self.used = self.used, self.used + rows
        if self.used > _TEMPORARIES:
            raise NotModelled("too many operands")
        return f"w->t[{first}]"

    def site(self) -> str:
        """C for a remembered allocation of an access."""
        return f"w->sites + {self.new_site()}"

    def checked(self, call: str) -> None:
        """A call that answers 1 after a fault."""
        self.line(f"if ({call}) return fault_at(w, {self.number}, {self.segment});")

    # Scalar operands.

    def register(self, code: int) -> str:
        """C for the scalar register with this number."""
        if not 0 <= code < 128 or code == 125:
            raise NotModelled(f"scalar operand {code}")
        return f"s[{code}]"

    def constant(self, operand: Operand, instruction: Instruction, kind: str = "") -> int | None:
        """The value of a constant operand, ``operand.bits`` wide; None for a register.

        ``kind`` is the type suffix of the operand (``i64``, ``f16`` ...): it decides how a literal is
        extended and how wide an inline float is.
        """
        code, wide = operand.code, operand.bits >= 64
        mask = (1 << (64 if wide else 32)) - 1
        if 128 <= code <= 192:
            return code - 128
        if 193 <= code <= 208:
            return (192 - code) & mask
        bits = 16 if kind.endswith("16") else 64 if wide and kind != "pk" else 32
        if 240 <= code <= 247:
            return int.from_bytes(struct.pack(_FORMATS[bits], _FLOATS[code - 240]), "little")
        if code == 248:
            return _INVERSE_TWO_PI[bits]
        if code == LITERAL:
            literal = instruction.literal
            if literal is None:
                raise NotModelled("literal without a word")
            if wide and kind == "f64":
                return literal << 32
            if wide and kind.startswith("i") and literal >> 31:
                return literal | 0xFFFFFFFF00000000
            return literal
        return None

    def scalar(self, operand: Operand, instruction: Instruction, kind: str = "") -> str:
        """C for the value of a scalar source, 32 or 64 bits wide."""
        value = self.constant(operand, instruction, kind)
        if value is not None:
            return f"0x{value:x}ull" if operand.bits >= 64 else f"0x{value:x}u"
        if operand.code in _SPECIAL:
            return _SPECIAL[operand.code]
        if operand.bits >= 64:
            return f"pair(&{self.register(operand.code)})"
        return self.register(operand.code)

    def set_scalar(self, operand: Operand, value: str) -> None:
        """Write a scalar register or pair."""
        if operand.bits >= 64:
            self.line(f"set_pair(&{self.register(operand.code)}, {value});")
        else:
            self.line(f"{self.register(operand.code)} = {value};")
        if operand.code in (EXEC, EXEC + 1):
            self.line("exec_changed(w);")

    def set_mask(self, code: int, value: str) -> None:
        """Write a result by lane; lanes that EXEC has off become 0."""
        self.set_scalar(Operand("sdst", code, 64), f"({value}) & exec_of(w)")

    # Vector operands.

    def row(self, code: int) -> str:
        """C for the row of a vector register."""
        if VGPR <= code < AGPR:
            return f"v[{code - VGPR}]"
        if AGPR <= code < AGPR + 256:
            return f"v[{self.accumulation + code - AGPR}]"
        raise NotModelled(f"operand {code} is no vector register")

    def rows(self, operand: Operand, instruction: Instruction, kind: str = "") -> str:
        """C for the rows of a source; scalars are spread over all lanes."""
        if operand.is_vector:
            return self.row(operand.code)
        pair = operand.bits >= 64
        value = self.constant(operand, instruction, kind)
        if value is not None:
            if not pair:
                return self.tables.constant(value)
            if kind == "pk":
                return self.tables.constant(value & 0xFFFFFFFF, value & 0xFFFFFFFF)
            return self.tables.constant(value & 0xFFFFFFFF, value >> 32)
        place = self.temporary(2 if pair else 1)
        if operand.code in _SPECIAL:
            self.line(f"splat({place}, {_SPECIAL[operand.code]});")
        else:
            self.line(f"splat({place}, {self.register(operand.code)});")
        if pair:
            self.line(f"splat({place} + LANES, {self.register(operand.code + 1)});")
        return place

    def mask_rows(self, code: int) -> str:
        """C for a row with all ones where the mask in scalar pair ``code`` has a bit."""
        place = self.temporary()
        self.line(f"expand({place}, pair(&{self.register(code)}));")
        return place

    @property
    def vcc_rows(self) -> str:
        """`mask_rows` of VCC."""
        return self.mask_rows(VCC)
