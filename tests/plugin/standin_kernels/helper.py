"""A helper of the stand-in's kernels: changing it changes their code."""

from __future__ import annotations

import struct


def instructions(rows: int) -> bytes:
    """An ``s_nop`` for each row, then ``s_endpgm``: wide launches have large objects."""
    return struct.pack("<I", 0xBF800000) * rows + struct.pack("<I", 0xBF810000)
