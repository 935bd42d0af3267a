"""What the emulator needs of a code object: its instructions, its kernels and how they are started."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from mono_build.elf import parse
from mono_build.errors import ObjectMismatch
from mono_runtime.artefact import KernelResources
from mono_runtime.targets import TARGETS

# LLVM "User Guide for AMDGPU Backend", "Code Object V3 Kernel Descriptor": byte offsets.
_DESCRIPTOR = struct.Struct("<IIII q 20x II IHH 4x")
_SUFFIX = ".kd"
# kernel_code_properties: how many scalar registers each bit stands for, in the order they are given:
# private segment buffer, dispatch packet, queue, arguments, dispatch id, flat scratch, private size.
_DISPATCH_PTR, _KERNARG_PTR = 1, 3
_USER_REGISTERS = (4, 2, 2, 2, 2, 2, 1)
_MACHINES = {target.mach: arch for arch, target in TARGETS.items()}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: where it begins and which scalar registers are set when it does.

    Attributes:
        entry: address of its first instruction.
        mode: the MODE register's lower bits at the start.
        user_sgprs: scalar registers before the workgroup's numbers.
        kernarg_sgpr: the register pair that gets the arguments' address, or None.
        dispatch_sgpr: the pair that gets the dispatch packet's address, or None.
        preload: (first register, first word, count) of preloaded arguments.
        group_ids: bit k: workgroup number k is given.
    """

    symbol: str
    resources: KernelResources
    entry: int
    mode: int
    user_sgprs: int
    kernarg_sgpr: int | None
    dispatch_sgpr: int | None
    preload: tuple[int, int, int]
    group_ids: int


@dataclass(frozen=True, slots=True)
class CodeImage:
    """A code object, read.

    Attributes:
        arch: base architecture.
        text: its instructions, and ``address`` where they lie.
        segments: (address, bytes, size in memory) of what is loaded, instructions included.
    """

    digest: str
    arch: str
    text: bytes
    address: int
    segments: tuple[tuple[int, bytes, int], ...]
    kernels: Mapping[str, Kernel]


def read_object(data: bytes) -> CodeImage:
    """Read a code object for gfx942 or gfx950; `ObjectMismatch` for anything else."""
    parsed = parse(data)
    arch = _MACHINES.get(parsed.mach)
    if arch is None:
        raise ObjectMismatch(f"the emulator does not model machine 0x{parsed.mach:02x}")
    file = ELFFile(io.BytesIO(data))
    section = file.get_section_by_name(".text")
    if section is None:
        raise ObjectMismatch("the ELF has no instructions")
    segments = tuple(
        (s["p_vaddr"], s.data(), s["p_memsz"])
        for s in file.iter_segments()
        if s["p_type"] == "PT_LOAD"
    )
    symbols = {
        symbol.name: symbol["st_value"]
        for table in file.iter_sections()
        if isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols()
    }
    kernels = {}
    for name, note in parsed.kernels.items():
        place = symbols.get(name + _SUFFIX)
        if place is None:
            raise ObjectMismatch(f"the ELF has no descriptor of {name}")
        descriptor = _read(segments, place, _DESCRIPTOR.size)
        kernels[name] = _kernel(name, note.resources, place, descriptor)
    return CodeImage(
        parsed.code_object.digest, arch, section.data(), section["sh_addr"], segments, kernels
    )


def _read(segments: tuple[tuple[int, bytes, int], ...], address: int, size: int) -> bytes:
    for start, data, _ in segments:
        if start <= address and address + size <= start + len(data):
            return data[address - start : address - start + size]
    raise ObjectMismatch(f"address 0x{address:x} is in no loaded segment")


def _kernel(symbol: str, resources: KernelResources, place: int, descriptor: bytes) -> Kernel:
    _, _, _, _, entry, _, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack(descriptor)
    given: dict[int, int] = {}
    register = 0
    for bit, count in enumerate(_USER_REGISTERS):
        if properties >> bit & 1:
            given[bit] = register
            register += count
    user = rsrc2 >> 1 & 31
    length, offset = preload & 0x7F, preload >> 7
    return Kernel(
        symbol=symbol,
        resources=resources,
        entry=place + entry,
        mode=(rsrc1 >> 12 & 0xFF) | (rsrc1 >> 26 & 1) << 23,
        user_sgprs=user,
        kernarg_sgpr=given.get(_KERNARG_PTR),
        dispatch_sgpr=given.get(_DISPATCH_PTR),
        preload=(register, offset, length),
        group_ids=rsrc2 >> 7 & 7,
    )
