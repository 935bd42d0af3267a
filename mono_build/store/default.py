"""Where to build when no store is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mono_runtime.errors import StoreError
from mono_runtime.layers import VARIABLE, layered


def default_store(environ: Mapping[str, str]) -> Path:
    """Where to build: the last element of ``MONO_STORE`` that can be written, else the user's cache.

    Raises:
        StoreError: there is neither, because ``HOME`` and ``XDG_CACHE_HOME`` are not set.
    """
    writable = [path for path in layered(environ) if _can_write(path)]
    return writable[-1] if writable else _user_store(environ)


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
