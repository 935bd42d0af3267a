"""One store of key lists a session, built without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from key_list_kit import WIDTHS, build


@pytest.fixture(scope="session")
def key_lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the key list for both architectures at `WIDTHS`."""
    home = tmp_path_factory.mktemp("key-lists")
    result = build(home, home / "store", WIDTHS)
    assert result.code == 0, result.err
    return home / "store"


@pytest.fixture(scope="session")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the emulator keeps its own C and translated code for this session."""
    return tmp_path_factory.mktemp("translated")


@pytest.fixture(autouse=True)
def _shared_cache(translated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONO_CACHE", str(translated))
