"""Reductions through LDS and across lanes, with tolerances from the number of roundings."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from kernel_kit import ARCHITECTURES, Devices, normal, worst

from mono_build.emulator.engine import Schedule

# Half a unit in the last place of a number between 1 and 2.
_U32 = 2.0**-24


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("count", [5, 256, 1000])
def test_an_lds_tree_sums_what_each_workgroup_owns(kernels: Path, arch: str, count: int) -> None:
    devices = Devices(kernels, arch)
    values = normal(3, count, seed=count)
    sums = devices.poisoned(4 * 3)
    devices.launch("lds_sum")(devices.array(values), sums, count, 3)
    exact = values.to(torch.float64)
    # A value goes through the strided additions of its work-item and the eight levels of the tree.
    depth = math.ceil(count / 256) + 8
    tolerance = depth * _U32 * exact.abs().sum(1)
    assert worst(devices.read(sums, values[:, 0]), exact.sum(1), tolerance) <= 1


def softmax_error(devices: Devices, name: str, rows: int, count: int) -> float:
    """The largest error of a softmax launch over numbers of very different sizes, in tolerances."""
    values = 8 * normal(rows, count, seed=7)
    values[:, count // 2] += 20
    out = devices.poisoned(4 * rows * count)
    devices.launch(name)(devices.array(values), out, count, rows)
    exact = values.to(torch.float64)
    exponent = (exact - exact.amax(1, keepdim=True)) * math.log2(math.e)
    powers = torch.exp2(exponent)
    # The exponent: difference, constant and product round once each, which exp2 turns into relative
    # errors of ln 2 times as much; v_exp_f32 is within one unit in the last place (CDNA3 ISA, V_EXP_F32).
    relative = math.log(2) * exponent.abs() * 3 * _U32 + 2 * _U32
    total = powers.sum(1, keepdim=True)
    # The sum: each addend's error, and two additions of a work-item, six across lanes, three across waves.
    relative_total = (powers * relative).sum(1, keepdim=True) / total + 11 * _U32
    expected = powers / total
    # A division rounds once. Powers below f32's normal range become 0.
    tolerance = expected * (relative + relative_total + _U32) * (1 + 2.0**-10) + 2.0**-126
    return worst(devices.read(out, values), expected, tolerance)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("count", [7, 256, 1000, 1024])
def test_softmax_of_rows(kernels: Path, arch: str, count: int) -> None:
    assert softmax_error(Devices(kernels, arch), "softmax", 3, count) <= 1


SCHEDULES = [
    *(Schedule(quantum=q) for q in (1, 8, 64, 512, 4096)),
    *(Schedule(quantum=q, seed=s) for q in (8, 64, 512) for s in range(3)),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_softmax_is_right_in_every_schedule(kernels: Path, arch: str) -> None:
    errors = [
        softmax_error(Devices(kernels, arch, schedule=s), "softmax", 2, 1000) for s in SCHEDULES
    ]
    assert max(errors) <= 1


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_sweep_over_schedules_finds_the_missing_barrier(kernels: Path, arch: str) -> None:
    errors = [
        softmax_error(Devices(kernels, arch, schedule=s), "racing_softmax", 2, 1000)
        for s in SCHEDULES
    ]
    wrong = [e > 1 for e in errors]
    assert any(wrong), "no schedule showed the race"
    # It is a race, not a plain mistake: some schedules hide it.
    assert not all(wrong)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rmsnorm_of_bf16_rows_rounds_once(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch)
    rows, width, epsilon = 3, 2048, 1e-5
    values = (normal(rows, width, seed=11) * torch.tensor([[1.0], [1e-3], [300.0]])).to(
        torch.bfloat16
    )
    weights = (1 + 0.2 * normal(width, seed=12)).to(torch.bfloat16)
    out = devices.poisoned(2 * rows * width)
    arrays = [devices.array(a) for a in (values, weights)]
    devices.launch("rmsnorm")(*arrays, out, rows, epsilon)
    exact = values.to(torch.float64)
    mean = (exact * exact).mean(1, keepdim=True)
    # epsilon is an f32 argument.
    wanted = exact / torch.sqrt(mean + float(torch.tensor(epsilon))) * weights.to(torch.float64)
    # The sum: a square, seven additions of a work-item, six across lanes, three across waves; epsilon. Its
    # root halves that. v_rsq_f32 is within one unit (CDNA3 ISA, V_RSQ_F32), two products round.
    relative = (18 / 2 + 2 + 2) * _U32
    reached = wanted.abs() * (1 + relative)
    half_unit = torch.ldexp(torch.ones_like(reached), torch.frexp(reached).exponent - 9)
    tolerance = half_unit + relative * wanted.abs() + 2.0**-133
    assert worst(devices.read(out, values), wanted, tolerance) <= 1
