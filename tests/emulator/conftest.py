"""One cache of translated code for all tests of the emulator: its own C is compiled once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def translations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where translated code is kept for this session."""
    return tmp_path_factory.mktemp("translations")


@pytest.fixture(scope="module", autouse=True)
def _shared_cache(translations: Path) -> Iterator[None]:
    # Of a module, because fixtures of that scope translate code, and other tests have other caches.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONO_CACHE", str(translations))
        yield
