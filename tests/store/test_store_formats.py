from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_kit import (
    add,
    blob_file,
    fill,
    sha,
    tree,
)

from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import (
    StoreDamaged,
    StoreError,
    StoreFormat,
    StoreUnsafe,
)
from mono_runtime.index import IndexEntry
from mono_runtime.oci import StoreReader


def rows_of(store: Path) -> list[object]:
    return [e.key.values["rows"] for e in StoreReader.open(store).index.entries]


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreFormat, match="not empty"):
        StoreWriter(tmp_path)
    assert tree(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(StoreError, match="file where the store"):
        StoreWriter(tmp_path / "notes.txt")
    with pytest.raises(StoreError):
        StoreWriter(tmp_path / "notes.txt" / "below")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("index.json", b"mono-build.store.v1", b"mono-build.store.v2"),
        ("index.json", b"vnd.mono-build.store.v1", b"vnd.somebody.else"),
        ("oci-layout", b"1.0.0", b"2.0.0"),
    ],
)
def test_a_newer_or_foreign_format_is_refused_and_left_alone(
    tmp_path: Path, file: str, old: bytes, new: bytes
) -> None:
    store = tmp_path / "s"
    fill(store)
    path = store / file
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))
    before = tree(store)
    with pytest.raises(StoreFormat):
        StoreWriter(store)
    assert tree(store) == before
    assert not (store / ".builder").exists()


def test_a_format_that_became_newer_under_a_builder_is_not_overwritten(tmp_path: Path) -> None:
    fill(tmp_path)
    with StoreWriter(tmp_path) as writer:
        entry = add(writer, 9)
        listing = (tmp_path / "index.json").read_bytes().replace(b"store.v1", b"store.v2")
        (tmp_path / "index.json").write_bytes(listing)
        with pytest.raises(StoreFormat):
            writer.publish([entry])
    assert (tmp_path / "index.json").read_bytes() == listing


def test_an_artefact_that_misstates_the_size_of_its_object_is_not_published(
    tmp_path: Path,
) -> None:
    with StoreWriter(tmp_path) as writer:
        entry = add(writer, 1)
        # The object of one row has 205 bytes.
        data = writer.blob(entry.artefact).replace(b'"size":205', b'"size":206')
        wrong = writer.put_blob(data)
        assert wrong != entry.artefact
        with pytest.raises(StoreDamaged, match="205 bytes, its artefact says 206"):
            writer.publish([IndexEntry(entry.key, wrong, entry.ir)])
    assert not (tmp_path / "index.json").exists()


def without_type(store: Path) -> None:
    """Leave index.json as skopeo 1.9 writes it when it copies a store: no type, but a name."""
    listing = json.loads((store / "index.json").read_bytes())
    (descriptor,) = listing["manifests"]
    del listing["mediaType"], descriptor["artifactType"]
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (store / "index.json").write_text(json.dumps(listing))


def test_a_store_that_other_tools_copied_is_read_and_built_on(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store)
    without_type(store)
    assert rows_of(store) == [1, 2, 3]
    assert verify(store).exit_code == 0
    fill(store, range(4, 5))
    assert rows_of(store) == [1, 2, 3, 4]


@pytest.mark.parametrize("blob", [b'{"manifests":[]}', b'{"layers":[],"config":{}}', b"[]", None])
def test_an_image_layout_that_is_no_store_is_refused(tmp_path: Path, blob: bytes | None) -> None:
    store = tmp_path / "s"
    (store / "blobs" / "sha256").mkdir(parents=True)
    digest = sha(blob or b"absent")
    if blob is not None:
        blob_file(store, digest).write_bytes(blob)
    kind = "application/vnd.oci.image.index.v1+json"
    descriptor = {"mediaType": kind, "digest": digest, "size": len(blob or b"absent")}
    (store / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (store / "index.json").write_text(json.dumps({"manifests": [descriptor]}))
    before = tree(store)
    with pytest.raises(StoreFormat):
        StoreWriter(store)
    assert tree(store) == before


def test_a_newer_index_schema_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store)
    reader = StoreReader.open(store)
    index = blob_file(store, reader.index_digest).read_bytes()
    newer = index.replace(b'"schema":1', b'"schema":2')
    assert newer != index
    manifest = blob_file(store, reader.manifest).read_bytes()
    manifest = manifest.replace(sha(index).encode(), sha(newer).encode())
    blob_file(store, sha(newer)).write_bytes(newer)
    blob_file(store, sha(manifest)).write_bytes(manifest)
    listing = (store / "index.json").read_bytes()
    (store / "index.json").write_bytes(
        listing.replace(reader.manifest.encode(), sha(manifest).encode())
    )
    before = tree(store)
    with pytest.raises(StoreFormat, match="schema 2"):
        StoreWriter(store)
    assert tree(store) == before


@pytest.mark.parametrize("name", [".builder", "blobs"])
def test_links_in_place_of_directories_are_not_followed(tmp_path: Path, name: str) -> None:
    store, elsewhere = tmp_path / "s", tmp_path / "elsewhere"
    fill(store)
    elsewhere.mkdir()
    if (store / name).exists():
        (store / name).rename(elsewhere / "moved")
    (store / name).symlink_to(elsewhere)
    before = tree(elsewhere)
    with pytest.raises(StoreUnsafe):
        StoreWriter(store)
    assert tree(elsewhere) == before


def test_a_killed_builder_that_only_began_does_not_block_the_next(tmp_path: Path) -> None:
    store = tmp_path / "s"
    (store / ".builder").mkdir(parents=True)
    fill(store)
    assert rows_of(store) == [1, 2, 3]
