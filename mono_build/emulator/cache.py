"""Directories of results that are made once: decoded instructions and compiled code, by digest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from mono_build.sources import cache_directory


def cached_directory(kind: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The directory for ``digest``, made by ``make`` in a temporary place when it is not there.

    Two processes that make it at the same time do no harm: one result is kept.

    Raises:
        ToolchainError: ``MONO_CACHE`` cannot be used.
    """
    parent = cache_directory(os.environ) / "emulator" / kind
    place = parent / digest
    if place.is_dir():
        return place
    parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        make(work)
        try:
            work.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place
