"""Launches of the emulated devices: what the scheduler needs of one, and what it left behind."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from mono_build.emulator.code import LoadedCode
from mono_build.emulator.engine import (
    NONE,
    LaunchState,
    LaunchStruct,
    RangeStruct,
    SegmentCountsStruct,
)
from mono_build.emulator.objects import Kernel


@dataclass(frozen=True, slots=True)
class Module:
    """A loaded code object: where its bytes lie is ``base`` plus a code object's address."""

    device: int
    code: LoadedCode
    base: int
    memory: int


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel of a module."""

    module: int
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one segment of the code moved in all its executions on all waves, of active lanes."""

    global_read: int
    global_written: int
    lds_read: int
    lds_written: int


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """What one finished launch did.

    Attributes:
        counts: how often each segment of the code was entered.
        traffic: what each segment moved.
        instructions: wave-instructions in all.
        global_read, global_written, lds_read, lds_written: bytes, of active lanes.
        sleeps: ``s_sleep`` executed: mostly polls that found nothing.
    """

    symbol: str
    device: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    code: LoadedCode
    counts: tuple[int, ...]
    traffic: tuple[Traffic, ...]
    instructions: int
    global_read: int
    global_written: int
    lds_read: int
    lds_written: int
    sleeps: int


@dataclass
class Launch:
    """One launch between its submission and its end, with everything that must live as long."""

    function: Function
    module: Module
    device: int
    stream: int
    struct: LaunchStruct
    counts: ctypes.Array[SegmentCountsStruct]
    sites: ctypes.Array[RangeStruct]
    kernargs: int
    failure: Exception | None = None
    finished_at: float | None = None
    record: LaunchRecord | None = field(default=None)

    @property
    def state(self) -> LaunchState:
        """Where it is."""
        return LaunchState(self.struct.state)

    @property
    def is_done(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.state in (LaunchState.FINISHED, LaunchState.STOPPED)

    def forget_sites(self) -> None:
        """Drop what accesses remember of allocations, because one is gone."""
        ctypes.memset(self.sites, 0, ctypes.sizeof(self.sites))

    def finish(self) -> LaunchRecord:
        """What it did; to be called once, when it has finished."""
        counters = self.struct.counters
        self.record = LaunchRecord(
            symbol=self.function.kernel.symbol,
            device=self.device,
            grid=tuple(self.struct.grid),
            block=tuple(self.struct.block),
            code=self.module.code,
            counts=tuple(c.executions for c in self.counts),
            traffic=tuple(
                Traffic(c.global_read, c.global_written, c.lds_read, c.lds_written)
                for c in self.counts
            ),
            instructions=counters.instructions,
            global_read=counters.global_read,
            global_written=counters.global_written,
            lds_read=counters.lds_read,
            lds_written=counters.lds_written,
            sleeps=counters.yields,
        )
        return self.record


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is laid out: workgroups, work-items, bytes of LDS that the caller adds."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int


def make_launch(
    function: Function, module: Module, stream: int, shape: Shape, capacity: int, kernargs: int
) -> Launch:
    """A launch whose arguments lie at ``kernargs``; ``capacity`` workgroups run at once."""
    kernel, code = function.kernel, module.code
    counts = (SegmentCountsStruct * len(code.flow.segments))()
    sites = (RangeStruct * max(1, code.sites))()
    register, word, count = kernel.preload
    struct = LaunchStruct(
        code=code.table,
        kernargs=kernargs,
        code_base=module.base,
        grid=shape.grid,
        block=shape.block,
        lds_size=kernel.resources.lds + shape.dynamic_lds,
        rows=code.rows,
        scratch_size=kernel.resources.scratch,
        entry=code.entries[kernel.symbol],
        user_sgprs=kernel.user_sgprs,
        kernarg_sgpr=NONE if kernel.kernarg_sgpr is None else kernel.kernarg_sgpr,
        dispatch_sgpr=NONE if kernel.dispatch_sgpr is None else kernel.dispatch_sgpr,
        preload_sgpr=register,
        preload_count=count,
        preload_offset=word,
        group_ids=kernel.group_ids,
        stream=stream,
        device=module.device,
        capacity=capacity,
        mode=kernel.mode,
        counts=ctypes.addressof(counts),
        sites=ctypes.addressof(sites),
    )
    return Launch(function, module, module.device, stream, struct, counts, sites, kernargs)
