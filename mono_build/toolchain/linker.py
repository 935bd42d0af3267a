"""The LLD that turns the compiler's object into a code object: ROCm's, the system's, or ziglang's."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_build.toolchain.hashing import file_sha256, names_digest
from mono_build.toolchain.packages import package_directory
from mono_build.toolchain.search import Place, Search

ROCM = Path("/opt/rocm")
_NUMBERED = re.compile(r"ld\.lld-(\d+)\Z")
_RELEASE = re.compile(r"\bLLD (\d+(?:\.\d+)*)")
_VERSION_SECONDS = 30
_FIX = "apt install lld, or pip install ziglang, or set ROCM_PATH to a ROCm installation"


@dataclass(frozen=True, slots=True)
class Linker:
    """A working LLD.

    Attributes:
        path: the program.
        arguments: what selects its ELF linker, before the linker's own arguments.
        version: the first line that ``--version`` prints.
        digest: sha256 hex over its content, arguments and version line, and not its path.
        origin: which rule found it: ``ROCM_PATH``, ``rocm``, ``PATH`` or ``ziglang``.
    """

    path: Path
    arguments: tuple[str, ...]
    version: str
    digest: str
    origin: str

    @property
    def release(self) -> str:
        """The LLD release of the version line, such as ``20.1.2``."""
        match = _RELEASE.search(self.version)
        return match[1] if match else "0"


def find_linker(
    environ: Mapping[str, str], *, rocm: Path = ROCM, search: Sequence[str] | None = None
) -> Linker:
    """The first LLD that runs, or `ToolchainError` with every place; see `search_linker`."""
    return search_linker(environ, rocm=rocm, search=search).need()


def search_linker(
    environ: Mapping[str, str], *, rocm: Path = ROCM, search: Sequence[str] | None = None
) -> Search[Linker]:
    """Look at ``ROCM_PATH``, ``rocm``, the ``PATH`` and the ``ziglang`` package, in this order.

    Args:
        rocm: where ROCm lies when nothing says otherwise.
        search: import path for ``ziglang``; this Python's by default.
    """
    looked: list[Place] = []
    for origin, path, arguments in _candidates(environ, rocm, search, looked):
        if not path.is_file():
            looked.append(Place(str(path), "absent"))
            continue
        version, problem = _version(path, arguments, environ)
        if version is None:
            looked.append(Place(str(path), problem))
            continue
        looked.append(Place(str(path), "used"))
        pairs = [("content", file_sha256(path)), ("version", version)]
        digest = names_digest([*pairs, *(("argument", a) for a in arguments)])
        return Search(Linker(path, arguments, version, digest, origin), tuple(looked))
    problem = "no LLD was found, which links what the compiler makes"
    return Search(None, tuple(looked), problem, _FIX)


def _candidates(
    environ: Mapping[str, str], rocm: Path, search: Sequence[str] | None, looked: list[Place]
) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    named = environ.get("ROCM_PATH")
    if named:
        yield "ROCM_PATH", Path(named, "llvm/bin/ld.lld"), ()
    else:
        looked.append(Place("ROCM_PATH", "not set"))
    yield "rocm", rocm / "llvm/bin/ld.lld", ()
    on_path = _on_path(environ)
    if not on_path:
        looked.append(Place("PATH: ld.lld, ld.lld-NN", "absent"))
    for path in on_path:
        yield "PATH", path, ()
    ziglang = package_directory("ziglang", search)
    if ziglang is None:
        looked.append(Place("Python package ziglang", "absent"))
    else:
        yield "ziglang", ziglang / "zig", ("ld.lld",)


def _on_path(environ: Mapping[str, str]) -> list[Path]:
    plain: list[Path] = []
    numbered: list[tuple[int, Path]] = []
    for directory in environ.get("PATH", os.defpath).split(os.pathsep):
        try:
            names = [path.name for path in Path(directory).iterdir()] if directory else []
        except OSError:
            continue
        if "ld.lld" in names:
            plain.append(Path(directory, "ld.lld"))
        for name in names:
            if match := _NUMBERED.match(name):
                numbered.append((int(match[1]), Path(directory, name)))
    return plain + [path for _, path in sorted(numbered, key=lambda item: -item[0])]


def _version(
    path: Path, arguments: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[str | None, str]:
    kept = {n: environ[n] for n in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if n in environ}
    try:
        done = subprocess.run(
            [str(path), *arguments, "--version"],
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except PermissionError:
        return None, "not executable"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not run: {error}"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        return None, f"--version failed with exit code {done.returncode}"
    if "LLD" not in lines[0]:
        return None, f"is not LLD: {lines[0]}"
    return lines[0], ""
