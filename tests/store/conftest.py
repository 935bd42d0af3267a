from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def public_dir() -> Iterator[Path]:
    """A directory that other users can reach (pytest's own are closed to them)."""
    path = Path(tempfile.mkdtemp(prefix="mono-store-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
