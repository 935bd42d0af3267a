"""Cases of the key list: one width with each compress ratio, on one rank (it knows of no other)."""

from __future__ import annotations

import torch

from mono_build.emulator.cases.case import Address, Buffer, Call, Case, Check, Memory, Step, holding
from mono_build.emulator.cases.compare import Comparison, equal
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.inputs import COMPRESSED_BLOCK, step
from mono_build.emulator.cases.deepseek_v41.inputs import Step as Inputs
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.references.deepseek_v41 import front
from mono_build.emulator.references.deepseek_v41.geometry import KEYS

LAUNCH = "keylist"
RATIOS = (2, 1, 0)
# The inputs are made as those of a whole layer, which has a TP size; nothing of them depends on it.
_TP = 4


def case(arch: str, tokens: int, seed: int, edge: int) -> Case:
    """The launch of a width: a step for each ratio, each with inputs and a table of its own.

    Args:
        edge: as `Target.edge`.
    """
    buffers: dict[str, Buffer] = {}
    steps = []
    for ratio in RATIOS:
        target = Target(Build(tokens, _TP, ratio), arch, edge=edge)
        random = Random(seed, "deepseek_v41", LAUNCH, ratio)
        inputs = step(target, random, padding=True)
        buffers |= _buffers(ratio, inputs)
        call = Call(0, LAUNCH, {"tokens": tokens}, _arguments(ratio, inputs))
        steps.append(Step((call,), _check(ratio, inputs)))
    return Case(f"keylist tokens={tokens}", "deepseek_v41", arch, seed, (buffers,), tuple(steps))


def _buffers(ratio: int, inputs: Inputs) -> dict[str, Buffer]:
    """As large as what they hold, so that a read beyond it is an error."""
    tokens = len(inputs.slot)
    contents = {
        "slot": inputs.slot,
        "pos": inputs.position,
        "swa_idx": inputs.window,
        "swa_lens": inputs.window_length,
    }
    if ratio:
        contents |= {"topk": inputs.topk, "t2r": inputs.request, "comp_bt": inputs.blocks}
    return {
        **{_named(name, ratio): holding(content) for name, content in contents.items()},
        _named("kt", ratio): Buffer(tokens * KEYS * 4, fill=0xA5),
        _named("klen", ratio): Buffer(2 * tokens * 4, fill=0xA5),
    }


def _arguments(ratio: int, inputs: Inputs) -> dict[str, int | Address]:
    # Window keys alone must do without the selection, wherever its addresses point to.
    selection: dict[str, int | Address] = {"topk": 0, "t2r": 0, "comp_bt": 0}
    if ratio:
        selection = {name: Address(_named(name, ratio)) for name in selection}
    own = ("kt", "klen", "slot", "pos", "swa_idx", "swa_lens")
    return {
        **{name: Address(_named(name, ratio)) for name in own},
        **selection,
        "bt_stride": inputs.blocks.shape[1],
        "comp_block": COMPRESSED_BLOCK,
        "ratio": ratio,
    }


def _check(ratio: int, inputs: Inputs) -> Check:
    tokens = len(inputs.slot)
    want = front.keys(inputs.keys(ratio))

    def check(memory: Memory) -> list[Comparison]:
        table = memory.read(0, _named("kt", ratio), 0, tokens * KEYS * 4)
        counts = memory.read(0, _named("klen", ratio), 0, 2 * tokens * 4)
        lengths = torch.cat([want.length, want.compressed])
        of = f"ratio {ratio}"
        return [
            equal(f"key table, {of}", table.view(torch.int32), want.table),
            equal(f"key counts, {of}", counts.view(torch.int32), lengths),
        ]

    return check


def _named(name: str, ratio: int) -> str:
    return f"{name} of ratio {ratio}"
