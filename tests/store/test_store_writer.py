from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from store_kit import (
    NOBODY,
    add,
    as_other_user,
    blob_file,
    code,
    fill,
    fork,
    inputs,
    key,
    result_of,
    sha,
    tree,
)

from mono_build.store import files
from mono_build.store.errors import StoreFull
from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import (
    InvalidValue,
    StoreDamaged,
    StoreFormat,
    StoreMissing,
    StorePermission,
)
from mono_runtime.index import IndexEntry
from mono_runtime.oci import StoreReader


def rows_of(store: Path) -> list[object]:
    return [e.key.values["rows"] for e in StoreReader.open(store).index.entries]


def test_published_launches_are_read_back(tmp_path: Path) -> None:
    entries = fill(tmp_path / "s")
    reader = StoreReader.open(tmp_path / "s")
    assert list(reader.index.entries) == entries
    artefact = reader.artefact(entries[1].artefact)
    assert reader.blob(artefact.code_objects[0].digest) == code(2)
    assert reader.inputs(artefact.inputs) == inputs()


def test_the_layout_has_the_fields_that_oci_image_spec_1_1_requires(tmp_path: Path) -> None:
    store = tmp_path / "s"
    entries = fill(store, range(1, 3))
    assert json.loads((store / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    listing = json.loads((store / "index.json").read_bytes())
    assert listing["schemaVersion"] == 2
    assert listing["mediaType"] == "application/vnd.oci.image.index.v1+json"
    (descriptor,) = listing["manifests"]
    assert descriptor["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    data = blob_file(store, descriptor["digest"]).read_bytes()
    assert (descriptor["size"], descriptor["digest"]) == (len(data), sha(data))
    manifest = json.loads(data)
    assert set(manifest) == {"schemaVersion", "mediaType", "artifactType", "config", "layers"}
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["artifactType"] == "application/vnd.mono-build.store.v1"
    named = [manifest["config"], *manifest["layers"]]
    for layer in named:
        assert set(layer) == {"mediaType", "digest", "size"}
        blob = blob_file(store, layer["digest"]).read_bytes()
        assert (layer["size"], layer["digest"]) == (len(blob), sha(blob))
    types = [layer["mediaType"].removeprefix("application/vnd.mono-build.") for layer in named]
    # One set of inputs for both launches.
    assert types == [
        "index.v1+json",
        *["artefact.v3+json"] * 2,
        *["code-object.v1+elf"] * 2,
        "inputs.v1+json",
    ]
    order = [(layer["mediaType"], layer["digest"]) for layer in manifest["layers"]]
    assert order == sorted(order)
    assert {e.artefact for e in entries} == {d for t, d in order if "artefact" in t}


def test_an_idle_store_holds_nothing_but_the_layout(tmp_path: Path) -> None:
    fill(tmp_path / "s", range(1, 2))
    names = {name.split("/")[0] for name in tree(tmp_path / "s")}
    assert names == {"oci-layout", "index.json", "blobs"}
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == [
        "blobs",
        "index.json",
        "oci-layout",
    ]


def test_equal_input_gives_equal_stores_wherever_and_in_whatever_order(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    old = os.umask(0o007)
    try:
        with StoreWriter(tmp_path / "deep" / "er" / "b") as writer:
            writer.publish([add(writer, n) for n in (3, 1, 2)])
    finally:
        os.umask(old)
    assert tree(tmp_path / "a") == tree(tmp_path / "deep" / "er" / "b")
    done = subprocess.run(["diff", "-r", tmp_path / "a", tmp_path / "deep" / "er" / "b"])
    assert done.returncode == 0


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    store = tmp_path / "s"
    entries = fill(store)
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_file()}
    inode = (store / "index.json").stat().st_ino
    with StoreWriter(store) as writer:
        again = [add(writer, n) for n in range(1, 4)]
        digest = writer.publish(again)
    assert again == entries
    assert digest == StoreReader.open(store).index_digest
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_file()} == before
    assert (store / "index.json").stat().st_ino == inode


def test_publishing_merges_replaces_and_removes(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store)
    with StoreWriter(store) as writer:
        changed = add(writer, 2, elf=b"\x7fELF other")
        writer.publish([add(writer, 7), changed], removed=[key(1)])
    assert rows_of(store) == [2, 3, 7]
    assert StoreReader.open(store).index.by_key()[key(2)] == changed
    assert verify(store).exit_code == 0


def test_indexes_of_earlier_builds_stay_readable(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store, range(1, 2))
    old = StoreReader.open(store)
    fill(store, range(2, 3))
    assert blob_file(store, old.index_digest).is_file()
    assert blob_file(store, old.manifest).is_file()
    assert rows_of(store) == [1, 2]


def test_an_entry_whose_blobs_are_wrong_is_not_published(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store, range(1, 2))
    before = tree(store)
    with StoreWriter(store) as writer:
        entry = add(writer, 2)
        elf = blob_file(store, sha(code(2)))
        elf.write_bytes(b"\x7fELF")
        with pytest.raises(StoreDamaged, match=sha(code(2))):
            writer.publish([entry])
        elf.unlink()
        with pytest.raises(StoreMissing):
            writer.publish([entry])
        writer.put_blob(code(2))
        with pytest.raises(StoreDamaged, match="IR"):
            writer.publish([IndexEntry(entry.key, entry.artefact, sha(b"other ir"))])
        with pytest.raises(StoreDamaged, match="architecture"):
            writer.publish([IndexEntry(key(2, "gfx942"), entry.artefact, entry.ir)])
        with pytest.raises(InvalidValue):
            writer.publish([IndexEntry(entry.key, sha(code(2)).upper(), entry.ir)])
    assert {k: v for k, v in tree(store).items() if k in before} == before
    assert rows_of(store) == [1]


def test_a_damaged_blob_is_replaced_and_an_intact_one_kept(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store)
    good, bad = blob_file(store, sha(code(1))), blob_file(store, sha(code(2)))
    inode = good.stat().st_ino
    bad.write_bytes(b"")
    linked = blob_file(store, sha(code(3)))
    linked.unlink()
    linked.symlink_to("/etc/hostname")
    with StoreWriter(store) as writer:
        for n in (1, 2, 3):
            assert writer.put_blob(code(n)) == sha(code(n))
    assert good.stat().st_ino == inode
    assert bad.read_bytes() == code(2)
    assert not linked.is_symlink()
    assert linked.read_bytes() == code(3)
    assert verify(store).exit_code == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"schemaVersion":2,"manifests":[{"arti'])
def test_building_mends_an_index_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    store = tmp_path / "s"
    fill(store)
    (store / "index.json").write_bytes(content)
    with StoreWriter(store) as writer:
        assert isinstance(writer.damage, (StoreDamaged, StoreFormat))
        writer.publish([add(writer, 9)])
    assert rows_of(store) == [9]


def test_an_old_artefact_that_is_damaged_stays_visible_and_does_not_stop_others(
    tmp_path: Path,
) -> None:
    store = tmp_path / "s"
    entries = fill(store)
    blob_file(store, entries[0].artefact).write_bytes(b"{}")
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 8)])
    assert rows_of(store) == [1, 2, 3, 8]
    assert [f.file for f in verify(store).faults] == [
        "blobs/sha256/" + entries[0].artefact.removeprefix("sha256:")
    ]
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 1)])
    assert verify(store).exit_code == 0


