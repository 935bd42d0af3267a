"""Which files the kernels of this process ran or read: the dependency file of a build.

A module counts when it lies in a kernel or helper package, when it is named, or when a module that
counts imports it, however far away its file is. Files beside or below a module that counts count as
well when they are opened for reading.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from mono_build.own_kernels import is_own
from mono_build.sources.data import Place, data_name, data_places, engine_places, own_places
from mono_build.sources.roots import ABSENT, FileDigests, SourceRoots

# The interpreter, the compiler and this project are named by their versions and digests instead; all
# but this project's own kernels.
_COVERED = frozenset(
    {*sys.stdlib_module_names, "__main__", "flydsl", "mono_build", "mono_runtime", "numpy", "torch"}
)
# Recorders that are at work. An audit hook cannot be removed, so there is one, and it asks this list.
_active: list[SourceRecorder] = []
_hooked: list[bool] = []


class SourceRecorder:
    """Watches imports and opened files; forked children go on with what their parent saw."""

    def __init__(self, roots: SourceRoots, digests: FileDigests, extra: Sequence[str] = ()) -> None:
        self._roots = roots
        self._digests = digests
        self._extra = tuple(extra)
        self._importers: dict[str, set[str]] = {}
        self._opened: set[str] = set()
        self._imports: dict[str, frozenset[str]] = {}
        self._kernels = tuple(p.directory for p in engine_places(roots))

    def start(self) -> None:
        """Begin to watch this process."""
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked.append(True)
        _active.append(self)

    def stop(self) -> None:
        """Stop watching."""
        if self in _active:
            _active.remove(self)

    def note_import(self, name: str) -> None:
        """Remember who asks for module ``name``, which is not loaded yet."""
        if not _is_covered(name):
            self._importers.setdefault(_importing_module(), set()).add(name)

    def note_open(self, path: object, flags: object, frame: types.FrameType) -> None:
        """Remember a file that code of ``frame`` opens for reading; `sources` works out whose it is."""
        if not isinstance(path, (str, bytes, os.PathLike)) or not isinstance(flags, int):
            return
        if flags & (os.O_WRONLY | os.O_RDWR):
            return
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are kept, as they name modules
        if text not in self._opened and self._may_be_data(text, frame):
            self._opened.add(text)

    def _may_be_data(self, path: str, frame: types.FrameType) -> bool:
        if path.endswith(".pyc"):
            return False
        opener = _opening_module(frame)
        # We read what an earlier build recorded, which this one need not.
        if opener.partition(".")[0] in ("mono_build", "mono_runtime") and not is_own(opener):
            return False
        # Without a bytecode file an import opens the source: a module like any other. A kernel
        # module counts even when its import fails.
        imports = opener.startswith(("importlib._bootstrap", "_frozen_importlib"))
        return not (imports and path.endswith(".py")) or path.startswith(self._kernels)

    def sources(self, own: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
        """(import-relative path, sha256 hex), sorted; a file that is gone again is left out.

        The files are those of the engine's kernels, or of ``own``, modules of this project's. Neither
        depends on whether the other was imported.
        """
        start = own or [n for n in list(sys.modules) if n.split(".")[0] in self._roots.tops]
        reached = self._reached([*start, *self._extra])
        tops = {name.split(".")[0] for name in reached if not is_own(name)}
        files = self._data(data_places(tops, own_places() if own else engine_places(self._roots)))
        for name in reached:
            if file := _file_of(name):
                files[_relative(name, file)] = file
        found = ((path, self._digests.of(file)) for path, file in files.items())
        return tuple(sorted((path, sha256) for path, sha256 in found if sha256 != ABSENT))

    def _data(self, places: Sequence[Place]) -> dict[str, Path]:
        files: dict[str, Path] = {}
        # Sorted, so that of two spellings of a file the same one is taken every time.
        for path in sorted(self._opened):
            name = data_name(path, places, self._roots)
            if name is not None and Path(path).is_file():
                files[name] = Path(path)
        return files

    def _reached(self, queue: list[str]) -> set[str]:
        reached: set[str] = set()
        while queue:
            name = queue.pop()
            if name in reached or _is_covered(name) or name not in sys.modules:
                continue
            reached.add(name)
            queue.extend(self._imports_of(name))
            queue.extend(self._importers.get(name, ()))
            if "." in name:
                queue.append(name.rpartition(".")[0])
        return reached

    def _imports_of(self, name: str) -> frozenset[str]:
        if name not in self._imports:
            file = _file_of(name)
            package = getattr(sys.modules[name], "__package__", None) or name.rpartition(".")[0]
            self._imports[name] = _imported_names(file, package) if file else frozenset()
        return self._imports[name]


def _is_covered(name: str) -> bool:
    return name.split(".")[0] in _COVERED and not is_own(name)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        for recorder in _active:
            recorder.note_open(arguments[0], arguments[2], sys._getframe(1))


def _importing_module() -> str:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("importlib", "_frozen_importlib", "mono_build.sources")):
            return str(name)
        frame = frame.f_back
    return ""


def _opening_module(start: types.FrameType) -> str:
    """The module whose code opens a file, whatever it opens it with."""
    frame: types.FrameType | None = start
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("pathlib", "io", "_pyio"):
            return name
        frame = frame.f_back
    return ""


def _imported_names(file: Path, package: str) -> frozenset[str]:
    """Every module that the import statements of ``file`` can mean, at any depth of its code."""
    if file.suffix != ".py":
        return frozenset()
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # What is imported from a package may be a module of it.
            names.update([module, *(f"{module}.{alias.name}" for alias in node.names)])
    return frozenset(names)


def _file_of(name: str) -> Path | None:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    origin = spec.origin if spec is not None and spec.has_location else None
    origin = origin or getattr(module, "__file__", None)
    return Path(origin) if origin else None


def _relative(name: str, file: Path) -> str:
    parts = name.split(".")
    package = hasattr(sys.modules[name], "__path__")
    return "/".join([*(parts if package else parts[:-1]), file.name])
