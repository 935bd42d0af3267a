"""The copies that a gfx942 server makes beside those that the launches were compared with on the emulator.

The emulator packs weights by code of its own, from numbers of its own; both begin with the same OCP codes.
"""

from __future__ import annotations

import pytest
import torch

from mono_build.emulator.cases.deepseek_v41 import packing
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import Dense, Fp4, RoutedExpert, e4m3_table
from mono_build.emulator.references.deepseek_v41.geometry import HIDDEN
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import copy_experts, copy_linear

TARGET = Target(Build(6, 4), "gfx942")
# vLLM's loader allocates a rank's 576 columns as 640.
PADDED = 640


def dense(rows: int, k: int) -> Dense:
    """Codes as the emulator's weights have them, -0 included."""
    random = Random(3, "dense", rows, k)
    codes = random.of("codes").drawn(e4m3_table(), rows, k)
    codes[::7, ::5] = 0x80
    scales = random.of("scales").integers(118, 124, rows // 32, k // 32).to(torch.uint8)
    return Dense(codes, scales)


# The four K of a rank's dense matrices at TP 4, of which 576 is no multiple of 128, and fewer rows.
@pytest.mark.parametrize("k", [1280, 2048, 5120, 576])
@pytest.mark.parametrize("dequantised", [False, True], ids=["e4m3", "bfloat16"])
def test_dense_copies_are_those_that_the_emulated_launches_read(k: int, dequantised: bool) -> None:
    weight = dense(64, k)
    loaded = weight.values().bfloat16() if dequantised else weight.codes.view(torch.float8_e4m3fn)
    # vLLM repeats the code of a block over its rows when it loads for gfx942.
    found = copy_linear(loaded, weight.scales.repeat_interleave(32, 0))
    codes, scales = packing.dense(weight, gfx942=True)
    assert torch.equal(found.codes, codes)
    assert torch.equal(found.scales, scales)


def test_expert_copies_are_those_that_the_emulated_launches_read() -> None:
    inter = TARGET.inter
    experts = [routed(number, inter) for number in range(2)]
    loaded = [torch.stack(parts) for parts in zip(*map(as_loaded, experts), strict=True)]
    found = copy_experts(*loaded, inter)
    for number, expert in enumerate(experts):
        for name, made in packing.expert(expert, TARGET).items():
            copy = getattr(found, name)[number]
            assert torch.equal(copy.flatten(), made().flatten()), (number, name)


def routed(number: int, inter: int) -> RoutedExpert:
    r = Random(5, "expert", number)
    return RoutedExpert(
        Fp4(r.of("gate"), inter, HIDDEN),
        Fp4(r.of("up"), inter, HIDDEN),
        Fp4(r.of("down"), HIDDEN, inter),
    )


def as_loaded(expert: RoutedExpert) -> tuple[torch.Tensor, ...]:
    """An expert as vLLM's loader leaves it: gate rows, up rows, each padded; down's columns padded."""

    def rows(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        both = torch.zeros(2, PADDED, gate.shape[1], dtype=torch.uint8)
        both[0, : len(gate)], both[1, : len(up)] = gate, up
        return both.flatten(0, 1)

    def columns(down: torch.Tensor, of: int) -> torch.Tensor:
        padded = torch.zeros(HIDDEN, PADDED // of, dtype=torch.uint8)
        padded[:, : down.shape[1]] = down
        return padded

    gate, up, down = expert.gate, expert.up, expert.down
    return (
        rows(gate.packed, up.packed),
        rows(gate.scales, up.scales),
        columns(down.packed, 2),
        columns(down.scales, 32),
    )
