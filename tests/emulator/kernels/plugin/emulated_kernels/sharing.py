"""Workgroups and devices that share memory: atomics, a handshake of all workgroups, an exchange of two ranks."""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import gpu, rocdl
from flydsl.expr.typing import Float32, Int32, Int64

from emulated_kernels.device import STREAM, Build, element, load, store

_RELAXED = fx.AtomicOrdering.Monotonic


def returned(build: Build) -> object:
    """One cell a work-item and operation: the operation, and what it returned.

    Cells and results: i32 [operation, work-item], in the order of the list below; then f32 addition.
    """
    block = build.block

    @flyc.kernel(name="emulated_returned", known_block_size=[block, 1, 1])
    def apply(cells: Int64, operands: Int64, old: Int64):
        item = fx.thread_idx.x
        value = load(operands, item, Int32)
        operations = (
            fx.atomic_add,
            fx.atomic_sub,
            fx.atomic_min,
            fx.atomic_max,
            fx.atomic_and,
            fx.atomic_or,
            fx.atomic_xor,
            fx.atomic_xchg,
        )
        for number, operation in enumerate(operations):
            at = item + number * block
            store(old, at, operation(element(cells, at, Int32), value), Int32)
        at = item + len(operations) * block
        unsigned = fx.atomic_max(element(cells, at, fx.Uint32), fx.Uint32(value))
        store(old, at, Int32(unsigned), Int32)
        at = at + block
        before = fx.atomic_add(element(cells, at, Float32), value.to(Float32))
        store(old, at, before, Float32)
        at = at + block
        swapped, _ = fx.atomic_cas(element(cells, at, Int32), Int32(7), value)
        store(old, at, swapped, Int32)

    @flyc.jit
    def launch(cells: Int64, operands: Int64, old: Int64, stream: fx.Stream = STREAM):
        apply(cells, operands, old).launch(grid=(1, 1, 1), block=(block, 1, 1), stream=stream)

    return launch


def histogram(build: Build) -> object:
    """Every work-item takes the next place of its key's bin, and of all."""
    block = build.block

    @flyc.kernel(name="emulated_histogram", known_block_size=[block, 1, 1])
    def count(keys: Int64, bins: Int64, places: Int64, total: Int64, tickets: Int64):
        at = fx.block_idx.x * block + fx.thread_idx.x
        key = load(keys, at, Int32)
        store(places, at, fx.atomic_add(element(bins, key, Int32), Int32(1)), Int32)
        store(tickets, at, fx.atomic_add(element(total, 0, Int32), Int32(1)), Int32)

    @flyc.jit
    def launch(
        keys: Int64,
        bins: Int64,
        places: Int64,
        total: Int64,
        tickets: Int64,
        groups: Int32,
        stream: fx.Stream = STREAM,
    ):
        count(keys, bins, places, total, tickets).launch(
            grid=(groups, 1, 1), block=(block, 1, 1), stream=stream
        )

    return launch


def _signal(flags: object, index: object, epoch: object, scope: object) -> None:
    """Everything that this workgroup has written is seen by who sees the flag."""
    fx.memory_fence(ordering=fx.AtomicOrdering.Release, syncscope=scope)
    gpu.barrier()
    fx.generic_store(element(flags, index, Int32), epoch, memory_order=_RELAXED, syncscope=scope)


def handshake(build: Build) -> object:
    """256 workgroups: each gives a number and waits until ``count`` have; twice, with other numbers.

    Sums: i32 [round, workgroup].
    """
    block = build.block
    scope = rocdl.SyncScope.Agent

    @flyc.kernel(name="emulated_handshake", known_block_size=[block, 1, 1])
    def meet(numbers: Int64, flags: Int64, sums: Int64, count: Int32):
        item, group = fx.thread_idx.x, fx.block_idx.x
        cells = fx.SharedAllocator().allocate(fx.Array[Int32, 1, 16]).peek()
        for epoch in range(1, 3):
            turn = fx.Int32(epoch)
            base = (turn - 1) * 256
            if item == 0:
                store(numbers, base + group, (group + 1) * turn, Int32)
                cells[0] = Int32(0)
            _signal(flags, group, turn, scope)
            for index in range(item, count, block):
                flag = element(flags, fx.Int32(index), Int32)
                seen = fx.generic_load(flag, memory_order=_RELAXED, syncscope=scope)
                while seen < turn:
                    rocdl.s_sleep(1)
                    seen = fx.generic_load(flag, memory_order=_RELAXED, syncscope=scope)
            fx.memory_fence(ordering=fx.AtomicOrdering.Acquire, syncscope=scope)
            gpu.barrier()
            fx.atomic_add(cells.ptr, load(numbers, base + item, Int32))
            gpu.barrier()
            if item == 0:
                store(sums, base + group, cells[0], Int32)
            gpu.barrier()

    @flyc.jit
    def launch(numbers: Int64, flags: Int64, sums: Int64, count: Int32, stream: fx.Stream = STREAM):
        meet(numbers, flags, sums, count).launch(
            grid=(256, 1, 1), block=(block, 1, 1), stream=stream
        )

    return launch


def exchange(build: Build) -> object:
    """One rank of two, 8 workgroups: gives its numbers to the other's mailbox, waits for its own, adds in rank order."""
    block = build.block
    scope = None  # the whole system

    @flyc.kernel(name="emulated_exchange", known_block_size=[block, 1, 1])
    def swap(
        own: Int64,
        mail: Int64,
        flags: Int64,
        peer_mail: Int64,
        peer_flags: Int64,
        out: Int64,
        rank: Int32,
    ):
        group = fx.block_idx.x
        at = group * block + fx.thread_idx.x
        mine = load(own, at, Float32)
        store(peer_mail, at, mine, Float32)
        _signal(peer_flags, group, Int32(1), scope)
        flag = element(flags, group, Int32)
        seen = fx.generic_load(flag, memory_order=_RELAXED)
        while seen == 0:
            rocdl.s_sleep(1)
            seen = fx.generic_load(flag, memory_order=_RELAXED)
        fx.memory_fence(ordering=fx.AtomicOrdering.Acquire)
        theirs = load(mail, at, Float32)
        first = (rank == 0).select(mine, theirs)
        second = (rank == 0).select(theirs, mine)
        store(out, at, first * 2.0 + second, Float32)

    @flyc.jit
    def launch(
        own: Int64,
        mail: Int64,
        flags: Int64,
        peer_mail: Int64,
        peer_flags: Int64,
        out: Int64,
        rank: Int32,
        stream: fx.Stream = STREAM,
    ):
        swap(own, mail, flags, peer_mail, peer_flags, out, rank).launch(
            grid=(8, 1, 1), block=(block, 1, 1), stream=stream
        )

    return launch
