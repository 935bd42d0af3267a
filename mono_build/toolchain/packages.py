"""Where an importable package lies and which version it is, without executing any of it."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from urllib.parse import unquote, urlsplit


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
            return metadata.version(distribution)
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
    path = sys.path if search is None else list(search)
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
    try:
        # For a top-level name this asks the finders and imports nothing.
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return PathFinder.find_spec(name, sys.path)


def _editable(name: str, search: Sequence[str] | None) -> Path | None:
    root = editable_root(name, search)
    if root is None:
        return None
    for candidate in (root / name, root / "src" / name):
        if candidate.is_dir():
            return candidate.resolve()
    return None
