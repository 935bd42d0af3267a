"""A whole code object as C: a function for each segment, and tables that say which is which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mono_build.emulator.blocks import Flow, Segment, branch_target, control_flow
from mono_build.emulator.instruction import AGPR, VGPR, Instruction
from mono_build.emulator.translate.context import Context, NotModelled, Tables
from mono_build.emulator.translate.registry import emitters

# Compilers take more than twice as long for a file of twice the length.
_INSTRUCTIONS_A_FILE = 1500
_HEADER = '#include "program.h"\n'
_PROLOGUE = "row *const v = w->v; uint32_t *const s = w->s; (void)v; (void)s;"


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """An instruction that stops a wave when it is reached, and why."""

    instruction: int
    reason: str


@dataclass(frozen=True, slots=True)
class Program:
    """C for one code object.

    Attributes:
        files: the text of each file; the last one holds the tables and the entry point.
        rows: vector registers that a wave needs, accumulation registers included.
        sites: how many accesses remember an allocation.
        unmodelled: instructions without semantics.
    """

    files: tuple[str, ...]
    flow: Flow
    rows: int
    sites: int
    unmodelled: tuple[Unmodelled, ...]


def write_program(
    instructions: Sequence[Instruction], entries: Sequence[int], arch: str
) -> Program:
    """Translate ``instructions``; ``entries`` are the addresses of the kernels."""
    flow = control_flow(instructions, entries)
    accumulation, rows = _registers(instructions)
    writer = _Writer(instructions, flow, arch, accumulation)
    files: list[list[str]] = [[]]
    length = 0
    for number, segment in enumerate(flow.segments):
        if length > _INSTRUCTIONS_A_FILE:
            files.append([])
            length = 0
        files[-1].append(writer.function(number, segment))
        length += segment.end - segment.first
    texts = [_HEADER + "\n".join(functions) for functions in files]
    texts.append(_HEADER + writer.table_text())
    return Program(tuple(texts), flow, rows, writer.sites, tuple(writer.unmodelled))


def _registers(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """The row of the first accumulation register, and the number of rows."""
    ends = [o.code + o.registers for i in instructions for o in i.operands if o.is_vector]
    vector = max([e - VGPR for e in ends if e <= AGPR], default=1)
    accumulation = max([e - AGPR for e in ends if e > AGPR], default=0)
    return vector, vector + accumulation


class _Writer:
    def __init__(
        self, instructions: Sequence[Instruction], flow: Flow, arch: str, accumulation: int
    ) -> None:
        self._instructions = instructions
        self._flow = flow
        self._index = {i.address: n for n, i in enumerate(instructions)}
        self._arch = arch
        self._accumulation = accumulation
        self._tables = Tables()
        self.sites = 0
        self.unmodelled: list[Unmodelled] = []

    def function(self, number: int, segment: Segment) -> str:
        """The C function of one segment; it answers the next one's number."""
        lines = [f"uint32_t b{number}(struct wave *w)", "{", _PROLOGUE]
        for index in range(segment.first, segment.end):
            lines += self._instruction(index, number)
        if number + 1 < len(self._flow.segments):
            lines.append(f"return {number + 1};")
        else:
            lines.append(f"return jump_fault(w, {segment.end - 1}, {number});")
        return "\n".join([*lines, "}"])

    def _instruction(self, index: int, segment: int) -> list[str]:
        instruction = self._instructions[index]
        sites = self.sites
        context = Context(
            arch=self._arch,
            tables=self._tables,
            accumulation=self._accumulation,
            new_site=self._new_site,
            number=index,
            segment=segment,
            next_segment=segment + 1,
            target=self._target(instruction),
        )
        emitter = emitters().get(instruction.mnemonic)
        try:
            if emitter is None:
                raise NotModelled("no emitter")
            emitter(instruction, context)
        except NotModelled as reason:
            self.sites = sites
            self.unmodelled.append(Unmodelled(index, str(reason)))
            return [f"return unknown_fault(w, {index}, {segment});"]
        return context.lines

    def _target(self, instruction: Instruction) -> int | None:
        address = branch_target(instruction)
        if address is None or address not in self._index:
            return None
        return self._flow.segment_of(self._index[address])

    def _new_site(self) -> int:
        self.sites += 1
        return self.sites - 1

    def table_text(self) -> str:
        """The file with the tables and the entry point."""
        count = len(self._flow.segments)
        values = self._tables.values or [0]
        patterns = list(self._tables.patterns) or [(0,) * 64]
        starts = [self._instructions[s.first].address for s in self._flow.segments]
        lengths = [s.end - s.first for s in self._flow.segments]
        return f"""
_Alignas(64) row K[{len(values)}];
static const uint32_t values[] = {{{_numbers(values)}}};
_Alignas(64) row P[{len(patterns)}] = {{
{",".join("{" + _numbers(lanes) + "}" for lanes in patterns)}
}};
__attribute__((constructor)) static void fill(void)
{{
    for (int k = 0; k < {len(values)}; k++)
        splat(K[k], values[k]);
}}
{"".join(f"uint32_t b{n}(struct wave *w);" for n in range(count))}
static const segment segments[] = {{{",".join(f"b{n}" for n in range(count))}}};
static const uint32_t lengths[] = {{{_numbers(lengths)}}};
static const uint64_t starts[] = {{{_numbers(starts)}}};
uint32_t segment_at(uint64_t address)
{{
    uint32_t low = 0, high = {count};
    while (low < high) {{
        const uint32_t middle = (low + high) / 2;
        if (starts[middle] < address)
            low = middle + 1;
        else
            high = middle;
    }}
    return low < {count} && starts[low] == address ? low : ~0u;
}}
__attribute__((visibility("default"))) const struct kernel_code *mono_kernel_code(void)
{{
    static const struct kernel_code code = {{segments, lengths, {count}, {self.sites}}};
    return &code;
}}
"""


def _numbers(values: Sequence[int]) -> str:
    return ",".join(f"0x{v:x}u" if v < 1 << 32 else f"0x{v:x}ull" for v in values)
