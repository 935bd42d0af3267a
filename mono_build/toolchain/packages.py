"""Where an importable package lies and which version it is, without executing any of it."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Not resolved: it is compared with the entry of sys.path that it was imported from.
_PROJECT = str(Path(__file__).parents[2].absolute())


def search_path() -> tuple[str, ...]:
    """``sys.path`` without the entry that Python put there for the way this process was started.

    That is the current directory for ``-m`` and ``-c`` and the directory of a script; it counts
    only where PYTHONPATH or an installation names it as well.
    """
    path = list(sys.path)
    started = None if _adds_nothing() else _started_from()
    if started is not None:
        same = (i for i, entry in enumerate(path) if _absolute(entry) == started)
        index = next(same, None)
        if index is not None:
            del path[index]
    return tuple(path)


def project_entries(present: Sequence[str]) -> tuple[str, ...]:
    """What has to be put before the import path ``present`` so that this project is found on it.

    Nothing when its directory is there: moving that to the front would change what it hides.
    """
    return () if _PROJECT in map(_absolute, present) else (_PROJECT,)


def package_directory(name: str, search: Sequence[str] | None = None) -> Path | None:
    """The directory of top-level package ``name``: on ``search``, else wherever this Python would import it from.

    Editable installations count, whether they work by a path or by an import hook.
    """
    spec = _find(name, search)
    if spec is not None and spec.submodule_search_locations:
        for location in spec.submodule_search_locations:
            if Path(location).is_dir():
                return Path(location).resolve()
    return _editable(name, search)


def package_version(name: str, directory: Path, distributions: Sequence[str] = ()) -> str | None:
    """The version of the package in ``directory``, read and not imported.

    The package's own word comes first, because a metadata directory may belong to another copy.
    """
    for file in ("__init__.py", "_version.py", "version.py"):
        version = literal_version(directory / file)
        if version:
            return version
    for distribution in (*distributions, name):
        for found in metadata.distributions(name=distribution, path=[str(directory.parent)]):
            return found.version
    for distribution in (*distributions, name):
        root = editable_root(distribution, None)
        if root is not None and directory.is_relative_to(root.resolve()):
            path = list(search_path())
            return next(iter(metadata.distributions(name=distribution, path=path))).version
    return None


def literal_version(file: Path) -> str | None:
    """The text that ``file`` assigns to ``__version__`` or ``version`` at its top level, or None."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        names = {t.id for t in targets if isinstance(t, ast.Name)}
        value = getattr(node, "value", None)
        if names & {"__version__", "version"} and isinstance(value, ast.Constant):
            return value.value if isinstance(value.value, str) else None
    return None


def editable_root(distribution: str, search: Sequence[str] | None) -> Path | None:
    """The source directory of an editable installation (PEP 610), or None."""
    path = list(search_path() if search is None else search)
    for found in metadata.distributions(name=distribution, path=path):
        try:
            origin = json.loads(found.read_text("direct_url.json") or "{}")
        except ValueError:
            continue
        url = urlsplit(str(origin.get("url", "")))
        if origin.get("dir_info", {}).get("editable") and url.scheme == "file":
            return Path(unquote(url.path))
    return None


def _find(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    if search is not None:
        return PathFinder.find_spec(name, list(search))
    for finder in list(sys.meta_path):
        # A top-level name is only looked for, and nothing is imported.
        try:
            if finder is PathFinder:
                spec = PathFinder.find_spec(name, search_path())
            else:
                spec = finder.find_spec(name, None)
        except (ImportError, ValueError):
            continue
        if spec is not None:
            return spec
    return None


def _editable(name: str, search: Sequence[str] | None) -> Path | None:
    root = editable_root(name, search)
    if root is None:
        return None
    for candidate in (root / name, root / "src" / name):
        if candidate.is_dir():
            return candidate.resolve()
    return None


def _adds_nothing() -> bool:
    # -P and PYTHONSAFEPATH came with Python 3.11; -I means the same for this.
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _started_from() -> str | None:
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return _absolute("")
    if file is None:
        return _absolute("")
    # A directory or an archive that is run has a spec, and is put there itself, as it was named.
    return str(Path(file).parent.absolute() if spec is not None else Path(file).resolve().parent)


def _absolute(entry: str) -> str | None:
    try:
        return os.path.abspath(entry)  # noqa: PTH100 - links are kept, as Python keeps them
    except OSError:
        # The current directory is gone; Python puts nothing there then.
        return None
