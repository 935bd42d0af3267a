"""This project's own kernels: sources like an engine's, which need neither the engine nor helper modules."""

from __future__ import annotations

from pathlib import Path

from mono_runtime import __version__
from mono_runtime.inputs import Pairs, pairs

# The package below which their modules lie, and where it is imported from.
PACKAGE = "mono_build.kernels"
ROOT = Path(__file__).resolve().parent.parent
# The same as an import-relative path.
PATH = PACKAGE.replace(".", "/")


def is_own(module: str) -> bool:
    """Whether ``module`` is one of them, or their package."""
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def own_facts() -> Pairs:
    """Their origin in the form of `mono_runtime.inputs.Inputs.kernels`."""
    return pairs({"package": "mono-build", "version": __version__})
