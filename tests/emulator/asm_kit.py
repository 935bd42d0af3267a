"""Runs single instructions on the emulator: assembled by LLVM, one wave, registers in and registers out.

LLVM is the one inside the package ``ziglang``. It turns text into the documented encodings; what a
result has to be stands in the tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule

LANES = range(64)
ALL = (1 << 64) - 1
# Registers that the frame around a test's text uses: v240-v255 and s94-s99.
_PLACE, _VALUE = 250, 251
_DATA = 96  # s[96:97]: where the inputs lie; s[98:99]: where the results go
Lanes = Sequence[int] | int


@dataclass(frozen=True)
class Snippet:
    """Some instructions, what registers hold before and which ones are wanted after.

    Attributes:
        text: assembly. ``s[94:95]`` is the address of ``memory``.
        vector: vector registers by number; one value stands for all lanes.
        scalar: scalar registers by number; 106 and 107 are VCC.
        exec: the lanes that are on while ``text`` runs.
        results: vector registers to give back.
        scalars: scalar registers to give back.
        lds: bytes of LDS, ``scratch`` bytes of scratch a work-item.
        memory: words of global memory, given back as well.
    """

    text: str
    vector: Mapping[int, Lanes] = field(default_factory=dict)
    scalar: Mapping[int, int] = field(default_factory=dict)
    exec: int = ALL
    results: tuple[int, ...] = ()
    scalars: tuple[int, ...] = ()
    lds: int = 0
    scratch: int = 0
    memory: Sequence[int] = (0,)


@dataclass(frozen=True)
class Result:
    """Registers and memory after a `Snippet`: unsigned 32-bit values."""

    vector: dict[int, list[int]]
    scalar: dict[int, int]
    memory: list[int]


_HEADER = """
  .text
"""
_KERNEL = """
  .globl {name}
  .p2align 8
  .type {name},@function
{name}:
{body}
  s_endpgm
.Lend_{name}:
  .size {name}, .Lend_{name}-{name}
  .rodata
  .p2align 6
  .amdhsa_kernel {name}
    .amdhsa_next_free_vgpr 256
    .amdhsa_next_free_sgpr 100
    .amdhsa_accum_offset 256
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_group_segment_fixed_size {lds}
    .amdhsa_private_segment_fixed_size {scratch}
    .amdhsa_enable_private_segment {has_scratch}
  .end_amdhsa_kernel
  .text
"""
_NOTE = """
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 64
    .sgpr_count: 100
    .vgpr_count: 256
    .agpr_count: 0
    .max_flat_workgroup_size: 1024
    .sgpr_spill_count: 0
    .vgpr_spill_count: 0
"""


def assemble(snippets: Mapping[str, Snippet], arch: str, directory: Path) -> bytes:
    """One code object with a kernel for each snippet."""
    kernels, notes = [], []
    for name, snippet in snippets.items():
        facts = {"name": name, "lds": snippet.lds, "scratch": snippet.scratch}
        facts["has_scratch"] = int(snippet.scratch > 0)
        kernels.append(_KERNEL.format(body=_framed(snippet), **facts))
        notes.append(_NOTE.format(**facts))
    return link(_HEADER + "".join(kernels), "".join(notes), arch, directory)


def link(text: str, notes: str, arch: str, directory: Path) -> bytes:
    """Assemble and link ``text`` with a metadata note of these kernels."""
    pytest.importorskip("ziglang")
    source, target = directory / "code.s", directory / "code.o"
    metadata = f"""
  .amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
{notes}...
  .end_amdgpu_metadata
