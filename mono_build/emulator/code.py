"""A code object that is ready to run: decoded, translated, compiled and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_build.emulator import decode as decoder
from mono_build.emulator.blocks import Flow, control_flow
from mono_build.emulator.cache import cached_directory
from mono_build.emulator.compiler import RUNTIME, Compiler, find_compiler
from mono_build.emulator.instruction import Instruction, Operand
from mono_build.emulator.objects import CodeImage
from mono_build.emulator.translate.program import Unmodelled, write_program

# The runtime's sources that generated code calls; the scheduler is a library of its own.
_CALLED = (
    "access.c",
    "conversions.c",
    "halves.c",
    "memory_atomic.c",
    "memory_buffer.c",
    "memory_global.c",
    "memory_local.c",
    "mfma.c",
    "vector_compare.c",
    "vector_float.c",
    "vector_integer.c",
    "vector_lanes.c",
    "vector_operands.c",
    "vector_packed.c",
)
_ENGINE = ("engine.c", "workgroup.c")
_ENGINE_HEADERS = ("engine.h", "wave.h", "workgroup.h")
_LIBRARY = "code.so"
_FACTS = "facts.json"
_INSTRUCTIONS = "instructions.json"
_FAST = "-O3"
# Generated code is calls and scalar arithmetic: more than this only costs time.
_PLAIN = "-O1"


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """One code object in this process.

    Attributes:
        rows: vector registers that a wave needs.
        sites: how many accesses remember an allocation.
        unmodelled: instructions that stop a wave.
        table: address of its `struct kernel_code`.
        entries: the segment that each kernel begins with.
    """

    image: CodeImage
    instructions: tuple[Instruction, ...]
    flow: Flow
    rows: int
    sites: int
    unmodelled: tuple[Unmodelled, ...]
    table: int
    entries: Mapping[str, int]
    library: ctypes.CDLL


def load_code(image: CodeImage, *, workers: int | None = None) -> LoadedCode:
    """Decode, translate and compile ``image``, or take all that from the cache.

    ``workers`` compilers run at once (all processors when it is None).

    Raises:
        ToolchainError: no compiler, no ``tinygrad``, or no usable cache.
    """
    instructions = decoded(image)
    entries = [k.entry for k in image.kernels.values()]
    compiler = find_compiler()
    digest = _digest(compiler, _translation_sources(), image.digest, image.arch)

    def make(place: Path) -> None:
        program = write_program(instructions, entries, image.arch)
        sources = []
        for number, text in enumerate(program.files):
            sources.append(place / f"part{number}.c")
            sources[-1].write_text(text)
        objects = compiler.objects(sources, _PLAIN, workers or os.cpu_count() or 1)
        called = runtime_objects(compiler)
        compiler.library([*objects, *called], place / _LIBRARY)
        for file in (*sources, *objects):
            file.unlink()
        facts = {
            "rows": program.rows,
            "sites": program.sites,
            "unmodelled": [[u.instruction, u.reason] for u in program.unmodelled],
        }
        (place / _FACTS).write_text(json.dumps(facts))

    place = cached_directory("code", digest, make)
    facts = json.loads((place / _FACTS).read_text())
    library = ctypes.CDLL(str(place / _LIBRARY), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    library.mono_kernel_code.restype = ctypes.c_void_p
    flow = control_flow(instructions, entries)
    starts = {instructions[s.first].address: n for n, s in enumerate(flow.segments)}
    return LoadedCode(
        image=image,
        instructions=instructions,
        flow=flow,
        rows=facts["rows"],
        sites=facts["sites"],
        unmodelled=tuple(Unmodelled(n, reason) for n, reason in facts["unmodelled"]),
        table=library.mono_kernel_code(),
        entries={k.symbol: starts[k.entry] for k in image.kernels.values()},
        library=library,
    )


def runtime_objects(compiler: Compiler) -> list[Path]:
    """The compiled runtime functions that generated code calls."""

    def make(place: Path) -> None:
        _compile(compiler, _CALLED, place)

    digest = _digest(compiler, sorted(RUNTIME.glob("*.[ch]")))
    place = cached_directory("runtime", digest, make)
    return [place / Path(n).with_suffix(".o") for n in _CALLED]


def engine_library(compiler: Compiler) -> Path:
    """The shared library of the scheduler."""

    def make(place: Path) -> None:
        compiler.library(_compile(compiler, _ENGINE, place), place / "engine.so")

    digest = _digest(compiler, [RUNTIME / n for n in (*_ENGINE, *_ENGINE_HEADERS)])
    return cached_directory("engine", digest, make) / "engine.so"


def _compile(compiler: Compiler, names: Sequence[str], place: Path) -> list[Path]:
    sources = [place / n for n in names]
    for source in sources:
        source.write_bytes((RUNTIME / source.name).read_bytes())
    return compiler.objects(sources, _FAST, os.cpu_count() or 1)


def _digest(compiler: Compiler, files: Sequence[Path], *more: str) -> str:
    """Of everything that decides what a compilation of ``files`` gives."""
    hasher = hashlib.sha256("\0".join((compiler.identity(), _FAST, _PLAIN, *more)).encode())
    for file in files:
        hasher.update(f"\0{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return hasher.hexdigest()


def _translation_sources() -> list[Path]:
    here = Path(__file__).resolve().parent
    translating = (here / n for n in ("blocks.py", "instruction.py", "decode.py"))
    return [*translating, *sorted(here.glob("translate/*.py")), *sorted(RUNTIME.glob("*.[ch]"))]


def decoded(image: CodeImage) -> tuple[Instruction, ...]:
    """The instructions of ``image``, from the cache when they were decoded before."""
    module = Path(decoder.__file__).read_bytes()
    text = f"{image.digest}\0{hashlib.sha256(module).hexdigest()}"

    def make(place: Path) -> None:
        found = decoder.decode(image.text, image.address)
        (place / _INSTRUCTIONS).write_text(json.dumps([_to_json(i) for i in found]))

    place = cached_directory("decoded", hashlib.sha256(text.encode()).hexdigest(), make)
    return tuple(_from_json(v) for v in json.loads((place / _INSTRUCTIONS).read_text()))


def _to_json(i: Instruction) -> list[object]:
    operands = [[o.field, o.code, o.bits] for o in i.operands]
    return [i.address, i.words, i.encoding, i.mnemonic, operands, i.modifiers, i.literal]


def _from_json(value: Sequence[object]) -> Instruction:
    address, words, encoding, mnemonic, operands, modifiers, literal = value
    return Instruction(
        address=address,  # type: ignore[arg-type]
        words=tuple(words),  # type: ignore[arg-type]
        encoding=encoding,  # type: ignore[arg-type]
        mnemonic=mnemonic,  # type: ignore[arg-type]
        operands=tuple(Operand(*o) for o in operands),  # type: ignore[attr-defined]
        modifiers=tuple((n, v) for n, v in modifiers),  # type: ignore[attr-defined]
        literal=literal,  # type: ignore[arg-type]
    )
