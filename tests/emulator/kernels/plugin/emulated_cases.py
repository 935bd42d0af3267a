"""Cases of some of the test kernels: right ones, wrong ones, and some that have none."""

from __future__ import annotations

import torch

from mono_build.emulator.cases.case import (
    Address,
    Buffer,
    Call,
    Case,
    Memory,
    NoCase,
    Step,
    holding,
    zeros,
)
from mono_build.emulator.cases.compare import Comparison, compare, equal
from mono_build.emulator.references.bounded import exact, uncertain
from mono_runtime.launch_key import LaunchKey


def case(key: LaunchKey, seed: int) -> Case:
    """The case of a launch, by its name."""
    make = _CASES.get(key.launch)
    if make is None:
        raise NoCase(f"no reference for {key.family}/{key.launch}")
    generator = torch.Generator()
    generator.manual_seed(seed)
    buffers, calls, check = make(generator)
    # Which work-item gets which ticket depends on the schedule. Only one of the two cases says so.
    varies = key.launch == "histogram" and key.arch == "gfx950"
    return Case(
        f"emulated {key.launch}",
        key.family,
        key.arch,
        seed,
        tuple(buffers),
        (Step(tuple(Call(r, key.launch, key.values, a) for r, a in enumerate(calls)), check),),
        varies=varies,
    )


def _floats(memory: Memory, rank: int, name: str, *shape: int) -> torch.Tensor:
    size = 4 * torch.Size(shape).numel()
    return memory.read(rank, name, 0, size).view(torch.float32).view(shape)


def _sum(generator: torch.Generator):
    """1000 additions: of a kernel that goes beyond them, the stores are wild."""
    count = 1000
    left, right = (torch.randn(1024, generator=generator) for _ in range(2))
    buffers = {"left": holding(left), "right": holding(right), "out": Buffer(4 * count, fill=0x7B)}
    arguments = {n: Address(n) for n in buffers} | {"count": count}

    def check(memory: Memory) -> list[Comparison]:
        want = exact((left + right)[:count])
        return [compare("sums", _floats(memory, 0, "out", count), want, "f32")]

    return [buffers], [arguments], check


def _softmax(generator: torch.Generator):
    rows, count = 2, 1000
    values = 8 * torch.randn(rows, count, generator=generator)
    # As in test_kernel_reductions: a reduction that reads another row's maximum is far off.
    values[:, count // 2] += 20
    buffers = {"values": holding(values), "out": Buffer(4 * rows * count, fill=0x7B)}
    arguments = {"values": Address("values"), "out": Address("out"), "count": count, "rows": rows}
    want = values.double().softmax(1)

    def check(memory: Memory) -> list[Comparison]:
        # 64 units of f32: the exponents reach 60, and each of their roundings counts ln 2 times that.
        bounded = uncertain(want, want * 64 * 2.0**-23 + 2.0**-126)
        return [compare("softmax", _floats(memory, 0, "out", rows, count), bounded, "f32")]

    return [buffers], [arguments], check


def _exchange(generator: torch.Generator):
    count = 8 * 256
    numbers = [torch.randn(count, generator=generator) for _ in range(2)]
    buffers = [
        {
            "own": holding(n),
            "mail": Buffer(4 * count, fill=0x7B, uncached=True),
            "flags": Buffer(32, fill=0, uncached=True),
            "out": Buffer(4 * count, fill=0x7B),
        }
        for n in numbers
    ]
    calls = [
        {
            **{n: Address(n) for n in ("own", "mail", "flags", "out")},
            "peer_mail": Address("mail", rank=1 - rank),
            "peer_flags": Address("flags", rank=1 - rank),
            "rank": rank,
        }
        for rank in range(2)
    ]

    def check(memory: Memory) -> list[Comparison]:
        want = exact(2 * numbers[0] + numbers[1])
        return [
            compare(f"sums, rank {r}", _floats(memory, r, "out", count), want, "f32")
            for r in range(2)
        ]

    return buffers, calls, check


def _histogram(generator: torch.Generator):
    keys = torch.randint(0, 18, (2048,), generator=generator, dtype=torch.int32)
    buffers = {
        "keys": holding(keys),
        "bins": zeros(4 * 18),
        "places": Buffer(4 * 2048, fill=0x7B),
        "total": zeros(4),
        "tickets": Buffer(4 * 2048, fill=0x7B),
    }
    arguments = {n: Address(n) for n in buffers} | {"groups": 8}

    def check(memory: Memory) -> list[Comparison]:
        tickets = memory.read(0, "tickets", 0, 4 * 2048).view(torch.int32)
        return [equal("tickets, sorted", tickets.sort().values, torch.arange(2048))]

    return [buffers], [arguments], check


_CASES = {
    "vector_add": _sum,
    # This kernel adds one.
    "bounded_add": _sum,
    "overrun": _sum,
    "softmax": _softmax,
    "racing_softmax": _softmax,
    "exchange": _exchange,
    "histogram": _histogram,
}