"""
    source.write_text(text + metadata)
    zig = [sys.executable, "-m", "ziglang"]
    options = [
        "-target",
        "amdgcn-amdhsa-none",
        f"-mcpu={arch}",
        "-c",
        str(source),
        "-o",
        str(target),
    ]
    _run([*zig, "cc", *options])
    _run([*zig, "ld.lld", "-shared", str(target), "-o", str(directory / "code.so")])
    return (directory / "code.so").read_bytes()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def _framed(snippet: Snippet) -> str:
    lines = [
        f"s_load_dwordx4 s[{_DATA}:{_DATA + 3}], s[0:1], 0x0",
        "s_load_dwordx2 s[94:95], s[0:1], 0x10",
        "s_waitcnt lgkmcnt(0)",
        f"v_lshlrev_b32 v{_PLACE}, 2, v0",
    ]
    for index, number in enumerate(snippet.vector):
        lines.append(f"v_add_u32 v{_VALUE}, {256 * index}, v{_PLACE}")
        lines.append(f"global_load_dword v{number}, v{_VALUE}, s[{_DATA}:{_DATA + 1}]")
    lines.append("s_waitcnt vmcnt(0)")
    for number, value in snippet.scalar.items():
        lines.append(f"s_mov_b32 {_scalar(number)}, 0x{value:x}")
    lines.append(f"s_mov_b32 exec_lo, 0x{snippet.exec & 0xFFFFFFFF:x}")
    lines.append(f"s_mov_b32 exec_hi, 0x{snippet.exec >> 32:x}")
    lines.append(snippet.text)
    lines.append("s_nop 0")
    kept = []
    for index, number in enumerate(snippet.scalars):
        # EXEC itself is read before it is set for the stores.
        lines.append(f"v_writelane_b32 v{240 + index}, {_scalar(number)}, 0")
        kept.append(240 + index)
    lines.append("s_mov_b64 exec, -1")
    lines.append(f"v_mbcnt_lo_u32_b32 v{_PLACE}, -1, 0")
    lines.append(f"v_mbcnt_hi_u32_b32 v{_PLACE}, -1, v{_PLACE}")
    lines.append(f"v_lshlrev_b32 v{_PLACE}, 2, v{_PLACE}")
    for index, number in enumerate((*snippet.results, *kept)):
        lines.append(f"v_add_u32 v{_VALUE}, {256 * index}, v{_PLACE}")
        lines.append(f"global_store_dword v{_VALUE}, v{number}, s[{_DATA + 2}:{_DATA + 3}]")
    return "\n".join(f"  {line}" for line in lines)


def _scalar(number: int) -> str:
    special = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}
    return special.get(number, f"s{number}")


class Machine:
    """One emulated device with an assembled code object."""

    def __init__(self, snippets: Mapping[str, Snippet], arch: str, directory: Path) -> None:
        self.snippets = snippets
        self.driver = EmulatedDriver((arch,), schedule=Schedule(poison=0x7FC0DEAD))
        self.module = self.driver.load_module(0, assemble(snippets, arch, directory))

    def run(self, name: str) -> Result:
        """Run one snippet."""
        snippet, driver = self.snippets[name], self.driver
        words = [w for v in snippet.vector.values() for w in _spread(v)]
        rows = len(snippet.results) + len(snippet.scalars)
        data = _allocate(driver, words or [0])
        out = _allocate(driver, [0] * 64 * max(1, rows))
        memory = _allocate(driver, list(snippet.memory))
        kernargs = bytearray(b"".join(a.to_bytes(8, "little") for a in (data, out, memory)))
        function = driver.function(self.module, name)
        driver.prepare(0, function, (1, 1, 1), (64, 1, 1), 0, kernargs)(0)
        driver.synchronize(0)
        stored = _words(driver.read(0, out, 256 * max(1, rows)))
        kept = _words(driver.read(0, memory, 4 * len(snippet.memory)))
        for address in (data, out, memory):
            driver.free(0, address)
        vector = {n: stored[64 * k : 64 * k + 64] for k, n in enumerate(snippet.results)}
        first = 64 * len(snippet.results)
        scalar = {n: stored[first + 64 * k] for k, n in enumerate(snippet.scalars)}
        return Result(vector, scalar, kept)


def _spread(value: Lanes) -> list[int]:
    return [value] * 64 if isinstance(value, int) else list(value)


def _allocate(driver: EmulatedDriver, words: list[int]) -> int:
    address = driver.allocate(0, 4 * len(words))
    driver.write(0, address, b"".join((w & 0xFFFFFFFF).to_bytes(4, "little") for w in words))
    return address


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4)]
