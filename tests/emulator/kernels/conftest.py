"""One store of the test kernels a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
_MANIFEST = "schema: 1\nbuilds:\n  - {family: emulated, arch: [gfx942, gfx950], tp: 1}\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the compiler."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.flydsl)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of every test kernel for both architectures."""
    home = tmp_path_factory.mktemp("emulated")
    manifest, store = home / "m.yaml", home / "store"
    manifest.write_text(_MANIFEST)
    kept = {n: os.environ[n] for n in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV") if n in os.environ}
    path = os.pathsep.join([str(ROOT), str(HERE / "plugin")])
    command = [sys.executable, "-m", "mono_build", "build", "--store", str(store)]
    done = subprocess.run(
        [*command, "--manifest", str(manifest)],
        env={**kept, "HOME": str(home), "PYTHONPATH": path, "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return store
