"""The kernels' Python code: where it comes from, importing it alone, and what it turned out to read."""

from __future__ import annotations

from mono_build.sources.cache import cache_directory
from mono_build.sources.helpers import HelperModules, find_helpers
from mono_build.sources.importer import KernelImporter, kernel_importer
from mono_build.sources.kernels import KernelSource, check_packages, resolve_kernels
from mono_build.sources.roots import ABSENT, FileDigests, SourceRoots, current_sources

__all__ = [
    "ABSENT",
    "FileDigests",
    "HelperModules",
    "KernelImporter",
    "KernelSource",
    "SourceRoots",
    "cache_directory",
    "check_packages",
    "current_sources",
    "find_helpers",
    "kernel_importer",
    "resolve_kernels",
]
