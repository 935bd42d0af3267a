from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from store_kit import add, as_other_user, blob_file, code, fill, key, sha

from mono_build.store import verify as module
from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.artefact import Artefact
from mono_runtime.oci import StoreReader

PARTS = ["oci-layout", "index.json", "manifest", "index", "artefact", "inputs", "code"]


def part(store: Path, name: str) -> Path:
    reader = StoreReader.open(store)
    entry = reader.index.entries[0]
    artefact = reader.artefact(entry.artefact)
    digests = {
        "manifest": reader.manifest,
        "index": reader.index_digest,
        "artefact": entry.artefact,
        "inputs": artefact.inputs,
        "code": artefact.code_objects[0].digest,
    }
    return blob_file(store, digests[name]) if name in digests else store / name


def shown(store: Path, path: Path) -> str:
    return str(path.relative_to(store))


def test_an_intact_store_has_no_faults_and_no_notices(tmp_path: Path) -> None:
    fill(tmp_path)
    report = verify(tmp_path)
    assert (report.faults, report.notices, report.exit_code) == ((), (), 0)
    # Three artefacts, three code objects, one set of inputs, an index and a manifest.
    assert (report.entries, report.blobs) == (3, 9)
    assert report.size == sum(p.stat().st_size for p in (tmp_path / "blobs/sha256").iterdir())
    assert report.index == StoreReader.open(tmp_path).index_digest


