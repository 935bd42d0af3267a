"""Disassembly of code objects, when LLVM's tools are there."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mono_build.errors import ToolchainError

_NAME = re.compile(r"llvm-objdump(?:-(\d+))?\Z")
_SECONDS = 120
_TRIPLE = "amdgcn-amd-amdhsa"


def disassemble(data: bytes, arch: str, environ: Mapping[str, str]) -> str:
    """The instructions of a code object as text; `ToolchainError` when no tool here can show them."""
    tried = []
    for tool in find_objdump(environ):
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(data)
            file.flush()
            command = [str(tool), "-d", f"--triple={_TRIPLE}", f"--mcpu={arch}", file.name]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        # An LLVM that is too old prints "<unknown>" or complains about the processor, and exits with 0.
        if done.returncode == 0 and "not a recognized processor" not in done.stderr:
            return done.stdout.replace(file.name, "code object")
        reason = (done.stderr.strip() or "failed").splitlines()[0].replace(file.name, "code object")
        tried.append(f"{tool}: {reason}")
    raise ToolchainError(
        f"no llvm-objdump here can disassemble {arch}",
        where="; ".join(tried) or "ROCM_PATH, /opt/rocm and PATH",
        fix="install Debian's package llvm (LLVM 20 or newer for gfx950), or use ROCm's container",
    )


def find_objdump(environ: Mapping[str, str]) -> Iterator[Path]:
    """Every ``llvm-objdump`` here, ROCm's first, then the newest on the path."""
    seen: set[Path] = set()
    for tool in (*_in_rocm(environ), *_on_path(environ)):
        if tool.resolve() not in seen:
            seen.add(tool.resolve())
            yield tool


def _in_rocm(environ: Mapping[str, str]) -> list[Path]:
    roots = [Path(r) for r in (environ.get("ROCM_PATH"), "/opt/rocm") if r]
    tools = [root / "llvm" / "bin" / "llvm-objdump" for root in roots]
    return [tool for tool in tools if tool.is_file()]


def _on_path(environ: Mapping[str, str]) -> list[Path]:
    found: list[tuple[int, Path]] = []
    for directory in environ.get("PATH", "").split(os.pathsep):
        if directory and Path(directory).is_dir():
            for path in Path(directory).iterdir():
                match = _NAME.match(path.name)
                if match and os.access(path, os.X_OK):
                    # The plain name is the distribution's default; it goes after numbered ones.
                    found.append((int(match[1] or 0), path))
    return [path for _, path in sorted(found, key=lambda f: (-f[0], str(f[1])))]
