"""Which store a command means when it is given none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mono_runtime.errors import StoreError

VARIABLE = "MONO_STORE"


def layered(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The stores of ``MONO_STORE`` (separated by colons), first hit first; empty when unset."""
    return tuple(Path(part) for part in environ.get(VARIABLE, "").split(":") if part)


def default_store(environ: Mapping[str, str]) -> Path:
    """Where to build: the last element of ``MONO_STORE`` that can be written, else the user's cache.

    Raises:
        StoreError: there is neither, because ``HOME`` and ``XDG_CACHE_HOME`` are not set.
    """
    writable = [path for path in layered(environ) if _can_write(path)]
    return writable[-1] if writable else _user_store(environ)


def resolve_read(environ: Mapping[str, str], explicit: Path | None = None) -> tuple[Path, ...]:
    """Where to look, first hit first: ``explicit`` alone, else ``MONO_STORE``, else the user's cache.

    Raises:
        StoreError: as for `default_store`.
    """
    if explicit is not None:
        return (explicit,)
    return layered(environ) or (_user_store(environ),)


def _user_store(environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and must be ignored.
    if cache.startswith("/"):
        return Path(cache, "mono-build", "store")
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise StoreError(
            "no store is named, and without HOME there is no user cache to put one in",
            fix=f"name a directory with --store DIR or {VARIABLE}",
        )
    return Path(home, ".cache", "mono-build", "store")


def _can_write(path: Path) -> bool:
    """Whether ``path`` is a directory to write into, or could be made."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK, effective_ids=True)
