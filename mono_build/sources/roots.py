"""Names of source files that do not depend on where the files lie, and their digests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mono_build.own_kernels import PATH, ROOT
from mono_build.toolchain.hashing import file_sha256
from mono_build.toolchain.packages import package_directory, project_entries, search_path

# Stands for the digest of a file that is gone; no digest looks like it.
ABSENT = "absent"
# The same for a module that a package of its name now hides from imports.
HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """Where the files of a family's kernels are imported from.

    Attributes:
        kernels: import root of the kernel packages.
        packages: dotted names of the packages whose code runs.
        helpers: import root of ``aiter``, when the kernels use it.
    """

    kernels: Path
    packages: tuple[str, ...]
    helpers: Path | None = None

    @property
    def tops(self) -> dict[str, Path]:
        """Top-level package names and the import root that each is taken from."""
        tops = {name.split(".")[0]: self.kernels for name in self.packages}
        return tops if self.helpers is None else {**tops, "aiter": self.helpers}

    def locate(self, path: str) -> Path | None:
        """The file of an import-relative ``path`` such as ``vllm/models/x.py``, or None.

        A data file beside a module that is no package may be named through it: ``x.py/table.json``.
        """
        parts = PurePosixPath(path).parts
        # Recorded paths come out of a store, which is not trusted.
        if not parts or path.startswith("/") or ".." in parts:
            return None
        if len(parts) == 2 and parts[0].endswith(".py"):
            module = self.locate(parts[0])
            return None if module is None else _file(module.with_name(parts[1]))
        if path.startswith(f"{PATH}/"):
            return _file(ROOT / path)
        root = self.tops.get(parts[0].removesuffix(".py"))
        if root is not None:
            return _file(root / path)
        path_entries = search_path()
        for entry in (*project_entries(path_entries), *path_entries):
            if found := _file(Path(entry or ".", path)):
                return found
        directory = package_directory(parts[0]) if len(parts) > 1 else None
        return None if directory is None else _file(directory.joinpath(*parts[1:]))


@dataclass(slots=True)
class FileDigests:
    """sha256 hex of files, each read once in the life of this object."""

    _known: dict[str, str] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """The digest of ``path``, or `ABSENT` when it cannot be read."""
        key = str(path)
        if key not in self._known:
            try:
                self._known[key] = file_sha256(path)
            except OSError:
                return ABSENT
        return self._known[key]

    def learn(self, path: Path, sha256: str) -> None:
        """Note the digest of bytes that were read from ``path``, as it was executed."""
        self._known[str(path)] = sha256


def current_sources(
    paths: Iterable[str], roots: SourceRoots, digests: FileDigests | None = None
) -> tuple[tuple[str, str], ...]:
    """What an earlier build's source files are now, without importing anything.

    Args:
        paths: import-relative paths, as `KernelImporter.sources` recorded them.
        digests: keeps digests between calls; the files must not change meanwhile.

    A file that is gone has `ABSENT` for its digest, so that it equals no recorded one.
    """
    digests = digests or FileDigests()
    return tuple(sorted((path, _current(path, roots, digests)) for path in set(paths)))


def _current(path: str, roots: SourceRoots, digests: FileDigests) -> str:
    file = roots.locate(path)
    if file is None:
        return ABSENT
    if file.suffix == ".py" and file.with_suffix("").joinpath("__init__.py").is_file():
        return HIDDEN
    return digests.of(file)


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None
