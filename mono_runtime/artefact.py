"""An artefact: a launch plan, its code objects with their resource figures, and where it came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from mono_runtime.arch import checked_arch
from mono_runtime.canonical import (
    Json,
    checked_count,
    checked_digest,
    checked_schema,
    checked_symbol,
)
from mono_runtime.errors import InvalidValue
from mono_runtime.launch_plan import LaunchPlan

# 2: plans list pairs of a caller's arguments, and leave out kernel arguments that are these.
# 3: plans state the memory that kernels need of their own.
ARTEFACT_SCHEMA = 3


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one kernel takes, from the ELF's AMDGPU notes.

    Registers are per work-item (VGPR, AGPR) or per wave (SGPR); ``lds``, ``scratch`` and ``kernarg``
    are bytes (scratch per work-item); spills count registers; ``wavefront`` is lanes.
    """

    symbol: str
    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    scratch: int
    kernarg: int
    max_workgroup: int
    wavefront: int


_FIGURES = tuple(f.name for f in fields(KernelResources) if f.name != "symbol")


@dataclass(frozen=True, slots=True)
class CodeObject:
    """One ELF.

    Attributes:
        digest: sha256 of the file.
        size: bytes of the file.
        machine_code: sha256 of instructions and kernel descriptors alone; objects that differ only
            in symbol names share it.
        text_size: bytes of instructions.
        kernels: the kernels in it, sorted by symbol.
    """

    digest: str
    size: int
    machine_code: str
    text_size: int
    kernels: tuple[KernelResources, ...]


@dataclass(frozen=True, slots=True)
class Artefact:
    """What the store keeps of one compiled launch. Launch keys with equal IR share it.

    Attributes:
        ir: digest of the traced IR, the pipeline and the toolchain (see `mono_build`).
        arch: base architecture name.
        inputs: digest of the blob that lists sources, toolchain and environment.
    """

    ir: str
    arch: str
    inputs: str
    plan: LaunchPlan
    code_objects: tuple[CodeObject, ...]

    def to_json(self) -> Json:
        return {
            "schema": ARTEFACT_SCHEMA,
            "ir": self.ir,
            "arch": self.arch,
            "inputs": self.inputs,
            "plan": self.plan.to_json(),
            "code_objects": [asdict(c) for c in self.code_objects],
        }

    @staticmethod
    def from_json(value: Json) -> Artefact:
        """The artefact that `to_json` wrote, checked; anything else raises `InvalidValue`.

        Raises:
            StoreFormat: it was written in another version of the format.
        """
        checked_schema(value, "artefact", ARTEFACT_SCHEMA)
        try:
            artefact = Artefact(
                ir=checked_digest(value["ir"], "artefact"),
                arch=checked_arch(value["arch"]),
                inputs=checked_digest(value["inputs"], "artefact"),
                plan=LaunchPlan.from_json(value["plan"]),
                code_objects=tuple([_code_object(c) for c in value["code_objects"]]),
            )
        except (KeyError, TypeError) as error:
            raise InvalidValue(f"not an artefact: {error!r}") from error
        held = {c.digest for c in artefact.code_objects}
        for dispatch in artefact.plan.dispatches:
            if dispatch.code_object not in held:
                raise InvalidValue(f"{dispatch.symbol} runs from an object the artefact lacks")
        return artefact


def _code_object(value: Json) -> CodeObject:
    return CodeObject(
        digest=checked_digest(value["digest"], "code object"),
        size=checked_count(value["size"], "the size of a code object"),
        machine_code=checked_digest(value["machine_code"], "code object"),
        text_size=checked_count(value["text_size"], "the size of a code object's text"),
        kernels=tuple([_kernel(k) for k in value["kernels"]]),
    )


def _kernel(value: Json) -> KernelResources:
    symbol = checked_symbol(value["symbol"], "a kernel")
    figures = [value[name] for name in _FIGURES]
    for figure in figures:
        checked_count(figure, "a kernel's figure")
    return KernelResources(symbol, *figures)
