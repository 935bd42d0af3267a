"""Atomics that return, a handshake of all workgroups, and two devices that write to each other."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch
from kernel_kit import ARCHITECTURES, Devices, generator, normal

from mono_build.emulator.engine import Schedule

_SCHEDULES = [Schedule(), Schedule(quantum=1), Schedule(quantum=200, seed=5)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_atomics_change_their_cell_and_return_what_was_there(kernels: Path, arch: str) -> None:
    chance = np.random.default_rng(31)
    operand = chance.integers(-(2**31), 2**31, 256).astype(np.int32)
    operand[:4] = (0, 7, -1, 1)
    cells = chance.integers(-(2**31), 2**31, (11, 256)).astype(np.int32)
    cells[9] = np.arange(256, dtype=np.float32).view(np.int32)
    cells[10, ::2] = 7
    devices = Devices(kernels, arch)
    place, old = devices.array(torch.from_numpy(cells)), devices.poisoned(cells.nbytes)
    devices.launch("returned")(place, devices.array(torch.from_numpy(operand)), old)
    signless = [cells[k].view(np.uint32) for k in range(11)]
    expected = np.stack(
        [
            (signless[0] + operand.view(np.uint32)).view(np.int32),
            (signless[1] - operand.view(np.uint32)).view(np.int32),
            np.minimum(cells[2], operand),
            np.maximum(cells[3], operand),
            cells[4] & operand,
            cells[5] | operand,
            cells[6] ^ operand,
            operand,
            np.maximum(signless[8], operand.view(np.uint32)).view(np.int32),
            (cells[9].view(np.float32) + operand.astype(np.float32)).view(np.int32),
            np.where(cells[10] == 7, operand, cells[10]),
        ]
    )
    like = torch.from_numpy(cells)
    assert np.array_equal(devices.read(old, like).numpy(), cells)
    assert np.array_equal(devices.read(place, like).numpy(), expected)


class Histogram:
    """The results of 2048 work-items that take places in 18 bins."""

    count, bins = 2048, 18

    def __init__(self, kernels: Path, arch: str, schedule: Schedule) -> None:
        devices, count = Devices(kernels, arch, schedule=schedule), self.count
        self.keys = torch.randint(0, self.bins, (count,), generator=generator(41)).to(torch.int32)
        sizes = torch.zeros(self.bins, dtype=torch.int32)
        bins, total = devices.array(sizes), devices.array(sizes[:1])
        places, tickets = devices.poisoned(4 * count), devices.poisoned(4 * count)
        launch = devices.launch("histogram")
        launch(devices.array(self.keys), bins, places, total, tickets, count // 256)
        self.places = devices.read(places, self.keys)
        self.tickets = devices.read(tickets, self.keys)
        self.sizes = devices.read(bins, sizes)
        self.total = int(devices.read(total, sizes[:1]))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("schedule", _SCHEDULES, ids=("in order", "one by one", "random"))
def test_no_two_work_items_get_the_same_place(kernels: Path, arch: str, schedule: Schedule) -> None:
    got = Histogram(kernels, arch, schedule)
    for key in range(got.bins):
        own = got.places[got.keys == key]
        assert sorted(own.tolist()) == list(range(len(own)))
        assert got.sizes[key] == len(own)
    assert sorted(got.tickets.tolist()) == list(range(got.count))
    assert got.total == got.count


def test_a_seed_stands_for_one_schedule(kernels: Path) -> None:
    def tickets(seed: int) -> torch.Tensor:
        return Histogram(kernels, "gfx950", Schedule(quantum=16, seed=seed)).tickets

    assert torch.equal(tickets(3), tickets(3))
    assert not torch.equal(tickets(3), tickets(4))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("schedule", _SCHEDULES, ids=("in order", "one by one", "random"))
def test_256_workgroups_wait_for_each_other(kernels: Path, arch: str, schedule: Schedule) -> None:
    devices = Devices(kernels, arch, schedule=schedule)
    flags = devices.array(torch.zeros(256, dtype=torch.int32))
    sums = devices.poisoned(4 * 512)
    devices.launch("handshake")(devices.poisoned(4 * 512), flags, sums, 256)
    # 1 + 2 + ... + 256, then twice that, for every workgroup.
    expected = torch.tensor([[32896] * 256, [65792] * 256], dtype=torch.int32)
    assert torch.equal(devices.read(sums, expected), expected)


class Exchange:
    """Both ranks' memory for one exchange."""

    def __init__(self, devices: Devices) -> None:
        count = 8 * 256
        for d in (0, 1):
            devices.driver.enable_peer_access(d, 1 - d)
        numbers = [normal(count, seed=50 + d) for d in (0, 1)]
        # Rank 0's doubled, plus rank 1's: the product is exact, so that one rounding is left.
        self.expected = 2 * numbers[0] + numbers[1]
        self._devices = devices
        self._own = [devices.array(numbers[d], d) for d in (0, 1)]
        self._mail = [devices.poisoned(4 * count, d) for d in (0, 1)]
        self._flags = [devices.array(torch.zeros(8, dtype=torch.int32), d) for d in (0, 1)]
        self._out = [devices.poisoned(4 * count, d) for d in (0, 1)]

    def launch(self, rank: int) -> None:
        """Queue a rank's half."""
        inboxes = [x for d in (rank, 1 - rank) for x in (self._mail[d], self._flags[d])]
        self._devices.launch("exchange", rank)(self._own[rank], *inboxes, self._out[rank], rank)

    def is_right(self, rank: int) -> bool:
        """Whether a rank has the result, once its launch has ended."""
        got = self._devices.read(self._out[rank], self.expected, rank)
        return torch.equal(got, self.expected)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("schedule", _SCHEDULES, ids=("in order", "one by one", "random"))
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_ranks_write_to_each_others_memory(
    kernels: Path, arch: str, schedule: Schedule, order: tuple[int, int]
) -> None:
    exchange = Exchange(Devices(kernels, arch, arch, schedule=schedule))
    for rank in order:
        exchange.launch(rank)
    assert exchange.is_right(0)
    assert exchange.is_right(1)


def test_a_rank_waits_for_one_that_another_thread_launches_later(kernels: Path) -> None:
    exchange = Exchange(Devices(kernels, "gfx950", "gfx950"))
    is_launched, right = Event(), []

    def first() -> None:
        exchange.launch(0)
        is_launched.set()
        right.append(exchange.is_right(0))

    thread = Thread(target=first)
    thread.start()
    assert is_launched.wait(60)
    exchange.launch(1)
    assert exchange.is_right(1)
    thread.join(60)
    assert right == [True]
