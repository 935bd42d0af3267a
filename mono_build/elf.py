"""AMDGPU code objects: what the ELF itself says of target, kernels, resources and machine code."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from mono_build.errors import ObjectMismatch
from mono_runtime.artefact import Artefact, CodeObject, KernelResources
from mono_runtime.canonical import digest_of
from mono_runtime.targets import TARGETS, Target

# LLVM "User Guide for AMDGPU Backend": ELF header and note record values.
EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = "ELFOSABI_AMDGPU_HSA"
EF_MACH = 0x0FF
EF_FEATURES = 0xF00
# XNACK "any" and SRAMECC "any": the object runs with either setting.
EF_ANY_FEATURE = 0x500
NT_AMDGPU_METADATA = 32
# What the readers raise on files that are no ELF, or an ELF with senseless numbers.
_UNREADABLE = (
    ELFError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    msgpack.UnpackException,
)
# The sections whose bytes a GPU reads: instructions, and descriptors with constants.
MACHINE_SECTIONS = (".text", ".rodata")


@dataclass(frozen=True, slots=True)
class KernelNote:
    """One kernel of the metadata note; ``arguments`` are (offset, size, kind) of the kernarg segment."""

    resources: KernelResources
    arguments: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """One parsed ELF.

    Attributes:
        mach: ``EF_AMDGPU_MACH`` of its header.
        features: XNACK and SRAMECC bits of its header.
        kernels: the kernels by symbol.
    """

    mach: int
    features: int
    code_object: CodeObject
    kernels: dict[str, KernelNote]


def parse(data: bytes) -> ParsedObject:
    """Read one code object; `ObjectMismatch` when it is not an AMDGPU HSA ELF with kernels."""
    try:
        file = ELFFile(io.BytesIO(data))
        header = file.header
        if header["e_machine"] not in (EM_AMDGPU, "EM_AMDGPU"):
            raise ObjectMismatch(f"the ELF is for {header['e_machine']}, not for AMDGPU")
        sections = {s: file.get_section_by_name(s) for s in MACHINE_SECTIONS}
        content = {s: section.data() for s, section in sections.items() if section is not None}
        notes = [_kernel(k) for k in _metadata(file).get("amdhsa.kernels", [])]
    except _UNREADABLE as error:
        raise ObjectMismatch(f"not a readable AMDGPU ELF: {error}") from error
    if not notes or not content.get(".text"):
        raise ObjectMismatch("the ELF holds no kernel")
    kernels = {n.resources.symbol: n for n in notes}
    resources = tuple(kernels[s].resources for s in sorted(kernels))
    text = len(content[".text"])
    code = CodeObject(digest_of(data), len(data), _machine_digest(content), text, resources)
    flags = header["e_flags"]
    return ParsedObject(flags & EF_MACH, flags & EF_FEATURES, code, kernels)


def _machine_digest(content: dict[str, bytes]) -> str:
    hasher = hashlib.sha256()
    for name in MACHINE_SECTIONS:
        data = content.get(name, b"")
        hasher.update(f"{name} {len(data)}\n".encode() + data)
    return "sha256:" + hasher.hexdigest()


def _metadata(file: ELFFile) -> dict[str, Any]:
    for section in file.iter_sections():
        if not isinstance(section, NoteSection):
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (NT_AMDGPU_METADATA, "32"):
                description = note["n_desc"]
                raw = (
                    description if isinstance(description, bytes) else description.encode("latin1")
                )
                unpacked = msgpack.unpackb(raw)
                if isinstance(unpacked, dict):
                    return unpacked
    raise ObjectMismatch("the ELF has no AMDGPU metadata note")


def _kernel(note: dict[str, Any]) -> KernelNote:
    resources = KernelResources(
        symbol=note[".name"],
        vgpr=note[".vgpr_count"],
        agpr=note.get(".agpr_count", 0),
        sgpr=note[".sgpr_count"],
        vgpr_spills=note.get(".vgpr_spill_count", 0),
        sgpr_spills=note.get(".sgpr_spill_count", 0),
        lds=note[".group_segment_fixed_size"],
        scratch=note[".private_segment_fixed_size"],
        kernarg=note[".kernarg_segment_size"],
        max_workgroup=note[".max_flat_workgroup_size"],
        wavefront=note[".wavefront_size"],
    )
    arguments = tuple((a[".offset"], a[".size"], a[".value_kind"]) for a in note.get(".args", []))
    return KernelNote(resources, arguments)


def check_target(parsed: ParsedObject, target: Target) -> list[str]:
    """What in the ELF header contradicts ``target``."""
    faults = []
    if parsed.mach != target.mach:
        faults.append(
            f"the ELF is for machine 0x{parsed.mach:02x}, {target.arch} is 0x{target.mach:02x}"
        )
    if parsed.features & EF_FEATURES != EF_ANY_FEATURE:
        faults.append(f"the ELF fixes XNACK or SRAMECC (features 0x{parsed.features:03x})")
    return faults


def check_artefact(data: bytes, artefact: Artefact) -> list[str]:
    """Every way in which the code object ``data`` contradicts its artefact; empty when it fits."""
    try:
        parsed = parse(data)
    except ObjectMismatch as error:
        return [error.what]
    recorded = {c.digest: c for c in artefact.code_objects}.get(parsed.code_object.digest)
    target = TARGETS.get(artefact.arch)
    if target is None:
        return [f"unknown architecture {artefact.arch}"]
    faults = check_target(parsed, target)
    if recorded != parsed.code_object:
        faults.append("the recorded resource figures are not the ELF's")
    for dispatch in artefact.plan.dispatches:
        if dispatch.code_object == parsed.code_object.digest:
            kernel = parsed.kernels.get(dispatch.symbol)
            faults += _check_dispatch(dispatch, kernel)
    return faults


def _check_dispatch(dispatch: Any, kernel: KernelNote | None) -> list[str]:
    if kernel is None:
        return [f"the ELF has no kernel {dispatch.symbol}"]
    faults = []
    if kernel.resources.kernarg != dispatch.kernarg_size:
        faults.append(
            f"{dispatch.symbol}: kernarg segment of {kernel.resources.kernarg} bytes,"
            f" planned {dispatch.kernarg_size}"
        )
    layout = [(o, s) for o, s, kind in kernel.arguments if not kind.startswith("hidden_")]
    planned = [(a.offset, a.size) for a in dispatch.arguments]
    if layout != planned:
        faults.append(f"{dispatch.symbol}: kernarg layout {layout}, planned {planned}")
    return faults
