"""Residency: whether a persistent grid fits on a GPU all at once. If not, its workgroups deadlock."""

from __future__ import annotations

from mono_build.errors import ResidencyError
from mono_runtime.artefact import Artefact, KernelResources
from mono_runtime.expressions import Expression
from mono_runtime.launch_plan import Dispatch
from mono_runtime.occupancy import constant_product, workgroups_per_compute_unit
from mono_runtime.targets import TARGETS, Product, Target


def prove_residency(artefact: Artefact, devices: tuple[Product, ...]) -> None:
    """Raise `ResidencyError` unless each grid of a persistent launch is resident on every device.

    A launch that is not persistent passes: its workgroups do not wait for each other.
    """
    if not artefact.plan.persistent:
        return
    objects = {c.digest: {k.symbol: k for k in c.kernels} for c in artefact.code_objects}
    for dispatch in artefact.plan.dispatches:
        kernel = objects[dispatch.code_object][dispatch.symbol]
        check_residency(TARGETS[artefact.arch], devices, dispatch, kernel)


def check_residency(
    target: Target, devices: tuple[Product, ...], dispatch: Dispatch, kernel: KernelResources
) -> None:
    """Raise `ResidencyError` unless the whole grid of ``dispatch`` is resident on every device."""
    grid = _static(dispatch.grid, "grid", dispatch.symbol)
    threads = _static(dispatch.block, "block", dispatch.symbol)
    lds = _static((dispatch.dynamic_lds,), "dynamic LDS", dispatch.symbol)
    if threads > kernel.max_workgroup:
        raise ResidencyError(
            f"{dispatch.symbol} launches {threads} work-items a workgroup,"
            f" its code object allows {kernel.max_workgroup}"
        )
    each = workgroups_per_compute_unit(target, kernel, threads, lds)
    for device in devices:
        room = each * device.compute_units
        if grid > room:
            raise ResidencyError(
                f"{dispatch.symbol} would deadlock on {device.name}: its {grid} workgroups wait for"
                f" each other, and {device.compute_units} compute units hold {room}",
                where=f"{kernel.lds + lds} B LDS, {kernel.vgpr} VGPRs, {threads} work-items",
                fix="build for a device with more compute units (--device), or a narrower launch",
            )


def _static(values: tuple[Expression, ...], what: str, symbol: str) -> int:
    size = constant_product(values)
    if size is None:
        raise ResidencyError(
            f"{symbol} is persistent and its {what} depends on arguments, so residency has no proof"
        )
    return size
