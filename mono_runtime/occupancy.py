"""Occupancy: how many workgroups of a kernel one compute unit holds at once, from resource figures."""

from __future__ import annotations

from math import prod

from mono_runtime.artefact import KernelResources
from mono_runtime.expressions import Const, Expression
from mono_runtime.targets import Target


def workgroups_per_compute_unit(
    target: Target, kernel: KernelResources, threads: int, dynamic_lds: int = 0
) -> int:
    """How many workgroups of ``threads`` work-items one compute unit holds at once.

    Bounded by LDS (bytes, rounded up to the allocation granule) and by wave slots and registers of
    each SIMD. AGPRs are counted beside VGPRs, which never overestimates.
    """
    waves = -(-threads // kernel.wavefront)
    registers = _rounded(kernel.vgpr + kernel.agpr, target.granule)
    slots = min(target.waves, target.registers // max(registers, target.granule))
    by_waves = slots // -(-waves // target.simds)
    lds = _rounded(kernel.lds + dynamic_lds, target.lds_granule)
    by_lds = target.lds // lds if lds else by_waves
    return min(by_waves, by_lds)


def constant_product(values: tuple[Expression, ...]) -> int | None:
    """The product of ``values`` (workgroups of a grid, work-items of a block); None if one is not constant."""
    numbers = [v.value for v in values if isinstance(v, Const)]
    return prod(numbers) if len(numbers) == len(values) else None


def _rounded(value: int, granule: int) -> int:
    return -(-value // granule) * granule
