"""The scheduler's C library from Python: its structures, and one object that owns a scheduler."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from mono_build.emulator.code import engine_library
from mono_build.emulator.compiler import find_compiler

_U32, _U64, _POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
NONE = 0xFFFFFFFF


class Outcome(IntEnum):
    """Why `Engine.run` came back."""

    IDLE = 0
    MORE = 1
    FAULT = 2
    DEADLOCK = 3
    MEMORY = 4


class FaultKind(IntEnum):
    """What a wave did that it must not."""

    NONE = 0
    GLOBAL = 1
    LDS = 2
    SCRATCH = 3
    UNKNOWN = 4
    TARGET = 5
    TRAP = 6


class LaunchState(IntEnum):
    """Where a launch is."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    STOPPED = 3


class WaveState(IntEnum):
    """What a wave does."""

    READY = 0
    AT_BARRIER = 1
    ENDED = 2


class RangeStruct(ctypes.Structure):
    """`struct range` of wave.h."""

    _fields_ = (("start", _U64), ("end", _U64))


class MapStruct(ctypes.Structure):
    """`struct memory_map` of wave.h."""

    _fields_ = (("ranges", ctypes.POINTER(RangeStruct)), ("count", _U64))


class CountersStruct(ctypes.Structure):
    """`struct counters` of wave.h."""

    _fields_ = (
        ("instructions", _U64),
        ("global_read", _U64),
        ("global_written", _U64),
        ("lds_read", _U64),
        ("lds_written", _U64),
        ("yields", _U64),
        ("turns", _U64),
    )


class SegmentCountsStruct(ctypes.Structure):
    """`struct segment_counts` of wave.h."""

    _fields_ = (
        ("executions", _U64),
        ("global_read", _U64),
        ("global_written", _U64),
        ("lds_read", _U64),
        ("lds_written", _U64),
    )


class LaunchStruct(ctypes.Structure):
    """`struct launch` of wave.h."""

    _fields_ = (
        ("code", _POINTER),
        ("kernargs", _U64),
        ("code_base", _U64),
        ("memory", ctypes.POINTER(MapStruct)),
        ("grid", _U32 * 3),
        ("block", _U32 * 3),
        ("lds_size", _U32),
        ("rows", _U32),
        ("scratch_size", _U32),
        ("entry", _U32),
        ("user_sgprs", _U32),
        ("kernarg_sgpr", _U32),
        ("dispatch_sgpr", _U32),
        ("preload_sgpr", _U32),
        ("preload_count", _U32),
        ("preload_offset", _U32),
        ("dispatch", _U64),
        ("group_ids", _U32),
        ("stream", _U32),
        ("device", _U32),
        ("capacity", _U32),
        ("mode", _U32),
        ("counts", _POINTER),
        ("sites", _POINTER),
        ("counters", CountersStruct),
        ("next_group", _U64),
        ("live_groups", _U64),
        ("ended_groups", _U64),
        ("state", _U32),
        ("next", _POINTER),
    )


class FaultStruct(ctypes.Structure):
    """`struct fault` of wave.h."""

    _fields_ = (
        ("kind", _U32),
        ("instruction", _U32),
        ("lane", _U32),
        ("bytes", _U32),
        ("is_write", _U32),
        ("reserved", _U32),
        ("address", _U64),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("quantum", _U64),
        ("seed", _U64),
        ("is_random", _U32),
        ("poison", _U32),
        ("patience", _U64),
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """How waves take turns.

    Attributes:
        quantum: wave-instructions a turn (a turn ends behind the segment that reaches it).
        seed: None: in order, the same turns for all; else random turns of up to ``quantum``, now and
            then a longer one, and waves that stand still for a while.
        patience: instructions a waiting wave may take in which nothing in memory changes and no wave
            ends, before nobody is taken to move.
        poison: what registers and LDS hold at the start.
    """

    quantum: int = 512
    seed: int | None = None
    patience: int = 20_000
    poison: int = 0xDEADBEEF


@dataclass(frozen=True, slots=True)
class WavePlace:
    """Where a wave is, for reports."""

    device: int
    group: tuple[int, int, int]
    number: int
    segment: int
    state: WaveState
    launch: int


class Engine:
    """One scheduler. Not for several threads at once."""

    def __init__(self, schedule: Schedule) -> None:
        self._library = _library()
        options = _Options(
            quantum=schedule.quantum,
            seed=schedule.seed or 0,
            is_random=schedule.seed is not None,
            poison=schedule.poison,
            patience=schedule.patience,
        )
        self._engine = self._library.engine_create(ctypes.byref(options))

    def submit(self, launch: LaunchStruct) -> None:
        """Queue a launch behind the others of its stream; the caller keeps ``launch`` alive."""
        self._library.engine_submit(self._engine, ctypes.byref(launch))

    def run(self, budget: int) -> Outcome:
        """Run about ``budget`` wave-instructions."""
        return Outcome(self._library.engine_run(self._engine, budget))

    def abort(self) -> None:
        """Throw away every launch that is not finished."""
        self._library.engine_abort(self._engine)

    def close(self) -> None:
        """Release the scheduler."""
        if self._engine:
            self._library.engine_destroy(self._engine)
            self._engine = None

    @property
    def clock(self) -> int:
        """Wave-instructions executed so far."""
        return int(self._library.engine_clock(self._engine))

    def fault(self) -> tuple[FaultStruct, WavePlace]:
        """What stopped the scheduler with `Outcome.FAULT`, and the wave that did it."""
        wave = self._library.engine_fault(self._engine)
        fault = ctypes.cast(self._library.engine_fault_of(wave), ctypes.POINTER(FaultStruct))
        return fault.contents, self._place(wave)

    def waves(self) -> Iterator[WavePlace]:
        """Every wave that has started and not ended."""
        wave = self._library.engine_next_wave(self._engine, None)
        while wave:
            yield self._place(wave)
            wave = self._library.engine_next_wave(self._engine, wave)

    def _place(self, wave: int) -> WavePlace:
        group = (_U32 * 3)()
        number, segment, state, device = _U32(), _U32(), _U32(), _U32()
        launch = _POINTER()
        found = [ctypes.byref(x) for x in (number, segment, state, device, launch)]
        self._library.engine_describe(wave, group, *found)
        return WavePlace(
            device.value,
            (group[0], group[1], group[2]),
            number.value,
            segment.value,
            WaveState(state.value),
            launch.value or 0,
        )


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(engine_library(find_compiler())))
    library.engine_create.restype = _POINTER
    library.engine_create.argtypes = (_POINTER,)
    library.engine_destroy.argtypes = (_POINTER,)
    library.engine_submit.argtypes = (_POINTER, _POINTER)
    library.engine_run.argtypes = (_POINTER, _U64)
    library.engine_abort.argtypes = (_POINTER,)
    library.engine_fault.restype = _POINTER
    library.engine_fault.argtypes = (_POINTER,)
    library.engine_fault_of.restype = _POINTER
    library.engine_fault_of.argtypes = (_POINTER,)
    library.engine_next_wave.restype = _POINTER
    library.engine_next_wave.argtypes = (_POINTER, _POINTER)
    library.engine_describe.argtypes = (_POINTER,) * 7
    library.engine_clock.restype = _U64
    library.engine_clock.argtypes = (_POINTER,)
    return library
