"""Small AMDGPU code objects for tests: a real ELF with notes and kernel symbols, and no instructions."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack

# EF_AMDGPU_MACH of LLVM's AMDGPU usage guide.
_MACH = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F}
_XNACK = {None: 0x100, False: 0x200, True: 0x300}
_SRAMECC = {None: 0x400, False: 0x800, True: 0xC00}


@dataclass(frozen=True)
class Kernel:
    """What the notes say of a kernel; arguments are pairs of offset and size in bytes."""

    arguments: Sequence[tuple[int, int]] = ()
    kernarg_size: int = 0
    lds: int = 0
    vgprs: int = 64
    max_threads: int = 1024

    def note(self, name: str) -> dict[str, object]:
        arguments = [
            {".offset": o, ".size": s, ".value_kind": "by_value"} for o, s in self.arguments
        ]
        return {
            ".args": arguments,
            ".group_segment_fixed_size": self.lds,
            ".kernarg_segment_align": 8,
            ".kernarg_segment_size": self.kernarg_size,
            ".max_flat_workgroup_size": self.max_threads,
            ".name": name,
            ".private_segment_fixed_size": 0,
            ".sgpr_count": 16,
            ".symbol": f"{name}.kd",
            ".vgpr_count": self.vgprs,
            ".wavefront_size": 64,
        }


def code_object(
    kernels: Mapping[str, Kernel],
    arch: str = "gfx942",
    *,
    xnack: bool | None = None,
    sramecc: bool | None = None,
) -> bytes:
    """An ELF for ``arch``; a feature that is None runs with either setting."""
    notes = {
        "amdhsa.kernels": [kernel.note(name) for name, kernel in kernels.items()],
        "amdhsa.target": f"amdgcn-amd-amdhsa--{arch}",
        "amdhsa.version": [1, 2],
    }
    metadata = msgpack.packb(notes)
    note = struct.pack("<III8s", 7, len(metadata), 32, b"AMDGPU\0") + metadata
    note += b"\0" * (-len(note) % 4)
    names = b"\0" + b"".join(f"{name}.kd".encode() + b"\0" for name in kernels)
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    offset = 1
    for name in kernels:
        symbols += struct.pack("<IBBHQQ", offset, 0x11, 3, 1, 0x1000, 64)
        offset += len(name) + 4
    section_names = b"\0.note\0.dynsym\0.dynstr\0.shstrtab\0"
    parts = [note, symbols, names, section_names]
    starts, position = [], 64
    body = b""
    for part in parts:
        starts.append(position)
        padded = part + b"\0" * (-len(part) % 8)
        body += padded
        position += len(padded)
    flags = _MACH[arch] | _XNACK[xnack] | _SRAMECC[sramecc]
    identity = b"\x7fELF\x02\x01\x01\x40\x04".ljust(16, b"\0")
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, position, flags, 64, 0, 0, 64, 5, 4
    )
    sections = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    # name, type, alloc, link, entry size
    for (name, kind, link, entry), part, start in zip(
        ((1, 7, 0, 0), (7, 11, 3, 24), (15, 3, 0, 0), (23, 3, 0, 0)), parts, starts, strict=True
    ):
        sections += struct.pack(
            "<IIQQQQIIQQ", name, kind, 2, start, start, len(part), link, 1, 8, entry
        )
    return header + body + sections
