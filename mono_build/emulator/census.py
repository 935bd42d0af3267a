"""Which instructions occur in code objects, in which forms, and which of them the emulator lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mono_build.emulator.decode import decode
from mono_build.emulator.instruction import Instruction
from mono_build.emulator.objects import read_object
from mono_build.emulator.translate.program import write_program

# Fields whose value is a place or a number, not a form of the instruction.
_VALUES = frozenset(("simm16", "offset", "offset0", "offset1", "imm", "abid"))


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """One way in which an instruction is used.

    Attributes:
        arch: base architecture.
        encoding: ``VOP3``, ``VOP2_SDWA`` ...
        modifiers: the names of the modifier fields that are not zero, in order.
    """

    mnemonic: str
    arch: str
    encoding: str
    modifiers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """What a set of code objects contains.

    Attributes:
        uses: how often each form occurs, statically.
        missing: forms that stop a wave, with the reason.
    """

    uses: Counter[Form]
    missing: dict[Form, str]

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """Every mnemonic, sorted."""
        return tuple(sorted({f.mnemonic for f in self.uses}))


def take_census(objects: Iterable[bytes]) -> Census:
    """Count what ``objects`` (code objects for gfx942 and gfx950) contain.

    Raises:
        ObjectMismatch: one of them is no such code object.
        ToolchainError: the package ``tinygrad`` is not installed.
    """
    uses: Counter[Form] = Counter()
    missing: dict[Form, str] = {}
    for data in objects:
        image = read_object(data)
        instructions = decode(image.text, image.address)
        uses.update(form_of(i, image.arch) for i in instructions)
        entries = [k.entry for k in image.kernels.values()]
        for lack in write_program(instructions, entries, image.arch).unmodelled:
            missing[form_of(instructions[lack.instruction], image.arch)] = lack.reason
    return Census(uses, missing)


def form_of(instruction: Instruction, arch: str) -> Form:
    """The form in which ``instruction`` is used."""
    names = sorted(n for n, _ in instruction.modifiers if n not in _VALUES)
    return Form(instruction.mnemonic, arch, instruction.encoding, tuple(names))