def damaged(data: bytes, how: str) -> bytes:
    if how == "emptied":
        return b""
    if how == "halved":
        return data[: len(data) // 2]
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


@pytest.mark.parametrize("how", ["emptied", "halved", "one bit flipped"])
@pytest.mark.parametrize("name", PARTS[2:])
def test_a_damaged_blob_is_named_with_both_digests(tmp_path: Path, name: str, how: str) -> None:
    fill(tmp_path)
    path = part(tmp_path, name)
    data = damaged(path.read_bytes(), how)
    path.write_bytes(data)
    report = verify(tmp_path)
    (fault,) = report.faults
    assert fault.file == shown(tmp_path, path)
    assert fault.expected == f"sha256:{path.name}"
    assert fault.found == sha(data)
    assert f"{len(data)} bytes" in fault.what
    assert report.exit_code == 1


@pytest.mark.parametrize("how", ["emptied", "halved"])
@pytest.mark.parametrize("name", PARTS[:2])
def test_a_damaged_top_file_is_named(tmp_path: Path, name: str, how: str) -> None:
    fill(tmp_path)
    path = part(tmp_path, name)
    path.write_bytes(damaged(path.read_bytes(), how))
    report = verify(tmp_path)
    assert [f.file for f in report.faults] == [name]
    assert report.exit_code == 1


@pytest.mark.parametrize("name", PARTS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    path = part(tmp_path, name)
    path.unlink()
    report = verify(tmp_path)
    if name == "oci-layout":
        # Without it the directory is no store at all.
        assert [(f.file, f.kind) for f in report.faults] == [(".", "other")]
        assert report.exit_code == 4
    else:
        (fault,) = report.faults
        assert (fault.file, fault.found) == (shown(tmp_path, path), "missing")
        assert report.exit_code == 1


def test_two_swapped_files_are_both_named(tmp_path: Path) -> None:
    fill(tmp_path)
    a, b = blob_file(tmp_path, sha(code(1))), blob_file(tmp_path, sha(code(2)))
    a.write_bytes(code(2))
    b.write_bytes(code(1))
    found = {(f.file, f.expected, f.found) for f in verify(tmp_path).faults}
    assert found == {
        (shown(tmp_path, a), sha(code(1)), sha(code(2))),
        (shown(tmp_path, b), sha(code(2)), sha(code(1))),
    }


def test_all_faults_are_listed_in_one_go(tmp_path: Path) -> None:
    fill(tmp_path)
    blob_file(tmp_path, sha(code(1))).write_bytes(b"")
    blob_file(tmp_path, sha(code(2))).unlink()
    blob_file(tmp_path, sha(code(3))).chmod(0o666)
    (tmp_path / "blobs" / "sha256" / "readme").write_bytes(b"hello")
    report = verify(tmp_path)
    assert sorted((f.kind, Path(f.file).name) for f in report.faults) == sorted(
        [
            ("corrupt", sha(code(1))[7:]),
            ("corrupt", sha(code(2))[7:]),
            ("untrusted", sha(code(3))[7:]),
            ("untrusted", "readme"),
        ]
    )
    assert report.exit_code == 3
    value = json.loads(json.dumps(report.to_json()))
    assert value["exit_code"] == 3
    assert set(value["faults"][0]) == {"kind", "file", "what", "expected", "found"}


def test_links_special_files_and_loose_modes_are_untrusted(tmp_path: Path) -> None:
    fill(tmp_path)
    blobs = tmp_path / "blobs" / "sha256"
    link = blob_file(tmp_path, sha(code(1)))
    link.rename(tmp_path.parent / "aside")
    link.symlink_to(tmp_path.parent / "aside")
    os.mkfifo(blobs / ("0" * 64))
    (blobs / ("A" * 64)).write_bytes(b"")
    (tmp_path / "blobs" / "md5").mkdir()
    blobs.chmod(0o777)
    (tmp_path / "index.json").chmod(0o646)
    report = verify(tmp_path)
    untrusted = {(f.file, f.found) for f in report.faults if f.kind == "untrusted"}
    assert untrusted == {
        (shown(tmp_path, link), str(tmp_path.parent / "aside")),
        (f"blobs/sha256/{'0' * 64}", "type p"),
        (f"blobs/sha256/{'A' * 64}", "A" * 64),
        ("blobs/md5", None),
        ("blobs/sha256", "0777"),
        ("index.json", "0646"),
    }
    # A linked blob is not read, so for the index it is missing.
    assert report.exit_code == 3


def test_a_file_of_another_user_is_untrusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    path = blob_file(tmp_path, sha(code(2)))
    owner = tmp_path.stat().st_uid
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        walk = module._walk

        def altered(*arguments: object) -> object:
            for found, status in walk(*arguments):  # type: ignore[arg-type]
                fields = list(status)
                fields[4] = 12345 if found == path else fields[4]
                yield found, os.stat_result(fields)

        monkeypatch.setattr(module, "_walk", altered)
    (fault,) = verify(tmp_path).faults
    assert (fault.kind, fault.file) == ("untrusted", shown(tmp_path, path))
    assert (fault.expected, fault.found) == (f"uid {owner}", "uid 12345")


def test_a_store_that_is_not_there_or_newer_is_neither_corrupt_nor_fine(tmp_path: Path) -> None:
    assert verify(tmp_path / "none").exit_code == 4
    assert verify(tmp_path).exit_code == 4
    fill(tmp_path / "s")
    listing = tmp_path / "s" / "index.json"
    listing.write_bytes(listing.read_bytes().replace(b"store.v1", b"store.v2"))
    report = verify(tmp_path / "s")
    assert [(f.kind, f.file) for f in report.faults] == [("other", "index.json")]
    assert "store.v2" in report.faults[0].what


def test_a_file_that_may_not_be_read_is_not_called_missing(public_dir: Path) -> None:
    store = public_dir / "s"
    fill(store)
    path = blob_file(store, sha(code(1)))
    path.chmod(0)

    def check() -> object:
        report = verify(store)
        return [[f.kind, f.file, f.what] for f in report.faults], report.exit_code

    faults, exit_code = as_other_user(check)
    assert faults == [["other", shown(store, path), "cannot be read: Permission denied"]]
    assert exit_code == 4


def test_unreferenced_blobs_and_strange_files_are_only_noticed(tmp_path: Path) -> None:
    fill(tmp_path)
    with StoreWriter(tmp_path) as writer:
        digest = writer.put_blob(b"left over")
    (tmp_path / "README").write_text("hello")
    report = verify(tmp_path)
    assert report.exit_code == 0
    assert [file for file, _ in report.notices] == ["README", f"blobs/sha256/{digest[7:]}"]


def rewritten(store: Path, old: bytes, new: bytes) -> None:
    """Change the manifest, and index.json with it, as somebody would who knows the format."""
    reader = StoreReader.open(store)
    manifest = blob_file(store, reader.manifest).read_bytes()
    assert old in manifest
    changed = manifest.replace(old, new)
    blob_file(store, reader.manifest).unlink()
    blob_file(store, sha(changed)).write_bytes(changed)
    listing = json.loads((store / "index.json").read_bytes())
    listing["manifests"][0] |= {"digest": sha(changed), "size": len(changed)}
    (store / "index.json").write_text(json.dumps(listing))


def test_a_manifest_that_lacks_or_misstates_a_layer_is_corrupt(tmp_path: Path) -> None:
    kind = b"application/vnd.mono-build.code-object.v1+elf"
    layer = b'{"digest":"%s","mediaType":"%s","size":%d},'
    first = min(sha(code(n)) for n in (1, 2, 3)).encode()
    size = next(len(code(n)) for n in (1, 2, 3) if sha(code(n)).encode() == first)
    row = layer % (first, kind, size)
    for name, new, what in [
        ("lacks", b"", "does not name a blob that the index needs"),
        ("size", layer % (first, kind, size + 1), "another size"),
        ("type", layer % (first, b"text/plain", size), "another type"),
        ("more", row + layer % (sha(b"x").encode(), kind, 1), "a blob that the manifest names"),
    ]:
        store = tmp_path / name
        fill(store)
        rewritten(store, row, new)
        report = verify(store)
        assert what in " ".join(f.what for f in report.faults), name
        assert report.exit_code == 1


def test_an_artefact_of_another_ir_is_corrupt(tmp_path: Path) -> None:
    entries = fill(tmp_path)
    reader = StoreReader.open(tmp_path)
    index = blob_file(tmp_path, reader.index_digest).read_bytes()
    changed = index.replace(entries[0].ir.encode(), sha(b"another").encode())
    blob_file(tmp_path, sha(changed)).write_bytes(changed)
    rewritten(tmp_path, reader.index_digest.encode(), sha(changed).encode())
    (fault,) = verify(tmp_path).faults
    assert fault.file == f"blobs/sha256/{entries[0].artefact[7:]}"
    assert (fault.expected, fault.found) == (sha(b"another"), entries[0].ir)
    assert "IR" in fault.what


def test_code_objects_are_given_to_the_callback_with_their_artefact(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        # Two launches that run from one object.
        shared = [add(writer, n, elf=code(9), launch_key=key(n)) for n in (1, 2)]
        writer.publish([*shared, add(writer, 3)])
    seen: list[tuple[bytes, str]] = []

    def check(data: bytes, artefact: Artefact) -> list[str]:
        seen.append((data, artefact.ir))
        return ["grid is not resident", "wrong machine"] if data == code(3) else []

    report = verify(tmp_path, check)
    assert sorted(seen) == sorted(
        [(code(9), sha(b"ir 1")), (code(9), sha(b"ir 2")), (code(3), sha(b"ir 3"))]
    )
    file = f"blobs/sha256/{sha(code(3))[7:]}"
    assert [(f.kind, f.file, f.what) for f in report.faults] == [
        ("corrupt", file, "grid is not resident"),
        ("corrupt", file, "wrong machine"),
    ]
