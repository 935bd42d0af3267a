"""A compiler for tests: from a build key straight to an AMDGPU ELF written by hand, in milliseconds.

The ELF follows LLVM's "User Guide for AMDGPU Backend" (ELF code object, note records) and is laid
out here byte by byte, so that what reads it is tested against something it did not write.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from mono_build.compile.lowered import (
    HostFunction,
    HostLaunch,
    HostOperation,
    LoweredLaunch,
    Signature,
    TracedLaunch,
)

MACH = {"gfx942": 0x4C, "gfx950": 0x4F}


def elf(
    symbol: str,
    *,
    arch: str = "gfx950",
    text: bytes = b"\x00\x00\x81\xbf" * 16,
    lds: int = 0,
    arguments: tuple[int, ...] = (8, 8),
    max_workgroup: int = 256,
    vgpr: int = 24,
    flags: int | None = None,
    machine: int = 224,
) -> bytes:
    """A code object with one kernel; ``arguments`` are sizes in bytes, laid out naturally aligned."""
    args, offset = [], 0
    for size in arguments:
        offset = -(-offset // size) * size
        args.append({".offset": offset, ".size": size, ".value_kind": "by_value"})
        offset += size
    kernel = {
        ".name": symbol,
        ".symbol": symbol + ".kd",
        ".args": args,
        ".kernarg_segment_size": offset,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": lds,
        ".private_segment_fixed_size": 0,
        ".wavefront_size": 64,
        ".sgpr_count": 16,
        ".vgpr_count": vgpr,
        ".agpr_count": 0,
        ".sgpr_spill_count": 0,
        ".vgpr_spill_count": 0,
        ".max_flat_workgroup_size": max_workgroup,
    }
    metadata = msgpack.packb(
        {
            "amdhsa.version": [1, 2],
            "amdhsa.target": f"amdgcn-amd-amdhsa--{arch}",
            "amdhsa.kernels": [kernel],
        }
    )
    note = struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + metadata
    note += b"\0" * (-len(note) % 4)
    return _assemble(
        [(".note", 7, note), (".rodata", 1, b"\0" * 64), (".text", 1, text)],
        MACH[arch] | 0x500 if flags is None else flags,
        machine,
    )


def _assemble(sections: list[tuple[str, int, bytes]], flags: int, machine: int) -> bytes:
    names, starts = b"\0", []
    for name, _, _ in [*sections, (".shstrtab", 3, b"")]:
        starts.append(len(names))
        names += name.encode() + b"\0"
    sections = [*sections, (".shstrtab", 3, names)]
    body, table = b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for (_, kind, data), start in zip(sections, starts, strict=True):
        body += b"\0" * (-len(body) % 16)
        table.append(
            struct.pack("<IIQQQQIIQQ", start, kind, 0, 0, 64 + len(body), len(data), 0, 0, 4, 0)
        )
        body += data
    body += b"\0" * (-len(body) % 16)
    header = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    header += struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        machine,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(table),
        len(table) - 1,
    )
    return header + body + b"".join(table)


class Launcher:
    """What the stand-in family's factory returns: a build, with the behaviour that its key names."""

    def __init__(self, arch: str, name: str, text: bytes, lds: int = 0, grid: int = 4) -> None:
        self.arch, self.name, self.text, self.lds, self.grid = arch, name, text, lds, grid


def load_compiler() -> None:
    """Nothing to load."""


def signature(launcher: Launcher) -> Signature:
    """Every stand-in launch takes two addresses and a stream."""
    return Signature(("source", "target", "stream"), "stream")


def compile_launch(
    launcher: Launcher, arguments: dict[str, object], wanted: Any
) -> LoweredLaunch | None:
    """The launch as one dispatch of 256 work-items a workgroup; its "IR" is its text and shape."""
    shape = f"{launcher.name} {launcher.text.hex()} {launcher.lds} {launcher.grid}"
    if not wanted(TracedLaunch(shape, ("standin",), "")):
        return None
    data = elf(launcher.name, arch=launcher.arch, text=launcher.text, lds=launcher.lds)
    constants = tuple(
        HostOperation("llvm.mlir.constant", (), 3 + i, "i64", value)
        for i, value in enumerate((launcher.grid, 1, 256))
    )
    launch = HostLaunch(
        "kernels", launcher.name, (3, 4, 4), (5, 4, 4), None, (0, 1), 2, False, False
    )
    host = HostFunction(("i64", "i64", "!llvm.ptr"), (*constants, launch))
    return LoweredLaunch(signature(launcher), host, (("kernels", data),))
