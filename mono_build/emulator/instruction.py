"""One decoded instruction as plain data."""

from __future__ import annotations

from dataclasses import dataclass

# The source encoding of the ISA documents ("SRC" operand): scalar registers are 0-105, then named
# ones, inline constants, and vector registers from 256. Accumulation registers follow at 512.
VCC = 106
TTMP = 108
M0 = 124
EXEC = 126
LITERAL = 255
VGPR = 256
AGPR = 512


@dataclass(frozen=True, slots=True)
class Operand:
    """A register, or the first of several, or a constant.

    Attributes:
        field: its name in the encoding (``src0``, ``vdst``, ``saddr`` ...).
        code: the number in the source encoding; vector registers from 256, accumulation ones from 512.
        bits: how wide the instruction takes it.
    """

    field: str
    code: int
    bits: int

    @property
    def registers(self) -> int:
        """How many 32-bit registers it covers."""
        return max(1, self.bits // 32)

    @property
    def is_vector(self) -> bool:
        """Whether it has a value a lane."""
        return self.code >= VGPR


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    Attributes:
        address: where it lies in the code object's address space.
        words: its 32-bit words, a literal included.
        encoding: ``VOP3``, ``VOP2_DPP16`` ...; ``UNKNOWN`` when no table has it.
        mnemonic: in lower case; ``unknown`` when no table has it.
        operands: registers and constants, in the order of the encoding's fields.
        modifiers: every other field that is not zero, by name.
        literal: the 32-bit constant that follows the instruction, or None.
    """

    address: int
    words: tuple[int, ...]
    encoding: str
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[tuple[str, int], ...]
    literal: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return 4 * len(self.words)

    def operand(self, field: str) -> Operand | None:
        """The operand of this field name, if the instruction has it."""
        return next((o for o in self.operands if o.field == field), None)

    def modifier(self, name: str) -> int:
        """The value of a modifier field; 0 when it is not set."""
        return next((v for n, v in self.modifiers if n == name), 0)

    @property
    def raw(self) -> str:
        """The words in hexadecimal, as a disassembler prints them."""
        return " ".join(f"{w:08x}" for w in self.words)
