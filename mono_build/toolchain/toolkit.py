"""A private ROCm directory that holds only the linker and the device libraries that were chosen."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mono_build.errors import ToolchainError
from mono_build.toolchain.bitcode import Bitcode
from mono_build.toolchain.linker import Linker

_TRY_SECONDS = 30


@contextmanager
def toolkit(linker: Linker, bitcode: Bitcode) -> Iterator[Path]:
    """A temporary directory with the layout that FlyDSL expects of ``ROCM_PATH``, and an empty ``home``.

    It is what makes every build use the linker that its key names. Raises `ToolchainError` when
    the directory cannot be made or programs may not run in it.
    """
    try:
        root = Path(tempfile.mkdtemp(prefix="mono-build-toolkit-"))
    except OSError as error:
        raise ToolchainError(
            f"no temporary directory can be made: {error.strerror or error}",
            fix="set TMPDIR to a writable directory",
        ) from error
    try:
        _fill(root, linker, bitcode)
        _try(root / "llvm" / "bin" / "ld.lld")
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fill(root: Path, linker: Linker, bitcode: Bitcode) -> None:
    try:
        (root / "llvm" / "bin").mkdir(parents=True)
        (root / "amdgcn").mkdir()
        (root / "home").mkdir()
        program = root / "llvm" / "bin" / "ld.lld"
        if linker.arguments:
            command = shlex.join([str(linker.path.absolute()), *linker.arguments])
            program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            program.chmod(0o755)
        else:
            program.symlink_to(linker.path.absolute())
        libraries = root / "amdgcn" / "bitcode"
        if bitcode.directory is None:
            libraries.mkdir()
        else:
            libraries.symlink_to(bitcode.directory.absolute())
    except OSError as error:
        raise ToolchainError(
            f"the temporary toolkit cannot be written: {error.strerror or error}",
            where=str(root),
            fix="free some space there, or set TMPDIR to another directory",
        ) from error


def _try(program: Path) -> None:
    try:
        done = subprocess.run(
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except PermissionError as error:
        raise ToolchainError(
            "programs may not run in the temporary directory (it is mounted noexec)",
            where=str(program),
            fix="set TMPDIR to a directory on a file system that is mounted without noexec",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"the linker does not run: {error}", where=str(program)) from error
    if done.returncode:
        raise ToolchainError(
            f"the linker fails with exit code {done.returncode}",
            where=str(program),
            fix="run `mono-build doctor`",
        )
