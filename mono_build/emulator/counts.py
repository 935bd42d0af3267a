"""From what the scheduler counted by segment to figures of a launch and of its stages.

These code objects carry no line tables, so a stage is found in the code itself: it is what lies, in the
order of addresses, between two places where a wave waits for others, which are a barrier and a loop that
polls (a backward jump over an ``s_sleep``). A stage begins behind a barrier or with such a loop. Compilers
keep blocks near their source's order, but nothing makes them: two builds' stages need not match one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from mono_build.emulator.blocks import branch_target
from mono_build.emulator.classes import instruction_class, multiply_adds
from mono_build.emulator.code import LoadedCode
from mono_build.emulator.figures import Figures, Stage
from mono_build.emulator.instruction import Instruction
from mono_build.emulator.launches import LaunchRecord


def stages_of(records: Iterable[LaunchRecord]) -> tuple[Stage, ...]:
    """The stages that ran, kernel by kernel in the order of ``records``; equal kernels are added up."""
    found: dict[tuple[str, str, int], Stage] = {}
    for record in records:
        code = record.code
        figures = _by_segment(record)
        starts = [s.first for s in code.flow.segments]
        for first, end in pairwise(stage_bounds(code.instructions)):
            mine = [f for f, s in zip(figures, starts, strict=True) if first <= s < end]
            total = sum(mine, Figures())
            if not total.instructions:
                continue
            place = (code.image.digest, record.symbol, first)
            old = found.get(place)
            if old is not None:
                total = old.figures + total
            found[place] = _stage(code, record.symbol, first, end, total)
    return tuple(found.values())


def total_of(stages: Iterable[Stage]) -> Figures:
    """All stages together."""
    return sum((s.figures for s in stages), Figures())


def stage_bounds(instructions: Sequence[Instruction]) -> tuple[int, ...]:
    """The numbers of the instructions that begin a stage, and the number behind the last one."""
    index = {i.address: n for n, i in enumerate(instructions)}
    bounds = {0, len(instructions)}
    sleeps = [n for n, i in enumerate(instructions) if i.mnemonic == "s_sleep"]
    for number, instruction in enumerate(instructions):
        if instruction.mnemonic == "s_barrier":
            bounds.add(number + 1)
        target = branch_target(instruction)
        if target is not None and target in index:
            start = index[target]
            if any(start <= n <= number for n in sleeps):
                bounds.add(start)
    return tuple(sorted(bounds))


def _stage(code: LoadedCode, symbol: str, first: int, end: int, figures: Figures) -> Stage:
    last = code.instructions[end - 1]
    base = code.image.address
    return Stage(
        symbol=symbol,
        start=code.instructions[first].address - base,
        end=last.address + last.size - base,
        size=end - first,
        figures=figures,
    )


def _by_segment(record: LaunchRecord) -> list[Figures]:
    found = []
    code = record.code
    for segment, times, moved in zip(
        code.flow.segments, record.counts, record.traffic, strict=True
    ):
        if not times:
            found.append(Figures())
            continue
        mine = code.instructions[segment.first : segment.end]
        classes = Counter(instruction_class(i) for i in mine)
        found.append(
            Figures(
                instructions=times * len(mine),
                classes={n: times * c for n, c in classes.items()},
                global_read=moved.global_read,
                global_written=moved.global_written,
                lds_read=moved.lds_read,
                lds_written=moved.lds_written,
                multiply_adds=times * sum(map(multiply_adds, mine)),
                polls=times * sum(i.mnemonic == "s_sleep" for i in mine),
            )
        )
    return found
