"""Run a case on a driver: allocate, write, launch every step on all ranks together, check."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.cases.case import Address, Buffer, Call, Case
from mono_build.emulator.cases.compare import Comparison
from mono_runtime.driver import Driver, Submit
from mono_runtime.errors import ArgumentMismatch, LaunchMissing
from mono_runtime.expressions import Expression, evaluate
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Dispatch, LaunchPlan
from mono_runtime.oci import StoreReader

# A call's launch plan and the bytes of its code objects by digest.
Find = Callable[[Call], tuple[LaunchPlan, Mapping[str, bytes]]]
# Writes are cut so that a large part is never copied as a whole.
_CHUNK = 64 << 20
_FORMATS = {"i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "ptr": "<q"}


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step's check found; ``launches`` are the names of what ran."""

    launches: tuple[str, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Whether every comparison passed."""
        return all(c.passed for c in self.comparisons)


class CaseMemory:
    """A case's buffers on the devices of a driver: rank ``r`` lives on device ``r``."""

    def __init__(self, driver: Driver, case: Case) -> None:
        """Allocate every buffer, then write what it holds.

        Raises:
            DriverError: there is not enough memory.
        """
        self._driver = driver
        self._addresses: list[dict[str, int]] = []
        try:
            for rank, buffers in enumerate(case.buffers):
                self._addresses.append({})
                for name, buffer in buffers.items():
                    self._addresses[rank][name] = driver.allocate(
                        rank, buffer.size, uncached=buffer.uncached
                    )
            for rank, buffers in enumerate(case.buffers):
                for name, buffer in buffers.items():
                    self._write(rank, name, buffer)
        except BaseException:
            self.close()
            raise

    def address(self, rank: int, of: Address) -> int:
        """Where ``of`` lies for a caller on ``rank``."""
        return self._addresses[rank if of.rank is None else of.rank][of.buffer] + of.offset

    def read(self, rank: int, buffer: str, offset: int, size: int) -> Tensor:
        """``size`` bytes of a rank's buffer as a uint8 tensor."""
        data = self._driver.read(rank, self._addresses[rank][buffer] + offset, size)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def close(self) -> None:
        """Free everything; the second time does nothing."""
        addresses, self._addresses = self._addresses, []
        for rank, buffers in enumerate(addresses):
            for address in buffers.values():
                self._driver.free(rank, address)

    def _write(self, rank: int, name: str, buffer: Buffer) -> None:
        start = self._addresses[rank][name]
        if buffer.fill is not None:
            self._driver.fill(rank, start, buffer.fill, buffer.size)
        for part in buffer.parts:
            flat = part.tensor().contiguous().flatten().view(torch.uint8)
            for at in range(0, flat.numel(), _CHUNK):
                piece = flat[at : at + _CHUNK].numpy().tobytes()
                self._driver.write(rank, start + part.offset + at, piece)
        if buffer.table:
            table = [self.address(rank, entry) for entry in buffer.table]
            self._driver.write(rank, start, struct.pack(f"<{len(table)}q", *table))


def find_in(reader: StoreReader, case: Case) -> Find:
    """How a case's calls are found in a store.

    Raises (when it is asked):
        LaunchMissing: the store does not hold the launch that a call names.
        StoreDamaged: a blob is not what its digest says.
    """
    entries = reader.index.by_key()

    def find(call: Call) -> tuple[LaunchPlan, Mapping[str, bytes]]:
        key = LaunchKey.of(case.family, call.launch, case.arch, call.build)
        entry = entries.get(key)
        if entry is None:
            raise LaunchMissing(
                f"the store does not hold {call.launch} of {case.name}",
                where=str(reader.path),
                fix="build it, or choose another launch",
            )
        artefact = reader.artefact(entry.artefact)
        return artefact.plan, {c.digest: reader.blob(c.digest) for c in artefact.code_objects}

    return find


def run(case: Case, driver: Driver, find: Find) -> list[StepResult]:
    """Run every step of a case and its check.

    Raises:
        DriverError: a launch failed (an emulator: a wild access, a deadlock, an unknown instruction).
        ArgumentMismatch: a call lacks an argument of its launch plan, or has one too many.
    """
    memory = CaseMemory(driver, case)
    modules: list[tuple[int, int]] = []
    try:
        results = []
        for step in case.steps:
            submits = [
                s for call in step.calls for s in _prepare(driver, memory, call, find, modules)
            ]
            for submit in submits:
                submit(0)
            for rank in range(case.ranks):
                driver.synchronize(rank)
            names = tuple(dict.fromkeys(call.launch for call in step.calls))
            results.append(StepResult(names, tuple(step.check(memory))))
        return results
    finally:
        for device, module in modules:
            driver.unload_module(device, module)
        memory.close()


def _prepare(
    driver: Driver, memory: CaseMemory, call: Call, find: Find, modules: list[tuple[int, int]]
) -> list[Submit]:
    plan, codes = find(call)
    names = [a.name for a in plan.arguments]
    if set(names) != set(call.arguments):
        wrong = sorted(set(names) ^ set(call.arguments))
        raise ArgumentMismatch(
            f"{call.launch}: the case and the launch plan differ in arguments {wrong}",
            fix="the case is for other kernels; use the vLLM release that it names",
        )
    values = {
        name: memory.address(call.rank, v) if isinstance(v, Address) else int(v)
        for name, v in call.arguments.items()
    }
    submits = []
    for dispatch in plan.dispatches:
        module = driver.load_module(call.rank, codes[dispatch.code_object])
        modules.append((call.rank, module))
        submits.append(
            driver.prepare(
                call.rank,
                driver.function(module, dispatch.symbol),
                _triple(dispatch.grid, values),
                _triple(dispatch.block, values),
                evaluate(dispatch.dynamic_lds, values),
                _kernargs(dispatch, values),
            )
        )
    return submits


def _triple(
    of: tuple[Expression, Expression, Expression], values: Mapping[str, int]
) -> tuple[int, int, int]:
    return evaluate(of[0], values), evaluate(of[1], values), evaluate(of[2], values)


def _kernargs(dispatch: Dispatch, values: Mapping[str, int]) -> bytearray:
    data = bytearray(dispatch.kernarg_size)
    for argument in dispatch.arguments:
        struct.pack_into(
            _FORMATS[argument.type], data, argument.offset, evaluate(argument.value, values)
        )
    return data
