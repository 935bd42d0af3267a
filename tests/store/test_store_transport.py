from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from pathlib import Path

import pytest
import zstandard
from store_kit import add, as_other_user, blob_file, code, fill, key, sha, tree

from mono_build.store import files
from mono_build.store.archive import Limits
from mono_build.store.errors import StoreFull
from mono_build.store.transport import export, import_
from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import (
    InvalidValue,
    MonoError,
    StoreDamaged,
    StoreFormat,
    StoreMissing,
    StorePermission,
    StoreUnsafe,
)
from mono_runtime.oci import StoreReader


def unpacked(file: Path) -> dict[str, bytes]:
    """The files of an exported store, read with zstandard's and tarfile's own readers."""
    raw = zstandard.ZstdDecompressor().decompress(file.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % 512)


def packed(members: dict[str, bytes], *more: bytes, tail: bytes = b"\0" * 1024) -> bytes:
    raw = b"".join(member(name, data) for name, data in members.items()) + b"".join(more) + tail
    return zstandard.ZstdCompressor().compress(raw)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    fill(tmp_path / "origin")
    file = tmp_path / "store.tar.zst"
    export(tmp_path / "origin", file)
    return file


def test_what_is_exported_is_imported_byte_for_byte(tmp_path: Path, exported: Path) -> None:
    report = import_(exported, tmp_path / "new" / "copy")
    assert tree(tmp_path / "new" / "copy") == tree(tmp_path / "origin")
    assert report.index == report.imported == StoreReader.open(tmp_path / "origin").index_digest
    assert (report.entries, report.blobs, report.ignored) == (3, 7, 0)
    assert verify(tmp_path / "new" / "copy").exit_code == 0
    assert not (tmp_path / "new" / "copy" / ".builder").exists()


def test_an_export_is_an_oci_layout_for_other_tools(tmp_path: Path, exported: Path) -> None:
    assert unpacked(exported) == tree(tmp_path / "origin")
    raw = zstandard.ZstdDecompressor().decompress(exported.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.mode) for m in members} == {
        (0, 0, "", "", 0, 0o644)
    }
    parameters = zstandard.get_frame_parameters(exported.read_bytes())
    assert parameters.content_size == len(raw)
    assert parameters.has_checksum


