"""The GPUs that launches are for: each architecture's limits, and the products that have it."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
class Product:
    """A GPU that is sold: its architecture and the compute units of a whole, unpartitioned one."""

    name: str
    arch: str
    compute_units: int
    source: str


# Compute units as AMD's data sheets give them for the whole accelerator (SPX mode).
PRODUCTS = {
    p.name: p
    for p in (
        Product("MI300X", "gfx942", 304, "AMD Instinct MI300X data sheet"),
        Product("MI325X", "gfx942", 304, "AMD Instinct MI325X data sheet"),
        Product("MI300A", "gfx942", 228, "AMD Instinct MI300A data sheet"),
        Product("MI308X", "gfx942", 80, "ROCm documentation, accelerator specifications"),
        Product("MI350X", "gfx950", 256, "AMD Instinct MI350X data sheet"),
        Product("MI355X", "gfx950", 256, "AMD Instinct MI355X data sheet"),
    )
}


def product_named(device_name: str) -> Product | None:
    """The product in a driver's spelling of a device (``AMD Instinct MI300X OAM``), if it is known."""
    words = re.split(r"[^A-Z0-9]+", device_name.upper())
    return next((PRODUCTS[w] for w in words if w in PRODUCTS), None)
