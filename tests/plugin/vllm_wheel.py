"""The wheel of the vLLM release that the families describe, for tests that look at its files."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

from mono_build.sources import resolve_kernels
from mono_build.sources.cache import cache_directory
from mono_build.sources.fetch import pip_download


def wheel(needs: str) -> Path:
    """The wheel, or a tree of it that ``MONO_TEST_KERNELS`` names.

    Skips the test where that tree does not have ``needs``, a path in it: it may hold the kernels alone.
    """
    named = os.environ.get("MONO_TEST_KERNELS") or "vllm==0.33.0"
    path = Path(named)
    if path.is_dir() and not (path / needs).exists():
        pytest.skip("the tree of MONO_TEST_KERNELS holds the kernels alone")
    return path if path.exists() else _fetched(named)


@cache
def _fetched(named: str) -> Path:
    resolve_kernels(named, os.environ)
    kept = cache_directory(os.environ) / "wheels"
    wheels = list(kept.glob(f"vllm-{named.partition('==')[2]}-*.whl"))
    if not wheels:
        # The kernels are in the cache, and the wheel that they are from is not kept any more.
        fresh = Path(tempfile.mkdtemp(prefix="wheel-"))
        pip_download(named, fresh)
        wheels = list(fresh.glob("*.whl"))
    return wheels[0]