def test_the_report_states_sizes_and_digests_of_the_file(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    file = tmp_path / "out" / "store.tar.zst"
    report = export(tmp_path / "s", file)
    data = file.read_bytes()
    assert report.sha256 == "sha256:" + hashlib.sha256(data).hexdigest()
    assert report.size == len(data)
    assert report.raw_size == len(zstandard.ZstdDecompressor().decompress(data))
    assert (report.entries, report.blobs) == (3, 9)
    assert json.loads(json.dumps(report.to_json()))["entries"] == 3
    assert [p.name for p in file.parent.iterdir()] == ["store.tar.zst"]


def test_equal_stores_give_equal_files_whatever_umask_time_and_place(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    export(tmp_path / "a", tmp_path / "a.zst")
    old = os.umask(0o077)
    try:
        fill(tmp_path / "b" / "c")
        # An earlier index and a stray blob are not part of what is exported.
        with StoreWriter(tmp_path / "b" / "c") as writer:
            writer.put_blob(b"stray")
        os.utime(tmp_path / "b" / "c" / "index.json", (1, 1))
        export(tmp_path / "b" / "c", tmp_path / "b.zst")
    finally:
        os.umask(old)
    assert (tmp_path / "a.zst").read_bytes() == (tmp_path / "b.zst").read_bytes()
    assert stat.S_IMODE((tmp_path / "b.zst").stat().st_mode) == 0o644


def test_a_selection_holds_what_its_launches_need_and_no_more(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with StoreWriter(store) as writer:
        here, there = add(writer, 1), add(writer, 2, launch_key=key(2, "gfx942"))
        writer.publish([here, there])
    file = tmp_path / "one"
    report = export(store, file, lambda k: k.arch == "gfx942")
    assert report.entries == 1
    import_(file, tmp_path / "copy")
    assert [e.key for e in StoreReader.open(tmp_path / "copy").index.entries] == [there.key]
    assert not blob_file(tmp_path / "copy", sha(code(1))).exists()
    assert verify(tmp_path / "copy").notices == ()
    with pytest.raises(StoreMissing, match="nothing to export"):
        export(store, tmp_path / "none", lambda k: False)
    assert not (tmp_path / "none").exists()


def test_an_import_merges_into_what_is_there(tmp_path: Path, exported: Path) -> None:
    store = tmp_path / "s"
    fill(store, range(3, 6))
    report = import_(exported, store)
    rows = [e.key.values["rows"] for e in StoreReader.open(store).index.entries]
    assert rows == [1, 2, 3, 4, 5]
    assert report.index == StoreReader.open(store).index_digest != report.imported
    assert verify(store).exit_code == 0


def test_a_damaged_store_is_not_exported(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    blob_file(tmp_path / "s", sha(code(2))).write_bytes(b"")
    (tmp_path / "file").write_bytes(b"earlier")
    with pytest.raises(StoreDamaged, match=sha(code(2))):
        export(tmp_path / "s", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "s"]


def test_an_export_onto_a_full_disk_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s")
    (tmp_path / "file").write_bytes(b"earlier")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StoreFull):
        export(tmp_path / "s", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "s"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (member("../evil", b"x"), StoreUnsafe),
        (member("blobs/sha256/../../../evil", b"x"), StoreUnsafe),
        (member("/etc/evil", b"x"), StoreUnsafe),
        (member("./index.json", b"x"), StoreUnsafe),
        (member("evil.py", b"x"), StoreUnsafe),
        (member("blobs/sha256/" + "A" * 64, b"x"), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64 + "\nx", b"x"), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, kind=tarfile.SYMTYPE, link="/etc/passwd"), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, kind=tarfile.LNKTYPE, link="index.json"), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, kind=tarfile.CHRTYPE), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, kind=tarfile.FIFOTYPE), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, kind=tarfile.DIRTYPE), StoreUnsafe),
        (member("pax", b"30 path=/etc/evil\n", kind=tarfile.XHDTYPE), StoreUnsafe),
        (member("././@LongLink", b"/etc/evil\0", kind=tarfile.GNUTYPE_LONGNAME), StoreUnsafe),
        (member("index.json", b"{}"), StoreUnsafe),
        (member("blobs/sha256/" + sha(code(1))[7:], code(1)), StoreUnsafe),
        (member("blobs/sha256/" + "0" * 64, b"x"), StoreDamaged),
        (b"not a header".ljust(512, b"!"), StoreDamaged),
        (b"\0" * 20480 + b"hidden", StoreUnsafe),
    ],
)
def test_a_hostile_member_is_refused_before_anything_is_written(
    tmp_path: Path, exported: Path, bad: bytes, error: type[MonoError]
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(packed(unpacked(exported), bad))
    with pytest.raises(error) as caught:
        import_(file, tmp_path / "victim")
    assert caught.value.where is not None
    assert str(file) in caught.value.where
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "origin", "store.tar.zst"]


