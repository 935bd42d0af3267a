from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import standin_hip
from standin_hip import FakeDevice, StandIn

# The kits of made-up stores and of ranks are those of their own tests.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("store", "ranks")]

MI355X = FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X", pci="0001:c5:00")


@pytest.fixture
def hip() -> Iterator[StandIn]:
    """The stand-in with one device, a gfx942."""
    standin = standin_hip.load()
    standin.reset(FakeDevice())
    yield standin
    standin.reset()


@pytest.fixture
def two_devices(hip: StandIn) -> StandIn:
    """The stand-in with a gfx942 and a gfx950."""
    hip.reset(FakeDevice(), MI355X)
    return hip


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from runtime_kit import deployment, publish

    directory, both = tmp_path_factory.mktemp("stores"), ("gfx942", "gfx950")
    return {
        "one": publish(directory / "one", *deployment()),
        "both": publish(directory / "both", *(m for arch in both for m in deployment(arch))),
    }


@pytest.fixture
def place(_built: dict[str, Path], tmp_path: Path) -> Path:
    """A store of eight gfx942 launches in four code objects; see `runtime_kit.deployment`."""
    return Path(shutil.copytree(_built["one"], tmp_path / "store"))


@pytest.fixture
def both(_built: dict[str, Path], tmp_path: Path) -> Path:
    """A store of these launches for gfx942 and for gfx950."""
    return Path(shutil.copytree(_built["both"], tmp_path / "both"))


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can reach (pytest's own are closed to them)."""
    path = Path(tempfile.mkdtemp(prefix="mono-runtime-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
