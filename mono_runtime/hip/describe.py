"""What HIP, the kernel and the environment say of a device, in the runtime's words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mono_runtime.arch import Architecture
from mono_runtime.errors import DriverError

# Both hide compute units from kernels while HIP goes on counting all of them.
_MASKS = ("HSA_CU_MASK", "ROC_GLOBAL_CU_MASK")


def architecture_of(text: str, ordinal: int) -> Architecture:
    """HIP's ``gcnArchName``, such as ``gfx942:sramecc+:xnack-``; any architecture is accepted."""
    name, *flags = text.split(":")
    if not name.startswith("gfx") or any(flag[-1:] not in ("+", "-") for flag in flags):
        raise DriverError(
            f"HIP gives device {ordinal} the architecture {text!r}, which cannot be read"
        )
    return Architecture(name, tuple(sorted((flag[:-1], flag[-1] == "+") for flag in flags)))


def partition_of(sysfs: Path, bus_id: str) -> str | None:
    """The compute partition mode that the kernel tells (``SPX``, ``CPX`` ...), or None."""
    # Partitions of one device have function numbers of their own in HIP; the file is at function 0.
    for name in dict.fromkeys((bus_id, f"{bus_id.rpartition('.')[0]}.0")):
        file = sysfs / "bus" / "pci" / "devices" / name / "current_compute_partition"
        try:
            return file.read_text().strip() or None
        except OSError:
            continue
    return None


def restriction_of(environ: Mapping[str, str]) -> str | None:
    """Which variables may leave launches fewer compute units than the device has, or None."""
    found = [f"{name}={environ[name]}" for name in _MASKS if environ.get(name)]
    return f"{' and '.join(found)} may hide compute units from launches" if found else None