def test_the_harness_of_the_hostile_archives_makes_good_ones_too(
    tmp_path: Path, exported: Path
) -> None:
    file = tmp_path / "good"
    directories = [member(n, kind=tarfile.DIRTYPE) for n in ("blobs", "blobs/sha256")]
    file.write_bytes(packed(unpacked(exported), *directories))
    import_(file, tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(tmp_path / "origin")


def test_decompression_bombs_are_refused(tmp_path: Path, exported: Path) -> None:
    good = unpacked(exported)
    zeros = bytes(8 << 20)
    bombs = {
        "one": (packed({**good, f"blobs/sha256/{sha(zeros)[7:]}": zeros}), Limits(member=1 << 20)),
        "sum": (packed(good), Limits(total=1000)),
        "json": (packed(good), Limits(json=1000)),
        "many": (packed(good), Limits(members=3)),
        "tail": (packed(good, tail=bytes(8 << 20)), Limits()),
    }
    assert len(bombs["one"][0]) < 20_000
    for name, (data, limits) in bombs.items():
        file = tmp_path / name
        file.write_bytes(data)
        with pytest.raises(StoreUnsafe):
            import_(file, tmp_path / "victim", limits)
        assert not (tmp_path / "victim").exists()


def test_a_header_that_claims_a_huge_member_is_refused_by_the_default_limits(
    tmp_path: Path,
) -> None:
    info = tarfile.TarInfo("blobs/sha256/" + "0" * 64)
    info.size = 7 << 30
    file = tmp_path / "bad"
    file.write_bytes(zstandard.ZstdCompressor().compress(info.tobuf(tarfile.USTAR_FORMAT)))
    with pytest.raises(StoreUnsafe, match="7516192768 bytes"):
        import_(file, tmp_path / "victim")
    # Base-256 sizes, which ustar does not have.
    info.size = 1 << 40
    file.write_bytes(zstandard.ZstdCompressor().compress(info.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(StoreDamaged):
        import_(file, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("keep", [0, 1, 100, -1, -5])
def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path, exported: Path, keep: int) -> None:
    exported.write_bytes(exported.read_bytes()[:keep])
    with pytest.raises(StoreDamaged):
        import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, exported: Path) -> None:
    data, found = exported.read_bytes(), 0
    flips = range(0, len(data), 7)
    for position in flips:
        changed = bytearray(data)
        changed[position] ^= 0x04
        exported.write_bytes(changed)
        try:
            import_(exported, tmp_path / "copy")
        except (StoreDamaged, StoreUnsafe):
            found += 1
            assert not (tmp_path / "copy").exists()
        else:
            # zstandard can spell one content in several ways, so a flip may mean the same.
            assert tree(tmp_path / "copy") == tree(tmp_path / "origin")
            shutil.rmtree(tmp_path / "copy")
    assert found > 0.95 * len(flips)


def test_garbage_after_the_archive_is_found(tmp_path: Path, exported: Path) -> None:
    exported.write_bytes(exported.read_bytes() + b"garbage")
    with pytest.raises(StoreDamaged):
        import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


def test_a_file_without_one_of_its_blobs_is_refused(tmp_path: Path, exported: Path) -> None:
    good = unpacked(exported)
    for name in good:
        exported.write_bytes(packed({k: v for k, v in good.items() if k != name}))
        with pytest.raises(StoreDamaged, match="lacks"):
            import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


def test_a_manifest_that_names_other_blobs_than_the_index_needs_is_refused(
    tmp_path: Path, exported: Path
) -> None:
    good = unpacked(exported)
    (descriptor,) = json.loads(good["index.json"])["manifests"]
    manifest = json.loads(good.pop(f"blobs/sha256/{descriptor['digest'][7:]}"))
    del manifest["layers"][-1]
    data = json.dumps(manifest).encode()
    listing = {"manifests": [{**descriptor, "digest": sha(data), "size": len(data)}]}
    good |= {f"blobs/sha256/{sha(data)[7:]}": data, "index.json": json.dumps(listing).encode()}
    exported.write_bytes(packed(good))
    with pytest.raises(StoreDamaged, match="does not name exactly the blobs"):
        import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("oci-layout", b"1.0.0", b"1.1.0"),
        ("index.json", b"store.v1", b"store.v2"),
        ("index.json", b'"manifests":[', b'"manifests":[{},'),
    ],
)
def test_a_newer_format_is_refused(
    tmp_path: Path, exported: Path, name: str, old: bytes, new: bytes
) -> None:
    good = unpacked(exported)
    assert old in good[name]
    good[name] = good[name].replace(old, new)
    exported.write_bytes(packed(good))
    with pytest.raises(StoreFormat):
        import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "content", [b"[]", b'"x"', b"[" * 100_000, b'{"manifests":[{"digest":1}]}']
)
def test_json_of_the_wrong_shape_gives_an_error_of_ours(
    tmp_path: Path, exported: Path, content: bytes
) -> None:
    exported.write_bytes(packed({**unpacked(exported), "index.json": content}))
    with pytest.raises((StoreDamaged, InvalidValue)):
        import_(exported, tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


def test_an_archive_that_other_tools_made_of_a_store_is_imported(
    tmp_path: Path, exported: Path
) -> None:
    good = unpacked(exported)
    listing = json.loads(good["index.json"])
    del listing["mediaType"], listing["manifests"][0]["artifactType"]
    exported.write_bytes(packed({**good, "index.json": json.dumps(listing).encode()}))
    import_(exported, tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(tmp_path / "origin")


def test_a_blob_that_nothing_needs_is_not_imported(tmp_path: Path, exported: Path) -> None:
    stray = b"#!/bin/sh\n"
    exported.write_bytes(packed({**unpacked(exported), f"blobs/sha256/{sha(stray)[7:]}": stray}))
    assert import_(exported, tmp_path / "copy").ignored == 1
    assert tree(tmp_path / "copy") == tree(tmp_path / "origin")


def test_what_cannot_be_read_or_written_says_so(public_dir: Path) -> None:
    fill(public_dir / "s")
    export(public_dir / "s", public_dir / "file")
    with pytest.raises(StoreMissing):
        import_(public_dir / "none", public_dir / "copy")
    with pytest.raises(StoreMissing):
        import_(public_dir, public_dir / "copy")
    (public_dir / "file").chmod(0)
    public_dir.chmod(0o555)

    def errors() -> list[str]:
        found = []
        for work in (
            lambda: import_(public_dir / "file", public_dir / "copy"),
            lambda: export(public_dir / "s", public_dir / "other"),
        ):
            try:
                work()
            except StorePermission as error:
                found.append(error.where or "")
        return found

    found = as_other_user(errors)
    public_dir.chmod(0o755)
    assert len(found) == 2
    assert found[0] == str(public_dir / "file")
