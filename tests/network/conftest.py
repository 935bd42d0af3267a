"""What the tests of vLLM's launches share: the kernels to build from, and where the wheel is kept."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def kernels() -> list[str]:
    """The options that name vLLM's kernels: ``MONO_TEST_KERNELS`` (a wheel or a tree), else the release."""
    return ["--kernels", os.environ.get("MONO_TEST_KERNELS") or "vllm==0.33.0"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory that keeps the wheel and translations; CI names one that outlives the run."""
    return os.environ.get("MONO_CACHE") or str(tmp_path_factory.mktemp("cache"))