def test_a_store_built_under_umask_077_is_open_to_others(public_dir: Path) -> None:
    store = public_dir / "new" / "parent" / "store"
    old = os.umask(0o077)
    try:
        fill(store)
    finally:
        os.umask(old)
    for path in [public_dir / "new", public_dir / "new" / "parent", store, *store.rglob("*")]:
        expected = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == expected, path

    def read() -> object:
        reader = StoreReader.open(store)
        sizes = [len(reader.blob(layer.digest)) for layer in reader.layers]
        return {"uid": os.getuid(), "blobs": len(sizes)}

    # Three artefacts, three code objects and one set of inputs.
    expected_uid = NOBODY if os.geteuid() == 0 else os.getuid()
    assert as_other_user(read) == {"uid": expected_uid, "blobs": 7}


def test_a_store_of_somebody_else_gives_a_permission_error(public_dir: Path) -> None:
    store = public_dir / "s"
    fill(store)
    before = tree(store)
    if os.geteuid() != 0:
        store.chmod(0o555)

    def write() -> object:
        with StoreWriter(store) as writer:
            writer.publish([add(writer, 9)])
        return "written"

    found = as_other_user(write)
    store.chmod(0o755)
    assert found["error"] == "StorePermission"
    assert "permission denied" in found["text"]
    assert tree(store) == before


