"""The GPUs that launches are built for: ELF machine codes, and the limits that residency depends on."""

from __future__ import annotations

from dataclasses import dataclass

from mono_build.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture.

    Attributes:
        arch: base name.
        mach: ``EF_AMDGPU_MACH`` value of its objects (LLVM AMDGPUUsage, "ELF header e_flags").
        lds: bytes of LDS of a compute unit (CDNA3 and CDNA4 ISA documents, "LDS").
        simds: SIMDs of a compute unit.
        waves: waves that a SIMD can hold.
        registers: VGPRs and AGPRs together, per lane of a SIMD (LLVM AMDGPU "total VGPRs", gfx90a+).
        granule: registers are allocated in multiples of this.
        lds_granule: LDS is allocated in multiples of this many bytes (LLVM AMDGPU
            ``getLdsDwGranularity``: 128 dwords, 320 on gfx950).
    """

    arch: str
    mach: int
    lds: int
    lds_granule: int
    simds: int = 4
    waves: int = 8
    registers: int = 512
    granule: int = 8


TARGETS = {
    "gfx942": Target("gfx942", mach=0x4C, lds=64 * 1024, lds_granule=512),
    "gfx950": Target("gfx950", mach=0x4F, lds=160 * 1024, lds_granule=1280),
}


@dataclass(frozen=True, slots=True)
class Device:
    """A product: its architecture and the compute units of one unpartitioned GPU."""

    name: str
    arch: str
    compute_units: int
    source: str


# Compute units as AMD's data sheets give them for the whole accelerator (SPX mode).
DEVICES = {
    d.name: d
    for d in (
        Device("MI300X", "gfx942", 304, "AMD Instinct MI300X data sheet"),
        Device("MI325X", "gfx942", 304, "AMD Instinct MI325X data sheet"),
        Device("MI300A", "gfx942", 228, "AMD Instinct MI300A data sheet"),
        Device("MI308X", "gfx942", 80, "ROCm documentation, accelerator specifications"),
        Device("MI350X", "gfx950", 256, "AMD Instinct MI350X data sheet"),
        Device("MI355X", "gfx950", 256, "AMD Instinct MI355X data sheet"),
    )
}
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


def devices_for(arch: str, names: tuple[str, ...] = ()) -> tuple[Device, ...]:
    """The devices of ``arch`` to prove residency for; unknown or foreign names raise `UsageError`."""
    chosen = [_device(n) for n in names]
    mine = tuple(d for d in chosen if d.arch == arch)
    return mine or tuple(DEVICES[n] for n in DEFAULT_DEVICES[arch])


def _device(name: str) -> Device:
    device = DEVICES.get(name.upper())
    if device is None:
        raise UsageError(f"unknown device {name!r}", fix=f"known: {', '.join(DEVICES)}")
    return device
