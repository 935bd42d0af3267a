"""Whether the installed kernels are those that a store was built from, file by file and without importing any."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mono_runtime.errors import KernelSourcesDiffer
from mono_runtime.inputs import Inputs
from mono_runtime.oci import StoreReader

ABSENT = "it is not there"
UNREADABLE = "this user may not read it"
HIDDEN = "a package of the same name hides it"
OTHER = "its content is another"
# As many files as an error names.
_LISTED = 10


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """One file that is not what a store was built from.

    Attributes:
        path: import path, such as ``vllm/models/x.py``.
        expected: sha256 hex of the file that was built from.
        found: sha256 hex of the installed one, or None when there is none to read.
        why: `OTHER`, `ABSENT`, `HIDDEN` or `UNREADABLE`.
    """

    path: str
    expected: str
    found: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A store's kernel sources beside the installed ones.

    Attributes:
        package: the package that the kernels belong to.
        version: the release of it that the store was built from.
        installed: where it was looked for; empty when the package is not installed, so that nothing
            was compared.
        compared: how many files were.
        differences: those that are not equal, by path.
    """

    package: str
    version: str
    installed: tuple[Path, ...]
    compared: int
    differences: tuple[SourceDifference, ...]


@dataclass(slots=True)
class SourceHashes:
    """sha256 hex of files; a file whose status did not change is read once in the life of this object."""

    _known: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """The digest of the regular file ``path``; raises `OSError`."""
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)
        seen = (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        known = self._known.get(str(path))
        if known is None or known[0] != seen:
            known = (seen, hashlib.sha256(path.read_bytes()).hexdigest())
            self._known[str(path)] = known
        return known[1]


def compare_sources(
    inputs: Inputs,
    roots: Mapping[str, Path] | None = None,
    hashes: SourceHashes | None = None,
) -> Comparison:
    """Compare the kernel package's files that ``inputs`` lists with the installed ones.

    Files of other packages (AITER's helpers, or what stands in for them) are part of what was built
    and need not be on a server, so they are not looked at.

    Args:
        roots: top-level package -> the directory it is imported from; by default what this Python
            would import.
        hashes: keeps digests between calls.
    """
    hashes = hashes or SourceHashes()
    facts = dict(inputs.kernels)
    package = facts.get("package", "")
    if roots is None:
        installed = _import_roots(package)
    else:
        installed = (roots[package],) if package in roots else ()
    recorded = [(path, sha256) for path, sha256 in inputs.sources if _belongs(path, package)]
    if not installed or not recorded:
        return Comparison(package, facts.get("version", "unknown"), installed, 0, ())
    found = (_compare(path, sha256, installed, hashes) for path, sha256 in recorded)
    differences = tuple(sorted((d for d in found if d), key=lambda d: d.path))
    return Comparison(
        package, facts.get("version", "unknown"), installed, len(recorded), differences
    )


def require_equal_sources(
    inputs: Inputs,
    roots: Mapping[str, Path] | None = None,
    hashes: SourceHashes | None = None,
    *,
    where: str | None = None,
) -> Comparison:
    """`compare_sources`, and `KernelSourcesDiffer` naming the files when one is not equal.

    Args:
        where: the store, for the error.
    """
    comparison = compare_sources(inputs, roots, hashes)
    _refuse(comparison, where)
    return comparison


class SourceCheck:
    """Compares each list of inputs of an opened store once. Safe to use from several threads.

    Args:
        roots: as for `compare_sources`.
    """

    def __init__(self, roots: Mapping[str, Path] | None = None) -> None:
        self._roots = roots
        self._hashes = SourceHashes()
        self._compared: dict[str, Comparison] = {}
        self._lock = threading.Lock()

    def compare(self, reader: StoreReader, inputs: str) -> Comparison:
        """The comparison for the inputs blob ``inputs`` of a store, which is read and verified.

        Raises:
            StoreError: the blob cannot be used.
        """
        with self._lock:
            if inputs not in self._compared:
                self._compared[inputs] = compare_sources(
                    reader.inputs(inputs), self._roots, self._hashes
                )
            return self._compared[inputs]

    def require(self, reader: StoreReader, inputs: str) -> Comparison:
        """`compare`, and `KernelSourcesDiffer` naming the files when one is not equal."""
        comparison = self.compare(reader, inputs)
        _refuse(comparison, str(reader.path))
        return comparison


def _refuse(comparison: Comparison, where: str | None) -> None:
    differences = comparison.differences
    if not differences:
        return
    package, version = comparison.package, comparison.version
    lines = [
        f"the installed {package} is not what the store was built from:"
        f" {len(differences)} of {comparison.compared} files differ"
    ]
    lines += [f"  {d.path}: {d.why}" for d in differences[:_LISTED]]
    if len(differences) > _LISTED:
        lines.append(f"  and {len(differences) - _LISTED} more")
    places = ", ".join(str(root / package) for root in comparison.installed)
    raise KernelSourcesDiffer(
        "\n".join(lines),
        where=f"{places}; store {where}" if where else places,
        fix=f"build a store from the {package} that is installed, or install {package} {version}",
    )


def _belongs(path: str, package: str) -> bool:
    parts = PurePosixPath(path).parts
    # A store is not trusted: no path of it may lead out of the package.
    inside = bool(parts) and ".." not in parts and not path.startswith("/")
    return inside and bool(package) and parts[0] in (package, f"{package}.py")


def _compare(
    path: str, expected: str, roots: tuple[Path, ...], hashes: SourceHashes
) -> SourceDifference | None:
    for root in roots:
        file = _file(root, path)
        try:
            found = hashes.of(file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return SourceDifference(path, expected, None, UNREADABLE)
        if file.suffix == ".py" and file.with_suffix("").joinpath("__init__.py").is_file():
            return SourceDifference(path, expected, found, HIDDEN)
        return None if found == expected else SourceDifference(path, expected, found, OTHER)
    return SourceDifference(path, expected, None, ABSENT)


def _file(root: Path, path: str) -> Path:
    module, _, data = path.partition("/")
    # A data file beside a module that is no package is named through the module.
    return root / data if module.endswith(".py") and data else root / path


def _import_roots(package: str) -> tuple[Path, ...]:
    """The directories that hold the top-level ``package``, as this Python would import it.

    Editable installations count through their import hooks, and a namespace package may have several.
    """
    # Costs milliseconds, and a store that is only listed needs none of it.
    from importlib.util import find_spec

    try:
        spec = find_spec(package) if package.isidentifier() else None
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        places = [Path(os.fspath(location)) for location in spec.submodule_search_locations]
        return tuple(place.parent for place in places if place.is_dir() and place.name == package)
    return (Path(spec.origin).parent,) if spec.has_location and spec.origin else ()
