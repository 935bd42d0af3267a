"""Import-relative names of data files, by the modules that they lie beside or below."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mono_build.own_kernels import PATH, ROOT
from mono_build.sources.roots import SourceRoots


@dataclass(frozen=True, slots=True)
class Place:
    """A directory whose files may be data of a module.

    Attributes:
        directory: absolute, with a separator at its end.
        module: the top-level package that it belongs to, or the file of the module that lies in it.
        deep: whether subdirectories count; they do for packages.
    """

    directory: str
    module: str
    deep: bool

    def below(self, path: str) -> str | None:
        """The name of absolute ``path`` relative to this place, or None when it is not of it."""
        if not path.startswith(self.directory):
            return None
        name = path[len(self.directory) :].replace(os.sep, "/")
        return name if self.deep or "/" not in name else None


def engine_places(roots: SourceRoots) -> Iterator[Place]:
    """Where data of the engine's kernels and of the helper modules can lie."""
    for top, root in roots.tops.items():
        yield from _spellings(root / top, top, deep=True)


def own_places() -> Iterator[Place]:
    """Where data of our own kernels can lie."""
    yield from _spellings(ROOT / PATH, PATH, deep=True)


def data_places(tops: Iterable[str], kernels: Iterable[Place]) -> tuple[Place, ...]:
    """Where data of top-level modules ``tops``, which are imported, and of ``kernels`` can lie."""
    places = set(kernels)
    for top in tops:
        module = sys.modules.get(top)
        locations = getattr(module, "__path__", None)
        if locations is not None:
            for location in locations:
                places.update(_spellings(Path(location), top, deep=True))
        elif file := getattr(module, "__file__", None):
            path = Path(file)
            places.update(_spellings(path.parent, path.name, deep=False))
            places.update(_spellings(path.resolve().parent, path.name, deep=False))
    return tuple(sorted(places, key=lambda p: (not p.deep, p.module, p.directory)))


def data_name(path: str, places: Iterable[Place], roots: SourceRoots) -> str | None:
    """The name by which `SourceRoots.locate` finds absolute ``path`` again, or None for no data."""
    for place in places:
        below = place.below(path)
        if below is None:
            continue
        if place.deep:
            return f"{place.module}/{below}"
        # Its plain name may mean another file, of a directory that comes earlier.
        return below if _same(roots.locate(below), path) else f"{place.module}/{below}"
    return None


def _spellings(directory: Path, module: str, *, deep: bool) -> Iterator[Place]:
    # Either spelling of a linked directory may be opened.
    for base in (directory.absolute(), directory.resolve()):
        yield Place(str(base).rstrip(os.sep) + os.sep, module, deep)


def _same(found: Path | None, path: str) -> bool:
    try:
        return found is not None and found.samefile(path)
    except OSError:
        return False
