"""Reading as any user, without a home, from a read-only mount, with nothing opened for writing."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reading_kit import ROWS, expected, opened, use
from store_kit import NOBODY, as_other_user, blob_file, code, fork, key, result_of, sha

PROJECT = Path(__file__).parents[2]
# linux/sched.h
CLONE_NEWNS = 0x00020000


def everything(store: Path) -> list[str]:
    layers = opened(store)
    return [use(layers, rows) for rows in ROWS]


EVERYTHING = [expected(rows) for rows in ROWS]


def test_another_user_reads_what_this_one_built(public: Path) -> None:
    assert as_other_user(lambda: everything(public / "s")) == EVERYTHING


@pytest.mark.parametrize(
    "closed", [".", "blobs", "blobs/sha256", "oci-layout", "index.json", "artefact", "code"]
)
def test_no_permission_is_called_that_and_never_missing(public: Path, closed: str) -> None:
    store = public / "s"
    artefact = opened(store).find(key(1)).entry.artefact
    blobs = {"artefact": artefact, "code": sha(code(1))}
    path = blob_file(store, blobs[closed]) if closed in blobs else store / closed
    path.chmod(0)
    result = as_other_user(lambda: use(opened(store), 1))
    assert result["error"] == "StorePermission"
    assert "no permission to read" in result["text"]
    assert "missing" not in result["text"]
    assert "no store" not in result["text"]
    path.chmod(0o755)


def test_a_closed_directory_above_the_store_is_no_permission_either(public: Path) -> None:
    (public / "above").mkdir()
    (public / "s").rename(public / "above" / "s")
    (public / "link").symlink_to("above/s")
    (public / "above").chmod(0o700)
    for path in (public / "above" / "s", public / "link"):
        result = as_other_user(lambda path=path: use(opened(path), 1))
        assert result["error"] == "StorePermission"


def read_only(store: Path) -> None:
    """Mount ``store`` read-only over itself, for this process and its children alone."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "--bind", str(store), str(store)],
        ["mount", "-o", "remount,bind,ro", str(store)],
    ):
        subprocess.run(command, check=True, capture_output=True)


def on_read_only_mount(store: Path, user: int) -> Any:
    """What reading everything gives for ``user`` without a home, or why it could not be tried."""

    def work() -> Any:
        try:
            read_only(store)
        except (OSError, subprocess.CalledProcessError) as error:
            return {"skip": repr(error)}
        with pytest.raises(OSError, match="Read-only file system"):
            (store / "probe").write_bytes(b"")
        os.environ.clear()
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        return everything(store)

    return result_of(fork(work))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("owner", [0, 4242])
def test_a_read_only_mount_without_home_serves_any_user(public: Path, owner: int) -> None:
    """On it nobody can alter anything, so that owners and modes do not matter."""
    store = public / "s"
    for path in [store, *store.rglob("*")]:
        os.chown(path, owner, owner)
        path.chmod(path.stat().st_mode | (0o022 if owner else 0))
    result = on_read_only_mount(store, NOBODY)
    if isinstance(result, dict) and "skip" in result:
        pytest.skip(f"mounts are forbidden here: {result['skip']}")
    assert result == EVERYTHING
    writable = as_other_user(lambda: everything(store))
    assert writable == EVERYTHING if owner == 0 else writable["error"] == "StoreUnsafe"


WATCHED = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
writing, others = [], []
def watch(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            writing.append(str(path))
    elif event.startswith(("os.", "fcntl.", "socket.", "subprocess.", "shutil.", "tempfile.")):
        if event not in ("os.listdir", "os.scandir"):
            others.append(event)
sys.addaudithook(watch)
from mono_runtime.layers import open_layers
from mono_runtime.sources import compare_sources
layers = open_layers()
read = 0
for key in layers.keys():
    found = layers.find(key)
    for code in layers.artefact(found).code_objects:
        read += len(layers.code(found, code))
    compare_sources(layers.inputs(found))
heavy = {"torch", "numpy", "flydsl", "mono_build", "subprocess", "socket", "tempfile", "asyncio"}
print(json.dumps([read, writing, others, sorted(heavy & set(sys.modules))]))
"""


def test_a_server_opens_nothing_for_writing_and_needs_no_environment(store: Path) -> None:
    environ = {"MONO_STORE": str(store)}
    command = [sys.executable, "-S", "-B", "-c", WATCHED, str(PROJECT)]
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True)
    assert done.stderr == ""
    # Objects of 205, 206 and 207 bytes; nothing written, locked, removed, started or connected.
    assert json.loads(done.stdout) == [205 + 206 + 207, [], [], []]


def test_the_store_is_untouched_by_reading(store: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [store, *sorted(store.rglob("*"))]
        return [(str(p), p.stat().st_mtime_ns, p.stat().st_ctime_ns) for p in found]

    before = state()
    everything(store)
    assert state() == before
