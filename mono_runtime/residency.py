"""Residency on the real device: whether a persistent launch's workgroups are all there at once.

They wait for each other, so a grid that does not fit never ends. What counts is the device with the
launch alone on it; kernels on other streams end and make room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mono_runtime.artefact import Artefact, KernelResources
from mono_runtime.canonical import Json
from mono_runtime.driver import Device, Driver
from mono_runtime.errors import NotResident, StoreDamaged
from mono_runtime.expressions import Expression
from mono_runtime.launch_plan import Dispatch
from mono_runtime.occupancy import constant_product, workgroups_per_compute_unit
from mono_runtime.targets import TARGETS, Target, product_named

WHOLE = "SPX"
# Lanes; CDNA has no other. Another figure would make the arithmetic a guess.
_WAVE = 64


@dataclass(frozen=True, slots=True)
class Fit:
    """How one dispatch fits.

    Attributes:
        symbol: its kernel.
        workgroups: of its grid.
        threads: work-items of a workgroup.
        dynamic_lds: bytes.
        computed: workgroups of a compute unit by our arithmetic from the resource figures.
        reported: the same by the driver; None when it cannot tell.
    """

    symbol: str
    workgroups: int
    threads: int
    dynamic_lds: int
    computed: int
    reported: int | None

    @property
    def each(self) -> int:
        """Workgroups that a compute unit holds for certain: the smaller of the two answers."""
        return self.computed if self.reported is None else min(self.computed, self.reported)

    @property
    def disagreement(self) -> bool:
        """Whether the driver's answer differs from our arithmetic."""
        return self.reported is not None and self.reported != self.computed


@dataclass(frozen=True, slots=True)
class Residency:
    """The proof that a launch can run on a device, or that it needs none.

    Attributes:
        persistent: whether its workgroups wait for each other; if not, any grid runs.
        device: the device's product name.
        architecture: its base name and feature flags.
        compute_units: of the device in its partition mode.
        partition: that mode, or None when it is not known.
        fits: one a dispatch of a persistent launch.
    """

    persistent: bool
    device: str
    architecture: str
    compute_units: int
    partition: str | None
    fits: tuple[Fit, ...] = ()

    @property
    def disagreements(self) -> tuple[Fit, ...]:
        """The dispatches for which the driver's answer differs from our arithmetic."""
        return tuple(f for f in self.fits if f.disagreement)

    def to_json(self) -> Json:
        return {
            "persistent": self.persistent,
            "device": self.device,
            "architecture": self.architecture,
            "compute_units": self.compute_units,
            "partition": self.partition,
            "fits": [{**asdict(f), "each": f.each} for f in self.fits],
        }


def require_resident(
    artefact: Artefact,
    device: Device,
    driver: Driver,
    functions: Sequence[int],
    *,
    launch: object = None,
) -> Residency:
    """Prove that every grid of a persistent launch fits on ``device`` all at once.

    A compute unit holds what both our arithmetic and the driver say; times the compute units that the
    device has in its partition mode. A launch that is not persistent passes.

    Args:
        functions: the driver's kernels, one a dispatch of the plan.
        launch: what to call it in messages, such as its launch key; by default the kernel's symbol.

    Raises:
        NotResident: a grid does not fit, depends on arguments, or the device is restricted to an
            unknown part of its compute units.
        StoreDamaged: the artefact has no usable resource figures for a kernel.
    """
    fits: list[Fit] = []
    if artefact.plan.persistent:
        for dispatch, function in zip(artefact.plan.dispatches, functions, strict=True):
            name = str(launch or dispatch.symbol)
            _refuse_restricted(device, name)
            fit = _fit(artefact, dispatch, function, device, driver, name)
            _refuse_larger(fit, device, driver, name)
            fits.append(fit)
    return Residency(
        artefact.plan.persistent,
        device.name,
        str(device.architecture),
        device.compute_units,
        device.partition,
        tuple(fits),
    )


def describe(device: Device) -> str:
    """``device`` in words: product, architecture, compute units, partition mode, and what a whole one has."""
    facts = [str(device.architecture), f"{device.compute_units} compute units"]
    if device.partition is not None:
        facts.append(f"partition mode {device.partition}")
    product = product_named(device.name)
    if product is not None and device.compute_units < product.compute_units:
        facts.append(f"a whole {product.name} has {product.compute_units}")
    return f"device {device.ordinal}, {device.name} ({', '.join(facts)})"


