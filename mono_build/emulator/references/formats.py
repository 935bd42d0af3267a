"""Number formats of OCP's microscaling specification and of AMD's FNUZ variant, and their quantisers.

E4M3 (OCP): 1-4-3 bits, bias 7, largest 448, 0x7F and 0xFF are NaN. FNUZ: bias 8, largest 240, 0x80 is
the only NaN and there is no negative zero. The same bits stand for half the OCP value in FNUZ, so a
kernel that quantises to FNUZ with half the largest value and a scale code one higher holds the same
numbers. References therefore work on dequantised values and are the same for both.

E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign in bit 3. E8M0: a code ``c`` is the scale ``2^(c - 127)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import (
    Bounded,
    absolute,
    deviation,
    exact,
    f32,
    largest,
    split,
    unit,
)

GROUP = 32
E4M3_MAX = 448.0
FLT_MIN = 2.0**-126
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Rule(Enum):
    """How a kernel chooses an MXFP8 group's scale code from its largest magnitude ``a``.

    Both take the smallest power of two that is at least the quotient.
    """

    DIVIDE = "a / 448 divided in float32, a at least FLT_MIN, codes 0 to 254"
    MULTIPLY = "a times float32(1 / 448), a at least 1e-10, codes 1 to 254"


def e4m3_values(*, fnuz: bool) -> Tensor:
    """The 256 values of E4M3 by byte (float64), NaN where the format has it."""
    code = torch.arange(256)
    exponent, mantissa = (code >> 3) & 15, (code & 7).double()
    bias = 8 if fnuz else 7
    normal = (1 + mantissa / 8) * torch.exp2((exponent - bias).double())
    small = mantissa / 8 * 2.0 ** (1 - bias)
    value = torch.where(exponent == 0, small, normal)
    value = torch.where(code >= 128, -value, value)
    value[[0x80] if fnuz else [0x7F, 0xFF]] = torch.nan
    return value


def decode_e4m3(codes: Tensor, *, fnuz: bool) -> Tensor:
    """Bytes (uint8) as values (float64)."""
    return e4m3_values(fnuz=fnuz)[codes.int()]


def encode_e4m3(values: Tensor) -> Tensor:
    """Values that OCP E4M3 has (float64), as bytes."""
    positive = e4m3_values(fnuz=False)[:127]
    code = torch.searchsorted(positive, values.abs().contiguous())
    return (code + 128 * torch.signbit(values)).to(torch.uint8)


def decode_e2m1(codes: Tensor) -> Tensor:
    """Nibbles (one an element, 0 to 15) as values (float32)."""
    return torch.tensor([*E2M1, *(-v for v in E2M1)], dtype=torch.float32)[codes.int()]


def unpack_e2m1(packed: Tensor) -> Tensor:
    """Bytes [..., K / 2], the lower K in the low nibble, as nibbles [..., K]."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def scale(codes: Tensor) -> Tensor:
    """E8M0 codes as scales (float64)."""
    return torch.exp2(codes.double() - 127)


def round_e4m3(x: Tensor) -> Tensor:
    """``x`` (float64, within +-448) to the nearest E4M3 value, ties to even."""
    step = unit(x, 3, -6)
    return torch.round(x / step) * step


def scale_code(amax: Tensor, rule: Rule) -> Tensor:
    """The OCP scale code of groups with these largest magnitudes (float64 holding float32)."""
    if rule is Rule.DIVIDE:
        quotient = f32(amax.clamp(min=FLT_MIN) / E4M3_MAX)
        lowest = 0
    else:
        floor = float(torch.tensor(1e-10, dtype=torch.float32))
        reciprocal = float(torch.tensor(1 / E4M3_MAX, dtype=torch.float32))
        quotient = f32(amax.clamp(min=floor) * reciprocal)
        lowest = 1
    mantissa, exponent = torch.frexp(quotient)
    # frexp gives a mantissa in [0.5, 1): a half is a power of two already. Codes of subnormals are 1.
    code = exponent + 127 - (mantissa == 0.5).int()
    return torch.where(quotient < FLT_MIN, 1, code).clamp(lowest, 254)


@dataclass(frozen=True, slots=True)
class Quantised:
    """An MXFP8 tensor: OCP scale codes [..., groups], and the values they and the bytes stand for."""

    codes: Tensor
    values: Bounded


def mxfp8(x: Bounded, rule: Rule) -> Quantised:
    """``x`` [..., K] in groups of 32 along K.

    The bound is zero for an element unless an edge of its group's scale or of its own rounding lies
    within the bound of ``x``; then it is the distance to what the other choice gives.
    """
    return _quantise(x, GROUP, lambda amax: scale_code(amax, rule))


def record_groups(x: Bounded) -> Quantised:
    """The KV record's groups of 64: a / 448 divided in float32, a at least 1e-4, no limit on codes."""
    floor = float(torch.tensor(1e-4, dtype=torch.float32))
    return _quantise(x, 64, lambda amax: scale_code(amax.clamp(min=floor), Rule.DIVIDE))


def _quantise(x: Bounded, group: int, code_of: Callable[[Tensor], Tensor]) -> Quantised:
    grouped = x.map(lambda v: split(v, -1, -1, group))
    amax = largest(absolute(grouped), -1)
    code = code_of(amax.value)
    value = _with_code(grouped.value, code)
    if x.certain:
        return Quantised(code, exact(value.flatten(-2)))

    def by_amax(point: Tensor) -> Tensor:
        return _with_code(grouped.value, code_of(f32(point.clamp(min=0))))

    bound = torch.zeros_like(value)
    for other in (amax.value, amax.value + amax.bound, amax.value - amax.bound):
        for sign in (1, 0, -1):
            moved = grouped.value + sign * grouped.bound
            at = _with_code(moved, code_of(f32(other.clamp(min=0))))
            bound = torch.maximum(bound, (at - value).abs())
    of_code = deviation(amax, value, by_amax)
    of_value = deviation(grouped, value, lambda v: _with_code(v, code))
    sigma = torch.minimum(bound, (of_code.square() + of_value.square()).sqrt())
    return Quantised(code, Bounded(value, bound, sigma).map(lambda v: v.flatten(-2)))


def _with_code(x: Tensor, code: Tensor) -> Tensor:
    factor = scale(code).unsqueeze(-1)
    return round_e4m3((x / factor).clamp(-E4M3_MAX, E4M3_MAX)) * factor


def step(values: Tensor, codes: Tensor, group: int = GROUP) -> Tensor:
    """The spacing of E4M3 at ``values`` [..., K] under scale codes [..., K / group]."""
    factor = scale(codes).repeat_interleave(group, -1)
    return unit(values / factor, 3, -6) * factor
