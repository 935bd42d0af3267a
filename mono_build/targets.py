"""The GPUs that a build is proved for: those named on the command line, or the usual ones."""

from __future__ import annotations

from mono_build.errors import UsageError
from mono_runtime.targets import PRODUCTS, Product

# What a build is proved for when no device is named: the GPUs that vLLM's mono path admits.
DEFAULT_DEVICES = {"gfx942": ("MI300X", "MI325X"), "gfx950": ("MI350X", "MI355X")}


def check_devices(names: tuple[str, ...], archs: tuple[str, ...]) -> None:
    """Raise `UsageError` for a device that is unknown or that none of ``archs`` is built for."""
    for device in map(_device, names):
        if device.arch not in archs:
            raise UsageError(
                f"{device.name} is a {device.arch} device, and only {', '.join(archs)} is built",
                fix=f"add --arch {device.arch}, or leave the device out",
            )


def devices_for(arch: str, names: tuple[str, ...] = ()) -> tuple[Product, ...]:
    """The devices of ``arch`` to prove residency for; unknown or foreign names raise `UsageError`."""
    chosen = [_device(n) for n in names]
    mine = tuple(d for d in chosen if d.arch == arch)
    return mine or tuple(PRODUCTS[n] for n in DEFAULT_DEVICES[arch])


def _device(name: str) -> Product:
    device = PRODUCTS.get(name.upper())
    if device is None:
        raise UsageError(f"unknown device {name!r}", fix=f"known: {', '.join(PRODUCTS)}")
    return device
