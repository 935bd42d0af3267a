"""Runs single machine instructions, given as words, on one wave through decoder, translator and runtime."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from shim_kit import HEADERS, compile_shim, words

from mono_build.emulator.decode import decode
from mono_build.emulator.translate.program import write_program

END = 0xBF810000  # s_endpgm
ALL = 2**64 - 1
POISON = 0x7FA5A5A5

_RUN = """
#include "program.h"
#include <stdlib.h>
#include <string.h>
const struct kernel_code *mono_kernel_code(void);
__attribute__((visibility("default")))
uint32_t run_at(uint64_t address, uint32_t *registers, uint32_t *scalars, uint32_t mode)
{
    struct wave *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    memset(w, 0, sizeof *w);
    memcpy(w->s, scalars, sizeof w->s);
    w->v = (row *)registers;
    w->mode = mode;
    exec_changed(w);
    const uint32_t answer = mono_kernel_code()->segments[segment_at(address)](w);
    memcpy(scalars, w->s, sizeof w->s);
    free(w);
    return answer;
}
"""
_VECTOR = ("compare", "float", "integer", "lanes", "operands", "packed")
_RUNTIME = ("conversions.c", "halves.c", "mfma.c", *(f"vector_{part}.c" for part in _VECTOR))


class Instructions:
    """A library of single instructions, each followed by s_endpgm."""

    def __init__(self, arch: str, encodings: Sequence[str], directory: Path) -> None:
        """``encodings``: words in hexadecimal, as a disassembler prints them."""
        text: list[int] = []
        self._address: dict[str, int] = {}
        for encoding in encodings:
            self._address[encoding] = 4 * len(text)
            text += [int(word, 16) for word in encoding.split()] + [END]
        decoded = decode(struct.pack(f"<{len(text)}I", *text), 0)
        program = write_program(decoded, sorted(self._address.values()), arch)
        assert not program.unmodelled, program.unmodelled
        runtime = [f'#include "{HEADERS / name}"' for name in _RUNTIME]
        sources = [_RUN, *program.files, *runtime]
        files = []
        for number, source in enumerate(sources):
            files.append(directory / f"part{number}.c")
            files[-1].write_text(source)
        self._library = compile_shim("", directory, "-march=native", "-O0", *map(str, files))

    def run(
        self,
        encoding: str,
        registers: Mapping[int, torch.Tensor],
        *,
        execute: int = ALL,
        mode: int = 0,
    ) -> torch.Tensor:
        """All vector registers, int64 [512, 64], after one instruction.

        ``registers`` sets rows of 64 codes (or several rows from one register on); the rest is poisoned.
        """
        state = torch.full((512, 64), POISON, dtype=torch.int64)
        for first, codes in registers.items():
            rows = codes.to(torch.int64).reshape(-1, 64) & 0xFFFFFFFF
            state[first : first + len(rows)] = rows
        cells = words(state)
        scalars = torch.zeros(128, dtype=torch.int64)
        scalars[126], scalars[127] = execute & 0xFFFFFFFF, execute >> 32
        scalar_cells = words(scalars)
        self._library.run_at.restype = ctypes.c_uint32
        self._library.run_at(
            ctypes.c_uint64(self._address[encoding]),
            ctypes.c_void_p(cells.data_ptr()),
            ctypes.c_void_p(scalar_cells.data_ptr()),
            ctypes.c_uint32(mode),
        )
        return cells.to(torch.int64) & 0xFFFFFFFF
