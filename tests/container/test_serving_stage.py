"""The recipe's serving stage without an engine: read-only, uid 65534, no network, no HOME, no compiler."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from container_kit import STORE, run_task, serving_stage
from container_root import Bind, Container
from runtime_kit import Made, artefact_file, deployment, flip, index_of, key, publish
from store_kit import blob_file

from mono_runtime.errors import LaunchMissing, StoreDamaged, StoreDiffers, StoreMissing
from mono_runtime.launch_key import LaunchKey

NOBODY = 65534
OTHER = "sha256:" + "0" * 64
# Of every launch: addresses x and out and n of k1 and k3; x, count and skip of k2.
ARGUMENTS = [0x7000_0000_1000, 600, 300]

Serve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launches() -> list[Made]:
    return deployment()


@pytest.fixture
def store(public: Path, launches: list[Made]) -> Path:
    return publish(public / "store", *launches)


@pytest.fixture
def container(public: Path, image: Path, store: Path) -> Container:
    """The serving stage with ``store`` mounted, pinned."""
    return serving_stage(public, image, store, index_of(store)[0])


@pytest.fixture
def serve(launches: list[Made], container: Container) -> Serve:
    """Serves everything and ``extra`` in a container that differs in ``changes``."""

    def start(
        *extra: LaunchKey, look: bool = False, misbehave: bool = False, **changes: Any
    ) -> Any:
        keys = [k.to_json() for k in (*(m.key for m in launches), *extra)]
        task = {"keys": keys, "arguments": ARGUMENTS, "look": look, "misbehave": misbehave}
        return run_task(task, container, **changes)

    return start


def tree(place: Path) -> list[tuple[str, int, int, int]]:
    found = [place, *sorted(place.rglob("*"))]
    return [(str(p), p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size) for p in found]


def test_the_server_has_nothing_and_serves(serve: Serve, store: Path, image: Path) -> None:
    before = tree(store), tree(image)
    done = serve(look=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    around, served = found["surroundings"], found["served"]
    *ids, groups = around["ids"]
    assert ids == [NOBODY] * 4
    # Who is not root cannot drop groups of his own, which are then nobody's too.
    assert set(groups) <= {NOBODY}
    assert (around["capabilities"], around["no_new_privileges"]) == (0, "1")
    # Python sets LC_CTYPE itself where no locale is named.
    assert set(around["environment"]) - {"LC_CTYPE"} == {
        "MONO_POLICY",
        "MONO_STORE",
        "MONO_STORE_DIGEST",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
    }
    assert around["places"] > 20
    assert around["writable"] == []
    assert (around["interfaces"], around["reached"]) == (["lo"], [])
    assert around["processes"] == ["1"]
    assert around["compilers"] == []
    assert found["attempts"] == []
    assert (served["store"], served["policy"]) == (index_of(store)[0], "strict")
    assert (served["summary"]["loaded"], served["summary"]["shared"]) == (4, 4)
    assert served["summary"]["failed"] == []
    assert served["counts"]["misses"] == {}
    assert (tree(store), tree(image)) == before


def test_the_launches_reach_the_device_as_they_were_called(
    serve: Serve, launches: list[Made]
) -> None:
    launched = json.loads(serve().stdout)["served"]["launched"]
    # k1: two addresses of 8 bytes, an integer of 4 and padding.
    kernargs = struct.pack("<QQi4x", *ARGUMENTS).hex()
    assert launched[0] == ["k1_1", [256, 1, 1], kernargs]
    # k2: a workgroup for 256 of 600, then for 256 of the 300 that are left.
    assert [grid for _, grid, _ in launched[2:4]] == [[3, 1, 1], [2, 1, 1]]
    # Of two numbers of tokens each: k1, the same folded, k2 with its two dispatches, k3.
    assert [symbol for symbol, _, _ in launched] == [
        *("k1_1", "k1_1", "k2_1_first", "k2_1_rest", "k3_1"),
        *("k1_2", "k1_2", "k2_2_first", "k2_2_rest", "k3_2"),
    ]


def test_the_checks_of_that_container_see_what_they_look_for(
    serve: Serve, container: Container, public: Path
) -> None:
    """A container with a writable volume and the machine's network is not taken for a closed one."""
    volume = public / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    binds = [*container.binds, Bind(str(volume), "/volume", True)]
    done = serve(look=True, binds=binds, network=True)
    around = json.loads(done.stdout)["surroundings"]
    assert around["writable"] == ["/volume"]
    assert "127.0.0.1" in around["reached"]


def test_the_watch_over_the_server_sees_what_it_looks_for(serve: Serve) -> None:
    done = serve(misbehave=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["attempts"] == ["open /tmp/written", "os.mkdir /tmp/made"]


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert (done.returncode, done.stdout) == (code, "")
    assert "\nerror: " in f"\n{done.stderr}"
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_missing_launch_is_refused_with_the_nearest_entries(serve: Serve) -> None:
    done = serve(key("k1", 3, fold=False))
    refused(done, LaunchMissing.exit_code, "k1", "tokens", "where:", "do:")
    assert LaunchMissing.exit_code == 3


def test_a_store_that_is_not_mounted_is_refused(serve: Serve, container: Container) -> None:
    without = [bind for bind in container.binds if bind.target != STORE]
    refused(serve(binds=without), StoreMissing.exit_code, STORE, "do:")


def test_another_store_than_the_pinned_one_is_refused(serve: Serve, store: Path) -> None:
    done = serve(environment={"MONO_STORE_DIGEST": OTHER})
    refused(done, StoreDiffers.exit_code, OTHER, index_of(store)[0])


def test_a_store_with_one_more_launch_is_not_the_pinned_one(
    serve: Serve, public: Path, store: Path, container: Container
) -> None:
    pinned = container.environment["MONO_STORE_DIGEST"]
    shutil.rmtree(store)
    publish(store, *deployment(), *deployment(tokens=[4]))
    refused(serve(), StoreDiffers.exit_code, pinned)


@pytest.mark.parametrize("what", ["artefact", "code object", "index"])
def test_a_tampered_store_is_refused(
    serve: Serve, store: Path, launches: list[Made], what: str
) -> None:
    file = {
        "artefact": artefact_file(store, launches[2]),
        "code object": blob_file(store, launches[2].digest),
        "index": blob_file(store, index_of(store)[0]),
    }[what]
    flip(file)
    refused(serve(), StoreDamaged.exit_code, file.name, "do:")


def test_a_code_object_of_the_same_size_is_not_taken_for_the_built_one(
    serve: Serve, store: Path, launches: list[Made]
) -> None:
    """What somebody else compiled, put where the store has its own."""
    mine, theirs = (blob_file(store, launches[i].digest) for i in (0, 4))
    assert mine.stat().st_size == theirs.stat().st_size
    shutil.copyfile(theirs, mine)
    refused(serve(), StoreDamaged.exit_code, mine.name)
