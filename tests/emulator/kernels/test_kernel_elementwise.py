"""Vector additions: the ragged edge by a test in the kernel, and by a buffer descriptor's size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernel_kit import ARCHITECTURES, Devices, normal

from mono_build.emulator.engine import Schedule


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


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_launches_of_one_stream_run_in_their_order(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch, schedule=Schedule(quantum=8, seed=1))
    first = normal(1000, seed=6)
    place, out = devices.array(first), devices.poisoned(4000)
    launch = devices.launch("vector_add")
    launch(place, place, out, 1000)
    for _ in range(3):
        launch(out, out, out, 1000)
    # Doubling is exact.
    assert torch.equal(devices.read(out, first), 16 * first)


def test_a_grid_may_be_larger_than_what_the_device_holds_at_once(kernels: Path) -> None:
    devices = Devices(kernels, "gfx950")
    # 256 compute units hold 8 workgroups of four waves each at most: 2048.
    count = 2300 * 256 + 5
    values = normal(count, seed=7)
    place, out = devices.array(values), devices.poisoned(4 * count)
    devices.launch("vector_add")(place, place, out, count)
    assert torch.equal(devices.read(out, values), 2 * values)
