from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import add, blob_file, code, fill, key, sha, tree

from mono_build.store.gc import collect
from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import MonoError, StoreDamaged, StoreMissing
from mono_runtime.oci import StoreReader


def two_generations(store: Path) -> tuple[StoreReader, StoreReader]:
    fill(store, range(1, 3))
    old = StoreReader.open(store)
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 3)], removed=[key(1)])
    return old, StoreReader.open(store)


def test_only_what_the_current_index_does_not_need_is_removed(tmp_path: Path) -> None:
    old, new = two_generations(tmp_path)
    expected = {old.index_digest, old.manifest, old.index.entries[0].artefact, sha(code(1))}
    dry = collect(tmp_path, dry_run=True)
    assert {digest for digest, _ in dry.removed} == expected
    assert all(blob_file(tmp_path, digest).is_file() for digest in expected)
    sizes = {digest: blob_file(tmp_path, digest).stat().st_size for digest in expected}
    report = collect(tmp_path)
    assert dict(report.removed) == sizes
    assert report.freed == sum(sizes.values())
    assert report.to_json()["freed"] == report.freed
    assert not any(blob_file(tmp_path, digest).exists() for digest in expected)
    assert report.kept == len(tree(tmp_path)) - 2 == len(new.layers) + 2
    assert (verify(tmp_path).exit_code, verify(tmp_path).notices) == (0, ())
    assert collect(tmp_path).removed == ()


def test_a_store_that_was_cleaned_equals_a_fresh_one(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1, 2))
    fill(tmp_path / "a", range(1, 4))
    fill(tmp_path / "b", range(1, 4))
    collect(tmp_path / "a")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


@pytest.mark.parametrize("by", ["index", "bare", "manifest", "index file", "manifest file"])
def test_a_pinned_index_keeps_all_it_needs(tmp_path: Path, by: str) -> None:
    store = tmp_path / "s"
    old, _ = two_generations(store)
    copy = tmp_path / "pinned.json"
    digest = old.manifest if by.startswith("manifest") else old.index_digest
    copy.write_bytes(blob_file(store, digest).read_bytes())
    name = {"bare": digest[7:], "index": digest, "manifest": digest}.get(by, str(copy))
    report = collect(store, keep=[name])
    assert report.removed == ()
    assert report.missing == ()


def test_another_store_can_be_named_to_keep_what_it_has(tmp_path: Path) -> None:
    store = tmp_path / "s"
    two_generations(store)
    fill(tmp_path / "other", range(1, 2))
    collect(store, keep=[str(tmp_path / "other")])
    assert blob_file(store, sha(code(1))).is_file()


@pytest.mark.parametrize("name", [sha(b"unknown"), "no/such/file", "../../etc"])
def test_an_unknown_index_to_keep_stops_everything(tmp_path: Path, name: str) -> None:
    two_generations(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(StoreMissing):
        collect(tmp_path, keep=[name])
    assert tree(tmp_path) == before


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"config":1}', b'{"schema":9}', b"no json"])
def test_a_file_that_is_no_index_stops_everything(tmp_path: Path, content: bytes) -> None:
    store = tmp_path / "s"
    two_generations(store)
    (tmp_path / "file").write_bytes(content)
    before = tree(store)
    with pytest.raises(MonoError):
        collect(store, keep=[str(tmp_path / "file")])
    assert tree(store) == before


def test_nothing_is_removed_when_the_index_cannot_be_read(tmp_path: Path) -> None:
    _, new = two_generations(tmp_path)
    blob_file(tmp_path, new.index_digest).write_bytes(b"")
    before = tree(tmp_path)
    with pytest.raises(StoreDamaged):
        collect(tmp_path)
    assert tree(tmp_path) == before


def test_strange_files_are_left_to_a_person(tmp_path: Path) -> None:
    fill(tmp_path)
    strange = tmp_path / "blobs" / "sha256" / "notes"
    strange.write_text("mine")
    (tmp_path / "blobs" / "sha256" / ("0" * 64)).symlink_to(strange)
    assert collect(tmp_path).removed == ()
    assert strange.read_text() == "mine"


def test_a_damaged_artefact_does_not_cost_its_code_object(tmp_path: Path) -> None:
    entries = fill(tmp_path)
    blob_file(tmp_path, entries[0].artefact).write_bytes(b"")
    assert collect(tmp_path).removed == ()
    assert blob_file(tmp_path, sha(code(1))).is_file()
