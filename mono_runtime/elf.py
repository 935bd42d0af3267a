"""What a code object's ELF header says it runs on, and whether a device is that."""

from __future__ import annotations

from mono_runtime.arch import Architecture
from mono_runtime.driver import Device
from mono_runtime.errors import StoreDamaged, WrongDevice
from mono_runtime.targets import TARGETS

# LLVM "User Guide for AMDGPU Backend", ELF Code Object, and the ELF64 header of the System V ABI.
_HEADER_BYTES = 64
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_OSABI, _OSABI_HSA = 7, 64
_ABIVERSION = 8
# Code objects V4, V5 and V6; earlier ones have other feature bits, later ones may.
_ABIVERSIONS = (2, 3, 4)
_MACHINE, _EM_AMDGPU = 18, 224
_FLAGS = 48
_EF_MACH = 0x0FF
# In the order of Architecture.features: mask, off, on. "Any" and "unsupported" state nothing.
_EF_FEATURES = {"sramecc": (0xC00, 0x800, 0xC00), "xnack": (0x300, 0x200, 0x300)}
_REBUILD = "rebuild the store with mono-build, or copy it again from where it was built"


def elf_target(code: bytes, *, where: str | None = None) -> Architecture:
    """The architecture that ``code`` was compiled for, with the feature flags that it insists on.

    Raises:
        StoreDamaged: it is no AMDGPU code object of a version that is known; names ``where``.
        WrongDevice: it is for a machine that is none of `mono_runtime.targets.TARGETS`.
    """
    header = code[:_HEADER_BYTES]
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC_64_LITTLE):
        raise _no_code_object("it has no 64-bit ELF header", where)
    machine, flags = _integer(header, _MACHINE, 2), _integer(header, _FLAGS, 4)
    if machine != _EM_AMDGPU or header[_OSABI] != _OSABI_HSA:
        raise _no_code_object(f"machine {machine}, OS ABI {header[_OSABI]}", where)
    if header[_ABIVERSION] not in _ABIVERSIONS:
        raise _no_code_object(f"code object ABI version {header[_ABIVERSION]}", where)
    name = next((t.arch for t in TARGETS.values() if t.mach == flags & _EF_MACH), None)
    if name is None:
        raise WrongDevice(
            f"a code object is for machine 0x{flags & _EF_MACH:02x}, which is none of"
            f" {', '.join(TARGETS)}",
            where=where,
            fix="build the store for the architecture of this device (--arch)",
        )
    features = tuple(
        (feature, flags & mask == on)
        for feature, (mask, off, on) in _EF_FEATURES.items()
        if flags & mask in (off, on)
    )
    return Architecture(name, features)


def require_architecture(
    code: bytes, device: Device, *, arch: str | None = None, where: str | None = None
) -> Architecture:
    """The target of ``code``, if ``device`` runs it; to be asked before a driver sees the code.

    Args:
        arch: base name that the store promises, such as an artefact's; None when it is not known.
        where: what the code belongs to, for messages.

    Raises:
        StoreDamaged: ``code`` is no code object, or not one for ``arch``.
        WrongDevice: the device is of another architecture, or runs with other feature flags.
    """
    target = elf_target(code, where=where)
    if arch is not None and target.name != arch:
        raise StoreDamaged(
            f"the store promises {arch} and the code object is for {target}",
            where=where,
            fix=_REBUILD,
        )
    if not target.accepts(device.architecture):
        raise WrongDevice(
            f"the store has code for {target}, and device {device.ordinal} ({device.name}) is"
            f" {device.architecture}",
            where=where,
            fix=_advice(target, device.architecture),
        )
    return target


def _advice(target: Architecture, device: Architecture) -> str:
    if target.name != device.name:
        return f"use a store that was built with --arch {device.name}, or a {target.name} device"
    have = dict(device.features)
    wanted = [f"{n}{'+' if on else '-'}" for n, on in target.features if have.get(n, on) != on]
    switch = " (HSA_XNACK switches xnack)" if any(w.startswith("xnack") for w in wanted) else ""
    return (
        f"run the device with {' and '.join(wanted)}{switch}, or rebuild the store with mono-build,"
        " whose code objects run with either setting"
    )


def _no_code_object(why: str, where: str | None) -> StoreDamaged:
    return StoreDamaged(f"not an AMDGPU code object: {why}", where=where, fix=_REBUILD)


def _integer(header: bytes, offset: int, size: int) -> int:
    return int.from_bytes(header[offset : offset + size], "little")