def test_a_read_only_file_system_gives_a_permission_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s"
    fill(store)
    mounted = _mount("--bind", store, store) and _mount("-o", "remount,bind,ro", store)
    if not mounted:

        def refuse(self: Path, mode: int = 0o777) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

        monkeypatch.setattr(Path, "mkdir", refuse)
    try:
        with pytest.raises(StorePermission, match="read-only file system"):
            StoreWriter(store)
        assert rows_of(store) == [1, 2, 3]
    finally:
        if mounted:
            subprocess.run(["umount", store], check=True)


def _mount(*arguments: str | Path) -> bool:
    if os.geteuid() != 0:
        return False
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


def test_a_full_disk_publishes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s"
    if _mount("-t", "tmpfs", "-o", "size=512k,mode=755", "none", tmp_path):
        try:
            found = _fill_up(store)
        finally:
            subprocess.run(["umount", tmp_path], check=True)
    else:

        def limited() -> object:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            return _fill_up(store, huge=True)

        found = result_of(fork(limited))
    assert found["error"] == "StoreFull"
    assert found["exit_code"] == 4
    assert found["rows"] == [1, 2, 3]
    assert found["faults"] == []
    assert found["staged"] == 0


def _fill_up(store: Path, huge: bool = False) -> dict[str, object]:
    fill(store)
    with StoreWriter(store) as writer:
        try:
            size = 1 << 20 if huge else 60_000
            entries = [add(writer, n, elf=os.urandom(size)) for n in range(4, 40)]
            writer.publish(entries)
            error: Exception = AssertionError("there was room")
        except StoreFull as full:
            error = full
        staged = len(list((store / ".builder" / "staging").iterdir()))
    return {
        "error": type(error).__name__,
        "exit_code": getattr(error, "exit_code", 0),
        "rows": rows_of(store),
        "faults": [f.what for f in verify(store).faults],
        "staged": staged,
    }


@pytest.mark.parametrize("code_number", [errno.ENOSPC, errno.EDQUOT])
def test_room_that_ends_at_any_write_leaves_the_old_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_number: int
) -> None:
    fill(tmp_path / "first", range(1, 2))
    real = os.fsync
    for allowed in range(60):
        store = tmp_path / str(allowed)
        shutil.copytree(tmp_path / "first", store)
        left = allowed

        def fsync(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(code_number, os.strerror(code_number))
            real(descriptor)

        monkeypatch.setattr(files.os, "fsync", fsync)
        try:
            with StoreWriter(store) as writer:
                writer.publish([add(writer, 2)])
        except StoreFull:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(files.os, "fsync", real)
        # The last sync comes after the rename that publishes.
        assert rows_of(store) in ([1], [1, 2])
        assert verify(store).exit_code == 0
        assert not (store / ".builder").exists()
    # Two syncs for each of five files (an ELF, an artefact, an index, a manifest, index.json; the
    # inputs were there), and one more of the blobs before the last.
    assert allowed == 11
    assert rows_of(store) == [1, 2]
