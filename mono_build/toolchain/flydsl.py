"""FlyDSL: where it is, and whether it is a version whose kernels and private parts we know."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from mono_build.toolchain.hashing import tree_digest
from mono_build.toolchain.packages import package_directory, package_version, search_path
from mono_build.toolchain.search import Place, Search

# 0.3.1 cannot build the mono kernels; 0.6 is not out, and its lowering is read in our extractor.
SUPPORTED = ">=0.4.2,<0.6"
_FIX = f"pip install 'flydsl{SUPPORTED}' (or this project with its 'build' extra)"


@dataclass(frozen=True, slots=True)
class FlyDSL:
    """An installed FlyDSL.

    Attributes:
        root: the package directory.
        version: what the package says it is.
        digest: sha256 hex over its Python files and native libraries.
    """

    root: Path
    version: str
    digest: str


def find_flydsl(search: Sequence[str] | None = None) -> FlyDSL:
    """FlyDSL of a supported version on ``search`` (default: this Python's path), or `ToolchainError`."""
    return search_flydsl(search).need()


def search_flydsl(search: Sequence[str] | None = None) -> Search[FlyDSL]:
    """As `find_flydsl`, without raising and with the places."""
    root = package_directory("flydsl", search)
    if root is None:
        places = search_path() if search is None else search
        looked = tuple(Place(p or ".", "absent") for p in places)
        return Search(None, looked, "FlyDSL is not installed", _FIX)
    version = package_version("flydsl", root) or "unknown"
    if not supported(version):
        problem = f"FlyDSL {version} is not supported: 0.4.2 up to, and not including, 0.6 is"
        return Search(None, (Place(str(root), f"version {version}"),), problem, _FIX, True)
    found = FlyDSL(root, version, tree_digest(dict(_content(root))))
    return Search(found, (Place(str(root), "used"),))


def supported(version: str) -> bool:
    """Whether ``version`` is one whose kernels and lowering we know."""
    try:
        return SpecifierSet(SUPPORTED).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _content(root: Path) -> Iterator[tuple[str, Path]]:
    # Wheels put the libraries that theirs link to in a sibling directory.
    for base in (root, root.parent / "flydsl.libs"):
        for directory, subdirectories, files in os.walk(base):
            subdirectories[:] = [d for d in subdirectories if d != "__pycache__"]
            for name in files:
                if name.endswith((".py", ".so", ".a")) or ".so." in name:
                    path = Path(directory, name)
                    yield path.relative_to(root.parent).as_posix(), path
