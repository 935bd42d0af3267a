"""The system's C compiler: finding it, and running it for the emulator's sources and for generated code."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mono_build.errors import ToolchainError

RUNTIME = Path(__file__).resolve().parent / "runtime"
# Nothing here may relax floating point: each operation rounds once, as on the device.
_COMMON = (
    "-std=gnu11",
    "-march=native",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
)
_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler.

    Attributes:
        command: how it is called.
        version: the first line it says of itself.
    """

    command: tuple[str, ...]
    version: str

    def objects(self, sources: Sequence[Path], optimisation: str, workers: int) -> list[Path]:
        """Compile each source beside itself; `ToolchainError` when one is refused."""

        def compile_one(source: Path) -> Path:
            target = source.with_suffix(".o")
            flags = (*_COMMON, *_own_flags(self.command), optimisation, f"-I{RUNTIME}")
            self._run((*flags, "-c", str(source), "-o", str(target)))
            return target

        with ThreadPoolExecutor(max(1, workers)) as pool:
            return list(pool.map(compile_one, sources))

    def library(self, objects: Sequence[Path], target: Path) -> None:
        """Link ``objects`` into a shared library."""
        self._run(("-shared", "-o", str(target), *map(str, objects), "-lm"))

    def identity(self) -> str:
        """What, besides the sources, decides the result: compiler, flags and this machine's processor."""
        parts = (*self.command, self.version, *_COMMON, platform.machine(), _processor_features())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _run(self, arguments: tuple[str, ...]) -> None:
        done = subprocess.run(
            (*self.command, *arguments),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise ToolchainError(
                "the C compiler refused the emulator's code",
                where="\n".join([" ".join(self.command), *done.stderr.splitlines()[:12]]),
                fix="set MONO_CC to GCC 12 or Clang 15 or newer",
            )


def find_compiler(environ: Mapping[str, str] = os.environ) -> Compiler:
    """``MONO_CC``, else ``cc``, ``gcc`` or ``clang`` on the path, else the package ``ziglang``.

    Raises:
        ToolchainError: there is none of them.
    """
    chosen = environ.get("MONO_CC")
    if chosen:
        return _identified(tuple(chosen.split()))
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return _identified((found,))
    if importlib.util.find_spec("ziglang"):
        return _identified((sys.executable, "-m", "ziglang", "cc"))
    raise ToolchainError(
        "the emulator needs a C compiler, and there is none",
        where="MONO_CC, cc, gcc and clang on PATH, the package ziglang",
        fix="install gcc or clang, or pip install ziglang",
    )


@cache
def _identified(command: tuple[str, ...]) -> Compiler:
    try:
        done = subprocess.run(
            (*command, "--version"), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            "the C compiler cannot be run", where=f"{' '.join(command)}: {error}", fix="set MONO_CC"
        ) from error
    return Compiler(command, (done.stdout.splitlines() or [""])[0])


def _own_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    # Zig's driver adds checks for undefined behaviour, which make everything several times slower.
    return ("-fno-sanitize=all",) if "ziglang" in command else ()


@cache
def _processor_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
