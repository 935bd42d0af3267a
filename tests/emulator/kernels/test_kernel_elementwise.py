"""Vector additions: the ragged edge by a test in the kernel, and by a buffer descriptor's size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernel_kit import ARCHITECTURES, Devices, normal


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("count", [1, 63, 256, 1000])
def test_a_vector_addition_stops_at_a_ragged_edge(kernels: Path, arch: str, count: int) -> None:
    devices = Devices(kernels, arch)
    left, right = normal(count, seed=1), normal(count, seed=2)
    out = devices.array(torch.full((count,), 9.0), room=64)
    devices.launch("vector_add")(devices.array(left), devices.array(right), out, count)
    # One addition of two f32 rounds once, on either side.
    assert torch.equal(devices.read(out, left), left + right)
    assert devices.driver.read(0, out + 4 * count, 64) == b"\xa5" * 64


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_descriptor_makes_loads_behind_the_end_zero_and_drops_stores(
    kernels: Path, arch: str
) -> None:
    devices = Devices(kernels, arch)
    count, threads = 300, 512
    left, right = normal(threads, seed=3), normal(threads, seed=4)
    out = devices.array(torch.full((threads,), 9.0))
    # Without the descriptor's bounds every one of the 512 work-items would read and write its own place.
    devices.launch("bounded_add")(devices.array(left), devices.array(right), out, count)
    expected = torch.full((threads,), 9.0)
    expected[:count] = left[:count] + right[:count] + 1.0
    assert torch.equal(devices.read(out, expected), expected)


def test_accesses_through_a_descriptor_stay_inside_a_smaller_allocation(kernels: Path) -> None:
    devices = Devices(kernels, "gfx950")
    values = normal(300, seed=5)
    place = devices.array(values)
    devices.launch("bounded_add")(place, place, place, 300)
    assert torch.equal(devices.read(place, values), values + values + 1.0)
