from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Made-up stores come from the kit of the store's own tests.
sys.path.append(str(Path(__file__).parents[1] / "store"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three launches, rows 1 to 3."""
    from store_kit import fill

    fill(tmp_path / "s")
    return tmp_path / "s"


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can reach, with a store of three launches named ``s`` in it."""
    from store_kit import fill

    path = Path(tempfile.mkdtemp(prefix="mono-reading-"))
    path.chmod(0o755)
    fill(path / "s")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Ends a test that waits for something, which a reader never may."""

    def waited(*_: object) -> None:
        raise AssertionError("the reader waited")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
