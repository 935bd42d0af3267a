"""The mixture of experts on one rank: MXFP4 routed experts, the MXFP8 shared one, and their sum."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import (
    Bounded,
    bf16,
    clamp,
    constant,
    linear,
    monotone,
)
from mono_build.emulator.references.deepseek_v41.front import wave_depth
from mono_build.emulator.references.deepseek_v41.geometry import SWIGLU_LIMIT
from mono_build.emulator.references.formats import Quantised, Rule, mxfp8

LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert's dequantised weights on a rank: ``gate`` and ``up`` [inter, 5120], ``down`` [5120, inter]."""

    gate: Tensor
    up: Tensor
    down: Tensor


def routed_middle(expert: Expert, x: Bounded) -> Quantised:
    """A routed expert's quantised middle [T, inter] from its MXFP8 input [T, 5120].

    ``silu(min(gate, 10)) clamp(up, +-10)`` in float32, bfloat16, MXFP8 (rule MULTIPLY).

    Tolerance: two `linear` over 5120, v_exp_f32 and v_rcp_f32, one bfloat16 and one E4M3 step where
    those reach an edge.
    """
    depth = x.shape[-1] // 2 + 1  # two waves share a sum
    gate = clamp(linear(expert.gate, x, depth), high=SWIGLU_LIMIT)
    up = clamp(linear(expert.up, x, depth), -SWIGLU_LIMIT, SWIGLU_LIMIT)
    power = monotone(gate * constant(-LOG2E, gate), torch.exp2, 1)
    sigmoid = monotone(constant(1.0, power) + power, torch.reciprocal, 1)
    return mxfp8(bf16(gate * sigmoid * up), Rule.MULTIPLY)


def shared_activation(expert: Expert, x: Bounded) -> Bounded:
    """The shared expert's middle [T, inter] in bfloat16 from its MXFP8 input [T, 5120].

    Both products are rounded to bfloat16 first, the limit applied, ``g / (1 + exp(-g))`` rounded to
    bfloat16, then times up and rounded again.

    Tolerance: two `linear` over 5120, two units of the exponential, a bfloat16 step at each rounding
    whose edge they reach.
    """
    depth = wave_depth(x.shape[-1])
    gate = bf16(clamp(bf16(linear(expert.gate, x, depth)), high=SWIGLU_LIMIT))
    up = clamp(bf16(linear(expert.up, x, depth)), -SWIGLU_LIMIT, SWIGLU_LIMIT)
    power = monotone(-gate, torch.exp, 2)
    return bf16(bf16(gate / (constant(1.0, power) + power)) * up)


def down(expert: Expert, middle: Bounded) -> Bounded:
    """The expert's output [T, 5120] in float32 from its quantised middle. Tolerance: `linear`."""
    return linear(expert.down, middle, middle.shape[-1])


def shared_output(expert: Expert, middle: Bounded) -> Bounded:
    """The shared expert's output [T, 5120] in bfloat16 from its quantised middle. Tolerance: `linear`, one step."""
    return bf16(linear(expert.down, middle, wave_depth(middle.shape[-1])))


def contribution(output: Bounded, weight: Bounded) -> Bounded:
    """A pick's share in bfloat16: its expert's float32 output [5120] times its weight."""
    return bf16(output * weight)


def add_up(contributions: list[Bounded], shared: Bounded) -> Bounded:
    """A rank's part [5120] in bfloat16: the picks in the order of the selection, rounded at each sum, then the shared.

    IEEE operations in a stated order: exact given exact inputs.
    """
    value = constant(0.0, contributions[0])
    for part in contributions:
        value = bf16(value + part)
    return bf16(value + shared)
