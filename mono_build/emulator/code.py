"""A code object that is ready to run: decoded, translated, compiled and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mono_build.emulator import decode as decoder
from mono_build.emulator.blocks import Flow, control_flow
from mono_build.emulator.cache import cached_directory
from mono_build.emulator.compiler import RUNTIME, Compiler, find_compiler
from mono_build.emulator.instruction import Instruction, Operand
from mono_build.emulator.objects import CodeImage, Kernel
from mono_build.emulator.translate.program import Unmodelled, write_program

# The runtime's sources that generated code calls; the scheduler is a library of its own.
_CALLED = ("vector.c", "memory.c", "conversions.c", "halves.c", "mfma.c")
_ENGINE = ("engine.c",)
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
    """

    image: CodeImage
    instructions: tuple[Instruction, ...]
    flow: Flow
    rows: int
    sites: int
    unmodelled: tuple[Unmodelled, ...]
    table: int
    library: ctypes.CDLL

    def entry(self, kernel: Kernel) -> int:
        """The segment that a kernel begins with."""
        starts = {self.instructions[s.first].address: n for n, s in enumerate(self.flow.segments)}
        return starts[kernel.entry]


def load_code(image: CodeImage, *, workers: int | None = None) -> LoadedCode:
    """Decode, translate and compile ``image``, or take all that from the cache.

    ``workers`` compilers run at once (all processors when it is None).

    Raises:
        ToolchainError: no compiler, no ``tinygrad``, or no usable cache.
    """
    instructions = decoded(image)
    entries = [k.entry for k in image.kernels.values()]
    compiler = find_compiler()
    digest = hashlib.sha256(
        "\0".join((image.digest, image.arch, _sources_digest(), compiler.identity())).encode()
    ).hexdigest()

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
    return LoadedCode(
        image=image,
        instructions=instructions,
        flow=control_flow(instructions, entries),
        rows=facts["rows"],
        sites=facts["sites"],
        unmodelled=tuple(Unmodelled(n, reason) for n, reason in facts["unmodelled"]),
        table=library.mono_kernel_code(),
        library=library,
    )


def runtime_objects(compiler: Compiler) -> list[Path]:
    """The compiled runtime functions that generated code calls."""
    place = _compiled("runtime", compiler, _CALLED)
    return [place / Path(n).with_suffix(".o") for n in _CALLED]


def engine_library(compiler: Compiler) -> Path:
    """The shared library of the scheduler."""

    def link(place: Path, objects: Sequence[Path]) -> None:
        compiler.library(objects, place / "engine.so")

    return _compiled("engine", compiler, _ENGINE, link) / "engine.so"


def _compiled(
    kind: str,
    compiler: Compiler,
    names: Sequence[str],
    after: object = None,
) -> Path:
    def make(place: Path) -> None:
        sources = []
        for name in names:
            sources.append(place / name)
            sources[-1].write_bytes((RUNTIME / name).read_bytes())
        objects = compiler.objects(sources, _FAST, os.cpu_count() or 1)
        if callable(after):
            after(place, objects)

    text = "\0".join((_sources_digest(), compiler.identity()))
    return cached_directory(kind, hashlib.sha256(text.encode()).hexdigest(), make)


@cache
def _sources_digest() -> str:
    """Everything of ours that decides the compiled code."""
    here = Path(__file__).resolve().parent
    files = sorted([*RUNTIME.glob("*.[ch]"), *here.glob("*.py"), *here.glob("translate/*.py")])
    hasher = hashlib.sha256()
    for file in files:
        hasher.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return hasher.hexdigest()


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
