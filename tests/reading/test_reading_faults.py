"""Damage of every kind and place: found before use, named, and no other launch suffers."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from reading_kit import Forgery, expected, opened, use
from store_kit import blob_file, code, key, sha

from mono_build.store.writer import StoreWriter
from mono_runtime.errors import LaunchMissing, MonoError, StoreDamaged, StoreError, StoreMissing

TOP = ("oci-layout", "index.json")
SHARED = ("manifest", "index")
OWN = ("artefact", "code")


def part(store: Path, name: str) -> Path:
    """The file that holds this part of the store, of the first launch where each has its own."""
    if name in TOP:
        return store / name
    forgery = Forgery(store)
    digests = {
        "manifest": forgery.listing["manifests"][0]["digest"],
        "index": forgery.manifest["config"]["digest"],
        "artefact": forgery.index["entries"][0]["artefact"],
        "inputs": forgery.artefact["inputs"],
        "code": forgery.artefact["code_objects"][0]["digest"],
    }
    return blob_file(store, digests[name])


def damaged(data: bytes, how: str) -> bytes:
    if how == "emptied":
        return b""
    if how == "halved":
        return data[: len(data) // 2]
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


def found_out(store: Path, rows: int = 1) -> MonoError:
    """The error that reading one launch ends in."""
    with pytest.raises(StoreError) as caught:
        use(opened(store), rows)
    return caught.value


def outcome(store: Path) -> tuple[str, str] | StoreError:
    """The store's digest and the first launch's, or the error that reading it ends in."""
    try:
        layers = opened(store)
        return layers.digest, use(layers, 1)
    except StoreError as error:
        return error


@pytest.mark.parametrize("how", ["emptied", "halved", "one bit flipped"])
@pytest.mark.parametrize("name", [*SHARED, *OWN, "inputs"])
def test_a_damaged_blob_is_named_with_what_was_expected_and_found(
    store: Path, name: str, how: str
) -> None:
    path = part(store, name)
    data = path.read_bytes()
    path.write_bytes(damaged(data, how))
    error = found_out(store)
    assert isinstance(error, StoreDamaged)
    assert error.where == str(path)
    by_size = f"the file has {len(damaged(data, how))} bytes, not the {len(data)}"
    by_digest = f"expected sha256:{path.name}, found {sha(damaged(data, how))}"
    assert by_size in error.what or by_digest in error.what
    assert error.fix


@pytest.mark.parametrize("how", ["emptied", "halved"])
@pytest.mark.parametrize("name", TOP)
def test_a_damaged_top_file_is_named(store: Path, name: str, how: str) -> None:
    path = store / name
    path.write_bytes(damaged(path.read_bytes(), how))
    error = found_out(store)
    assert isinstance(error, StoreDamaged)
    assert (error.where, error.what.split(":")[0]) == (str(path), "not JSON")


@pytest.mark.parametrize("name", [*TOP, *SHARED, *OWN, "inputs"])
def test_no_flipped_bit_changes_what_is_read(store: Path, name: str, tmp_path: Path) -> None:
    path = part(store, name)
    data = path.read_bytes()
    digest = opened(store).digest
    # Each byte of the short files, and so many of the others that no field is left out.
    step = max(1, len(data) // 400)
    outcomes = []
    for position in range(0, len(data), step):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        outcomes.append(outcome(store))
    refused = sum(isinstance(found, StoreError) and found.where is not None for found in outcomes)
    assert [found for found in outcomes if not isinstance(found, StoreError)] == [
        (digest, expected(1))
    ] * (len(outcomes) - refused)
    # All but the fields that nobody reads, such as schemaVersion.
    assert refused > 0.7 * len(outcomes)
    assert name in TOP or refused == len(outcomes)


@pytest.mark.parametrize("name", [*TOP, *SHARED, *OWN, "inputs"])
def test_a_file_that_is_gone_is_missing_and_not_something_else(store: Path, name: str) -> None:
    path = part(store, name)
    path.unlink()
    error = found_out(store)
    assert isinstance(error, StoreMissing)
    assert not isinstance(error, LaunchMissing)
    assert error.where == (str(store) if name == "oci-layout" else str(path))


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("how", ["emptied", "halved", "one bit flipped", "gone"])
def test_other_launches_work_when_one_is_damaged(store: Path, name: str, how: str) -> None:
    path = part(store, name)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(damaged(path.read_bytes(), how))
    layers = opened(store)
    for _ in range(2):
        with pytest.raises(StoreError, match=path.name):
            use(layers, 1)
    assert [use(layers, rows) for rows in (2, 3)] == [expected(2), expected(3)]


@pytest.mark.parametrize("name", OWN)
def test_two_valid_files_that_were_swapped_are_both_refused(store: Path, name: str) -> None:
    index = Forgery(store).index["entries"]
    if name == "artefact":
        a, b = (blob_file(store, entry["artefact"]) for entry in index[:2])
    else:
        a, b = (blob_file(store, sha(code(rows))) for rows in (1, 2))
    a.rename(store / "aside")
    b.rename(a)
    (store / "aside").rename(b)
    layers = opened(store)
    for rows, path in ((1, a), (2, b)):
        with pytest.raises(StoreDamaged, match=path.name):
            use(layers, rows)
    assert use(layers, 3) == expected(3)


def test_swapped_objects_of_equal_size_are_told_by_their_digests(tmp_path: Path) -> None:
    from store_kit import add

    a, b = b"\x7fELF" + b"a" * 300, b"\x7fELF" + b"b" * 300
    with StoreWriter(tmp_path / "s") as writer:
        writer.publish([add(writer, 1, elf=a), add(writer, 2, elf=b)])
    blob_file(tmp_path / "s", sha(a)).write_bytes(b)
    blob_file(tmp_path / "s", sha(b)).write_bytes(a)
    error = found_out(tmp_path / "s")
    assert f"expected {sha(a)}, found {sha(b)}" in error.what


def test_an_artefact_put_in_anothers_place_in_the_index_is_refused(store: Path) -> None:
    forgery = Forgery(store)
    first, second = forgery.index["entries"][:2]

    def swap(index: dict[str, list[dict[str, str]]]) -> object:
        index["entries"][0]["artefact"] = second["artefact"]
        return index

    forgery.write("index", swap)
    error = found_out(store)
    assert isinstance(error, StoreDamaged)
    assert first["ir"] in error.what
    assert second["ir"] in error.what


def test_an_index_without_launches_is_sound_and_says_so_when_asked(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s") as writer:
        writer.publish([])
    layers = opened(tmp_path / "s")
    assert list(layers.keys()) == []
    assert layers.missing([key(1)]) == (key(1),)
    with pytest.raises(LaunchMissing) as caught:
        layers.find(key(1))
    assert caught.value.reason == "empty"


def test_foreign_files_in_a_store_do_no_harm(store: Path, tmp_path: Path) -> None:
    (store / "lost+found").mkdir(mode=0o700)
    for directory in (store, store / "blobs", store / "blobs" / "sha256"):
        (directory / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (directory / "README").write_text("hello")
        (directory / "README").chmod(0o666)
        (directory / "link").symlink_to("/etc/passwd")
    (store / "blobs" / "sha256" / ("0" * 64)).write_bytes(b"nobody refers to this")
    (store / "blobs" / "md5").mkdir()
    shutil.copytree(store / "blobs", store / ".builder")
    layers = opened(store)
    assert [use(layers, rows) for rows in (1, 2, 3)] == [expected(rows) for rows in (1, 2, 3)]


def test_more_or_fewer_bytes_than_an_artefact_states_are_refused(store: Path) -> None:
    def grow(artefact: dict[str, list[dict[str, int]]]) -> object:
        artefact["code_objects"][0]["size"] += 1
        return artefact

    Forgery(store).write("artefact", grow)
    error = found_out(store)
    # The first launch's object is four bytes of magic and 201 more.
    assert "the file has 205 bytes, not the 206 that it should have" in error.what
    assert error.where == str(blob_file(store, sha(code(1))))


def test_what_one_launch_was_read_from_is_not_taken_for_another(store: Path) -> None:
    layers = opened(store)
    read = {rows: use(layers, rows) for rows in (1, 2, 3)}
    assert len(set(read.values())) == 3
    assert read[2] == hashlib.sha256(code(2)).hexdigest()