def _refuse_restricted(device: Device, name: str) -> None:
    if device.restriction is not None:
        raise NotResident(
            f"{name} is persistent and the compute units of {describe(device)} are restricted, so it"
            f" cannot be known how many serve it: {device.restriction}",
            where=name,
            fix="lift the restriction before the server starts (unset HSA_CU_MASK and"
            " ROC_GLOBAL_CU_MASK, or whatever it names)",
        )


def _fit(
    artefact: Artefact, dispatch: Dispatch, function: int, device: Device, driver: Driver, name: str
) -> Fit:
    kernel = _figures(artefact, dispatch, name)
    workgroups = _constant(dispatch.grid, "grid", name)
    threads = _constant(dispatch.block, "block", name)
    lds = _constant((dispatch.dynamic_lds,), "dynamic LDS", name)
    if workgroups < 1 or not 1 <= threads <= kernel.max_workgroup or lds < 0:
        raise StoreDamaged(
            f"a launch of {workgroups} workgroups of {threads} work-items, where the kernel allows"
            f" 1 to {kernel.max_workgroup}",
            where=f"{name}, kernel {dispatch.symbol}",
            fix="rebuild the store with mono-build",
        )
    computed = workgroups_per_compute_unit(_target(artefact, name), kernel, threads, lds)
    reported = driver.workgroups_per_compute_unit(device.ordinal, function, threads, lds)
    return Fit(dispatch.symbol, workgroups, threads, lds, computed, reported)


def _figures(artefact: Artefact, dispatch: Dispatch, name: str) -> KernelResources:
    for code in artefact.code_objects:
        for kernel in code.kernels:
            found = code.digest == dispatch.code_object and kernel.symbol == dispatch.symbol
            if found and kernel.wavefront == _WAVE:
                return kernel
    raise StoreDamaged(
        f"the artefact has no usable resource figures for the kernel {dispatch.symbol}",
        where=name,
        fix="rebuild the store with mono-build",
    )


def _target(artefact: Artefact, name: str) -> Target:
    target = TARGETS.get(artefact.arch)
    if target is None:
        raise StoreDamaged(f"the artefact is for {artefact.arch}, which is not known", where=name)
    return target


def _constant(values: tuple[Expression, ...], what: str, name: str) -> int:
    size = constant_product(values)
    if size is None:
        raise NotResident(
            f"{name} is persistent and its {what} depends on arguments, so it cannot be known"
            " whether it fits on the device",
            where=name,
            fix="build the launch with a constant grid, block and LDS",
        )
    return size


def _refuse_larger(fit: Fit, device: Device, driver: Driver, name: str) -> None:
    room = fit.each * device.compute_units
    if fit.workgroups <= room:
        return
    reported = "no answer" if fit.reported is None else str(fit.reported)
    raise NotResident(
        f"{name} would never end on {describe(device)}: its {fit.workgroups} workgroups wait for"
        f" each other, and {room} fit at once",
        where=f"kernel {fit.symbol}, {fit.threads} work-items a workgroup; workgroups a compute unit"
        f" holds: {fit.computed} by its resource figures, {reported} by {driver.name}",
        fix=_advice(fit, device),
    )


def _advice(fit: Fit, device: Device) -> str:
    if fit.each == 0:
        return (
            "not one workgroup fits on a compute unit: use a store that was built for this"
            " architecture, or build a launch that takes less LDS and fewer registers"
        )
    needed = -(-fit.workgroups // fit.each)
    product = product_named(device.name)
    whole = product.compute_units if product is not None else 0
    divided = device.partition not in (None, WHOLE) or device.compute_units < whole
    if divided and (product is None or whole >= needed):
        return (
            f"set the GPU to {WHOLE} mode (amd-smi set --gpu all --compute-partition {WHOLE}), use"
            f" another one with {needed} compute units, or build for fewer workgroups"
        )
    return f"use a GPU with at least {needed} compute units, or build for fewer workgroups"
