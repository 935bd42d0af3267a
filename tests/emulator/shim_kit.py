"""Compiles a few lines of C around the emulator's headers, and calls them on torch tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import mono_build.emulator

HEADERS = Path(mono_build.emulator.__file__).parent / "runtime"
FLAGS = ("-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
STRICT = ("-Wall", "-Wextra", "-Werror")

PRELUDE = """
#include "numeric.h"
#define X as_f32(x)
#define Y as_f32(y)
#define Z as_f32(z)
#define MAP(name, expression) \\
    void map_##name(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out, long n) \\
    { \\
        for (long i = 0; i < n; i++) { \\
            uint32_t x = a[i], y = b[i], z = c[i]; \\
            (void)x, (void)y, (void)z; \\
            out[i] = (uint32_t)(expression); \\
        } \\
    }
"""


def compile_shim(source: str, directory: Path, *flags: str) -> ctypes.CDLL:
    """A loaded shared library of this C source; skips the test when there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    text, library = directory / "shim.c", directory / "shim.so"
    text.write_text(source)
    command = [compiler, *FLAGS, *STRICT, *flags, "-shared", "-fPIC", f"-I{HEADERS}"]
    subprocess.run([*command, str(text), "-o", str(library), "-lm"], check=True, timeout=300)
    return ctypes.CDLL(str(library))


def bits(values: torch.Tensor) -> torch.Tensor:
    """The bits of f32 values as int64 (0 to 2^32 - 1)."""
    return values.to(torch.float32).contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def floats(codes: torch.Tensor) -> torch.Tensor:
    """The f32 of 32-bit codes."""
    return words(codes).view(torch.float32)


def words(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0 to 2^32 - 1 as the int32 that C reads as uint32_t."""
    wide = codes.to(torch.int64)
    return torch.where(wide >= 2**31, wide - 2**32, wide).to(torch.int32).contiguous()


def run_map(library: ctypes.CDLL, name: str, *arguments: torch.Tensor) -> torch.Tensor:
    """The results, 0 to 2^32 - 1, of a `MAP` function over up to three arrays of 32-bit codes."""
    inputs = [words(a) for a in arguments]
    while len(inputs) < 3:
        inputs.append(torch.zeros_like(inputs[0]))
    result = torch.empty_like(inputs[0])
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*inputs, result)]
    getattr(library, f"map_{name}")(*pointers, ctypes.c_long(result.numel()))
    return result.to(torch.int64) & 0xFFFFFFFF


def nearest_even(value: torch.Tensor, mantissa_bits: int, smallest_exponent: int) -> torch.Tensor:
    """f64 values rounded to a format's grid (no upper end), ties to even: multiples of a unit that
    depends on the value's own exponent, and no finer than the denormals' unit."""
    assert value.dtype == torch.float64
    _, exponent = torch.frexp(value)  # mantissa in [0.5, 1)
    unit_exponent = torch.clamp(exponent - 1, min=smallest_exponent) - mantissa_bits
    scaled = torch.ldexp(value, -unit_exponent)
    return torch.ldexp(torch.round(scaled), unit_exponent)


def sweep() -> torch.Tensor:
    """f32 codes: every upper half with low halves around zero, the middle and the end."""
    upper = torch.arange(65536, dtype=torch.int64) << 16
    lower = torch.tensor([0, 1, 0x1000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    return (upper[:, None] | lower[None, :]).reshape(-1)


def same_or_both_nan(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where two arrays of f32 codes agree, any NaN being as good as another."""
    return (got == expected) | (floats(got).isnan() & floats(expected).isnan())
