"""Control flow of a code object: where jumps go, and the straight runs that are executed as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from mono_build.emulator.instruction import Instruction

# A wave may lose its turn between segments only. Short ones let a schedule reach more interleavings.
_LONGEST = 32
_JUMPS = frozenset(
    ("s_branch", "s_endpgm", "s_setpc_b64", "s_swappc_b64", "s_trap", "s_endpgm_saved", "unknown")
)
_STOPS = frozenset(("s_barrier", "s_sleep"))


@dataclass(frozen=True, slots=True)
class Segment:
    """Instructions ``first`` up to, without, ``end``: entered at the first only, left at the end only."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Flow:
    """Segments in the order of their addresses.

    Attributes:
        segments: all of them; each instruction is in one.
        starts: the index of each segment's first instruction.
    """

    segments: tuple[Segment, ...]
    starts: tuple[int, ...]

    def segment_of(self, instruction: int) -> int:
        """The number of the segment that holds this instruction."""
        return bisect_right(self.starts, instruction) - 1


def branch_target(instruction: Instruction) -> int | None:
    """The address that a relative branch goes to, or None for other instructions."""
    if instruction.encoding != "SOPP":
        return None
    if instruction.mnemonic != "s_branch" and not instruction.mnemonic.startswith("s_cbranch_"):
        return None
    words = instruction.modifier("simm16")
    return instruction.address + 4 + 4 * (words - 0x10000 if words & 0x8000 else words)


def control_flow(instructions: Sequence[Instruction], entries: Sequence[int]) -> Flow:
    """Cut ``instructions`` at the addresses ``entries``, at jumps, and before accesses to memory."""
    index = {i.address: n for n, i in enumerate(instructions)}
    starts = {0, *(index[e] for e in entries if e in index)}
    length, before = 0, ""
    for number, instruction in enumerate(instructions):
        target = branch_target(instruction)
        if target in index:
            starts.add(index[target])
        access = memory_class(instruction)
        if number in starts:
            length = 0
        elif length >= _LONGEST or (access and access != before):
            starts.add(number)
            length = 0
        length, before = length + 1, access
        if target is not None or instruction.mnemonic in _JUMPS | _STOPS:
            starts.add(number + 1)
    ordered = sorted(s for s in starts if s < len(instructions))
    ends = [*ordered[1:], len(instructions)]
    segments = tuple(Segment(a, b) for a, b in zip(ordered, ends, strict=True))
    return Flow(segments, tuple(ordered))


def memory_class(instruction: Instruction) -> str:
    """A word for the memory that an instruction reads or writes; empty when it does neither.

    Accesses of one class that follow each other stay in one segment.
    """
    name = instruction.mnemonic
    if instruction.encoding == "DS":
        if name.startswith(("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")):
            return ""
        return "lds load" if name.startswith("ds_read") else "lds store"
    if instruction.encoding in ("GLOBAL", "MUBUF", "FLAT", "MTBUF"):
        if "_load" in name:
            return "load"
        return "store" if "_store" in name else "atomic"
    return ""
