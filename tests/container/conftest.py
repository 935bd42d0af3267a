from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Made-up stores with real code objects, and what they need.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("store", "runtime")]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can reach (pytest's own are closed to them)."""
    path = Path(tempfile.mkdtemp(prefix="mono-container-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def image() -> Iterator[Path]:
    """The virtual environment of a serving image: the runtime and wrapt; see `container_kit.VENV`."""
    from container_kit import copy_distributions, copy_packages, environment_of_packages

    path = Path(tempfile.mkdtemp(prefix="mono-image-"))
    path.chmod(0o755)
    packages = environment_of_packages(path / "venv")
    copy_packages(["mono_runtime"], packages)
    copy_distributions(["wrapt"], packages)
    yield path / "venv"
    shutil.rmtree(path, ignore_errors=True)
