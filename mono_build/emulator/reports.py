"""What is told when an emulated launch stops: where, in which kernel, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from mono_build.emulator.engine import FaultKind, FaultStruct, WavePlace, WaveState
from mono_build.emulator.errors import (
    Deadlock,
    EmulationError,
    NotModelledInstruction,
    WildAccess,
    WrongJump,
)
from mono_build.emulator.instruction import Instruction
from mono_build.emulator.launches import Launch

_LISTED = 12


def fault_error(
    fault: FaultStruct, place: WavePlace, launch: Launch, explain: Callable[[int], str]
) -> EmulationError:
    """The error for a wave that did what it must not; ``explain`` says where an address lies."""
    instruction = launch.module.code.instructions[fault.instruction]
    kind = FaultKind(fault.kind)
    where = f"{_named(instruction)}, {_wave(place)}, kernel {launch.function.kernel.symbol}"
    action = "writes" if fault.is_write else "reads"
    if kind is FaultKind.GLOBAL:
        return WildAccess(
            f"lane {fault.lane} {action} {fault.bytes} bytes at 0x{fault.address:x}, outside of every"
            f" allocation: {explain(fault.address)}",
            where=where,
        )
    if kind in (FaultKind.LDS, FaultKind.SCRATCH):
        struct = launch.struct
        memory, size = (
            ("LDS", struct.lds_size) if kind is FaultKind.LDS else ("scratch", struct.scratch_size)
        )
        return WildAccess(
            f"lane {fault.lane} {action} {fault.bytes} bytes at {memory} offset {fault.address},"
            f" and there are {size} bytes",
            where=where,
        )
    if kind is FaultKind.UNKNOWN:
        reasons = {u.instruction: u.reason for u in launch.module.code.unmodelled}
        reason = reasons.get(fault.instruction, "this use of it is not modelled")
        return NotModelledInstruction(
            f"the emulator does not model {instruction.mnemonic}: {reason}", where=where
        )
    what = "s_trap was executed" if kind is FaultKind.TRAP else "a jump leads to no instruction"
    return WrongJump(what, where=where)


def deadlock_error(places: Iterable[WavePlace], launches: dict[int, Launch]) -> Deadlock:
    """The error for launches whose waves all wait, with the places where they do."""
    waiting: Counter[tuple[str, int, str, str]] = Counter()
    groups: dict[tuple[str, int, str, str], WavePlace] = {}
    for place in places:
        launch = launches[place.launch]
        code = launch.module.code
        segment = code.flow.segments[place.segment]
        state = "at a barrier, before" if place.state is WaveState.AT_BARRIER else "around"
        instruction = code.instructions[min(segment.first, len(code.instructions) - 1)]
        key = (launch.function.kernel.symbol, place.device, state, _named(instruction))
        waiting[key] += 1
        groups.setdefault(key, place)
    lines = [
        f"device {device}, {symbol}: {count} waves {state} {where}, such as {_wave(groups[key])}"
        for key, count in waiting.most_common(_LISTED)
        for symbol, device, state, where in (key,)
    ]
    if len(waiting) > _LISTED:
        lines.append(f"and {len(waiting) - _LISTED} more places")
    return Deadlock(
        "nobody moves: every wave that is left waits, and nothing in memory changes any more",
        where="\n         ".join(lines) or "no wave has started",
        fix="look whether all ranks are launched, with the same epoch, on memory of this run",
    )


def _named(instruction: Instruction) -> str:
    return f"{instruction.mnemonic} at 0x{instruction.address:x} [{instruction.raw}]"


def _wave(place: WavePlace) -> str:
    x, y, z = place.group
    return f"device {place.device}, workgroup ({x}, {y}, {z}), wave {place.number}"
