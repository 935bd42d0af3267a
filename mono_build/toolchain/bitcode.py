"""AMD's device libraries, which kernels that call ocml or ockl functions are linked with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mono_build.toolchain.hashing import tree_digest
from mono_build.toolchain.linker import ROCM
from mono_build.toolchain.search import Place

FIX = "set ROCM_PATH to a ROCm installation, whose amdgcn/bitcode is used"


@dataclass(frozen=True, slots=True)
class Bitcode:
    """The directory of device libraries, or none, and the digest of its ``*.bc`` files."""

    directory: Path | None
    digest: str


def find_bitcode(environ: Mapping[str, str], *, rocm: Path = ROCM) -> Bitcode:
    """The device libraries of ``ROCM_PATH`` or ``rocm``; having none is fine for most kernels."""
    return look_for_bitcode(environ, rocm=rocm)[0]


def look_for_bitcode(
    environ: Mapping[str, str], *, rocm: Path = ROCM
) -> tuple[Bitcode, tuple[Place, ...]]:
    """As `find_bitcode`, with the places."""
    looked = []
    named = environ.get("ROCM_PATH")
    for root in ([Path(named)] if named else []) + [rocm]:
        directory = root / "amdgcn" / "bitcode"
        files = {path.name: path for path in directory.glob("*.bc")}
        if files:
            looked.append(Place(str(directory), "used"))
            return Bitcode(directory, tree_digest(files)), tuple(looked)
        looked.append(Place(str(directory), "no *.bc" if directory.is_dir() else "absent"))
    return Bitcode(None, tree_digest({})), tuple(looked)
