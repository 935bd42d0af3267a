"""The tools of a build as one value: what enters its keys and what a manifest may pin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from mono_build.errors import ToolchainError, UsageError
from mono_build.toolchain.bitcode import Bitcode, find_bitcode
from mono_build.toolchain.flydsl import FlyDSL, find_flydsl
from mono_build.toolchain.linker import Linker, find_linker
from mono_build.toolchain.packages import literal_version, package_directory, package_version
from mono_runtime.inputs import pairs

Facts = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
# The version of a package that is not installed; no version looks like it.
ABSENT = "absent"


class PinSet(Protocol):
    """Versions that a manifest asks for: PEP 440 specifiers (``>=0.4.2,<0.6``) or exact versions."""

    @property
    def flydsl(self) -> str | None: ...
    @property
    def lld(self) -> str | None: ...
    @property
    def kernels(self) -> str | None: ...
    @property
    def python(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Everything but the kernels' sources that the bytes of a code object depend on.

    Attributes:
        python: the minor version, such as ``3.11``: its compiler orders what FlyDSL traces.
        torch, numpy: versions of what kernels compute with while they are traced, or `ABSENT`.
    """

    flydsl: FlyDSL
    linker: Linker
    bitcode: Bitcode
    python: str
    torch: str = ABSENT
    numpy: str = ABSENT

    def facts(self) -> Facts:
        """The form of `mono_runtime.inputs.Inputs.toolchain`; no path is part of it."""
        facts: dict[str, dict[str, str]] = {
            "bitcode": {"sha256": self.bitcode.digest},
            "flydsl": {"version": self.flydsl.version, "sha256": self.flydsl.digest},
            "linker": {"version": self.linker.version, "sha256": self.linker.digest},
            "numpy": {"version": self.numpy},
            "python": {"version": self.python},
            "torch": {"version": self.torch},
        }
        return tuple((name, pairs(value)) for name, value in sorted(facts.items()))


def identify(environ: Mapping[str, str]) -> Toolchain:
    """The tools that this Python and ``environ`` lead to; `ToolchainError` names what is missing."""
    # Both read hundreds of megabytes; hashing releases the GIL.
    with ThreadPoolExecutor(max_workers=2) as pool:
        linker = pool.submit(find_linker, environ)
        flydsl = pool.submit(find_flydsl)
        bitcode, torch, numpy = find_bitcode(environ), _version("torch"), _version("numpy")
        return Toolchain(flydsl.result(), linker.result(), bitcode, python_version(), torch, numpy)


def _version(package: str) -> str:
    directory = package_directory(package)
    if directory is None:
        return ABSENT
    # Both keep it there; their __init__ files are large, and parsing those would cost every build.
    version = literal_version(directory / "version.py") or package_version(package, directory)
    return version or "unknown"


def python_version() -> str:
    """This Python's minor version, such as ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_pins(pins: PinSet, toolchain: Toolchain, kernels: str | None = None) -> None:
    """Refuse tools that a manifest's pins exclude.

    Args:
        kernels: the version of the kernel source, when it is known.

    Raises `ToolchainError` that names every mismatch with both versions, and `UsageError` for a pin
    that is neither a version nor a specifier.
    """
    have = {
        "flydsl": (pins.flydsl, toolchain.flydsl.version),
        "lld": (pins.lld, toolchain.linker.release),
        "kernels": (pins.kernels, kernels),
        "python": (pins.python, toolchain.python),
    }
    wrong = [
        f"{name} is {version}, and the manifest pins {pin}"
        for name, (pin, version) in have.items()
        if pin is not None and version is not None and not _admits(name, pin, version)
    ]
    if wrong:
        raise ToolchainError("; ".join(wrong), fix="install what is pinned, or change the pin")


def _admits(name: str, pin: str, version: str) -> bool:
    # A kernel pin may be written as the requirement that names it: vllm==0.33.0.
    text = pin.strip().removeprefix("vllm").strip() if name == "kernels" else pin.strip()
    try:
        if text[:1].isdigit():
            # 3.11 pins a series, as everybody means it; 0.5.0 pins one version.
            text = f"=={text}.*" if name == "python" and text.count(".") == 1 else f"=={text}"
        specifier = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise UsageError(
            f"the {name} pin {pin!r} is neither a version nor a specifier",
            fix="write it as '0.5.0' or '>=0.4.2,<0.6'",
        ) from error
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
