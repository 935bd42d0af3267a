"""AITER's FlyDSL helper modules: from an installed AITER that has them, else from our stand-ins."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_build.toolchain.packages import package_directory, package_version
from mono_build.toolchain.search import Place
from mono_runtime.inputs import pairs

PACKAGE = "aiter.ops.flydsl.kernels"
# What the kernels of vLLM 0.33.0 import from each module.
NEEDED = {
    "buffer_ops": {"buffer_load", "buffer_store", "create_buffer_resource_from_addr"},
    "dpp_utils": {"update_dpp_i32"},
    "kernels_common": {"kernel_signature"},
}
# Raised when the stand-ins change what they emit; their files are digested besides.
_STANDINS_VERSION = "1"


@dataclass(frozen=True, slots=True)
class HelperModules:
    """Who provides ``aiter.ops.flydsl.kernels``.

    Attributes:
        provider: ``aiter`` or ``mono-build``.
        version: the provider's version; for stand-ins, of what they emit.
        root: the import root, the directory that holds ``aiter/``.
        looked: the places, with the reason why one was not used.
    """

    provider: str
    version: str
    root: Path
    looked: tuple[Place, ...] = ()

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The form of `mono_runtime.inputs.Inputs.helpers`."""
        return pairs({"provider": self.provider, "version": self.version})


def find_helpers(search: Sequence[str] | None = None) -> HelperModules:
    """AITER on ``search`` (default: this Python's path) if it has what the kernels need, else ours.

    AITER is read and never imported. The package of the same name on the package index is another
    project and never used.
    """
    directory = package_directory("aiter", search)
    if directory is None:
        return _standins(Place("Python package aiter", "absent"))
    version = package_version("aiter", directory, ("amd-aiter",)) or "unknown"
    kernels = directory / "ops" / "flydsl" / "kernels"
    if not kernels.is_dir():
        return _standins(Place(str(directory), "not AMD's AITER (no ops/flydsl/kernels): not used"))
    missing = [
        f"{module}.{name}"
        for module, names in NEEDED.items()
        for name in sorted(names - _defined(kernels / f"{module}.py"))
    ]
    if missing:
        reason = f"AITER {version} lacks {', '.join(missing)}: not used"
        return _standins(Place(str(directory), reason))
    return HelperModules("aiter", version, directory.parent, (Place(str(directory), "used"),))


def _standins(*looked: Place) -> HelperModules:
    root = Path(__file__).resolve().parent.parent / "standins"
    return HelperModules(
        "mono-build", _STANDINS_VERSION, root, (*looked, Place("mono-build's stand-ins", "used"))
    )


def _defined(file: Path) -> set[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names
