"""Code objects that are nothing but an ELF header, laid out from LLVM's AMDGPUUsage."""

from __future__ import annotations

import struct

MACH = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F}
# "any" when nothing is asked for, else off and on.
XNACK = {None: 0x100, False: 0x200, True: 0x300}
SRAMECC = {None: 0x400, False: 0x800, True: 0xC00}


def minimal_elf(
    arch: str,
    xnack: bool | None = None,
    sramecc: bool | None = None,
    payload: bytes = b"",
    *,
    abi: int = 2,
) -> bytes:
    """The header of an AMDGPU HSA code object for ``arch``, then ``payload``."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, abi]) + bytes(7)
    flags = MACH[arch] | XNACK[xnack] | SRAMECC[sramecc]
    # e_type ET_DYN, e_machine EM_AMDGPU, version, entry, phoff, shoff, flags, six sizes and counts.
    fields = struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 0, flags, 64, 56, 0, 64, 0, 0)
    return ident + fields + payload
