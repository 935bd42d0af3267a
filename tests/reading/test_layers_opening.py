"""Which stores are opened, in which order, and which digest each must have."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest
from reading_kit import ROWS, expected, opened, use
from store_kit import add, blob_file, code, fill, key

from mono_build.store.gc import collect
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import (
    InvalidValue,
    LaunchMissing,
    StoreDamaged,
    StoreDiffers,
    StoreFormat,
    StoreMissing,
)
from mono_runtime.layers import layered, open_layers


def index_digest(store: Path) -> str:
    """The digest that the manifest names, by the OCI specification alone."""
    listing = json.loads((store / "index.json").read_bytes())
    manifest = blob_file(store, listing["manifests"][0]["digest"]).read_bytes()
    return str(json.loads(manifest)["config"]["digest"])


def test_one_store_gives_every_launch(store: Path) -> None:
    layers = open_layers(store, environ={})
    assert set(layers.keys()) == {key(rows) for rows in ROWS}
    assert [use(layers, rows) for rows in ROWS] == [expected(rows) for rows in ROWS]
    assert layers.digest == index_digest(store)
    assert [reader.path for reader in layers.readers] == [store]


def test_mono_store_names_the_layers(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1, 2))
    fill(tmp_path / "b", range(2, 3))
    environ = {"MONO_STORE": f"{tmp_path / 'a'}::{tmp_path / 'b'}:"}
    assert layered(environ) == (tmp_path / "a", tmp_path / "b")
    layers = open_layers(environ=environ)
    assert [use(layers, rows) for rows in (1, 2)] == [expected(1), expected(2)]
    both = [index_digest(tmp_path / "a"), index_digest(tmp_path / "b")]
    text = json.dumps(both, separators=(",", ":"))
    assert layers.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_the_first_layer_that_has_a_launch_gives_it(tmp_path: Path) -> None:
    for name, vgpr in (("a", 10), ("b", 20)):
        with StoreWriter(tmp_path / name) as writer:
            rows = (1, 2) if name == "a" else (2, 3)
            writer.publish([add(writer, n, vgpr=vgpr) for n in rows])

    def registers(*order: str) -> list[int]:
        layers = open_layers([tmp_path / name for name in order], environ={})
        artefacts = [layers.artefact(layers.find(key(rows))) for rows in (1, 2, 3)]
        return [a.code_objects[0].kernels[0].vgpr for a in artefacts]

    assert registers("a", "b") == [10, 10, 20]
    assert registers("b", "a") == [10, 20, 20]


def test_a_broken_launch_of_the_first_layer_is_not_taken_from_the_next(tmp_path: Path) -> None:
    (entry, *_) = fill(tmp_path / "a")
    fill(tmp_path / "b")
    blob_file(tmp_path / "a", entry.artefact).write_bytes(b"{}")
    layers = open_layers([str(tmp_path / "a"), tmp_path / "b"], environ={})
    with pytest.raises(StoreDamaged, match=str(tmp_path / "a")):
        layers.artefact(layers.find(key(1)))
    assert use(layers, 2) == expected(2)


def test_a_path_with_a_colon_is_one_path(tmp_path: Path) -> None:
    fill(tmp_path / "a:b")
    assert use(open_layers(str(tmp_path / "a:b"), environ={}), 1) == expected(1)


@pytest.mark.parametrize("environ", [{}, {"MONO_STORE": ""}, {"MONO_STORE": "::", "HOME": "/root"}])
def test_no_store_named_says_what_to_set(environ: dict[str, str]) -> None:
    with pytest.raises(StoreMissing) as caught:
        open_layers(environ=environ)
    assert caught.value.what == "no store is named"
    assert caught.value.fix is not None
    assert "MONO_STORE" in caught.value.fix
    with pytest.raises(StoreMissing):
        open_layers([], environ={"MONO_STORE": "/somewhere"})


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(InvalidValue, match="no path of a store"):
        open_layers(path, environ={})


def test_every_named_layer_must_be_there(store: Path, tmp_path: Path) -> None:
    for absent in (tmp_path / "none", store / "index.json" / "below", store / "index.json"):
        with pytest.raises(StoreMissing, match="there is no store here") as caught:
            open_layers([store, absent], environ={})
        assert caught.value.where == str(absent)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreMissing, match="there is no store here"):
        open_layers([store, tmp_path / "empty"], environ={})
    StoreWriter(tmp_path / "begun").close()
    with pytest.raises(StoreMissing, match="nothing has been published"):
        open_layers([store, tmp_path / "begun"], environ={})


def test_missing_lists_what_no_layer_has_in_the_order_asked(store: Path) -> None:
    layers = opened(store)
    asked = [key(9), key(1), key(5), key(9), key(2)]
    assert layers.missing(asked) == (key(9), key(5))
    assert layers.missing([key(3)]) == ()


def test_a_missing_launch_survives_pickling_with_its_reason(store: Path) -> None:
    with pytest.raises(LaunchMissing) as caught:
        opened(store).find(key(9))
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value)
    assert (error.reason, error.where) == ("fields", str(store))
    assert [near.key for near in error.nearest] == [key(3), key(2), key(1)]
    assert LaunchMissing("x").reason == "unknown"
    assert LaunchMissing("x").nearest == ()


# Pins.


def test_the_pinned_digest_is_accepted_from_either_place(store: Path) -> None:
    digest = index_digest(store)
    assert use(open_layers(store, digest=digest, environ={}), 1) == expected(1)
    environ = {"MONO_STORE": str(store), "MONO_STORE_DIGEST": digest}
    layers = open_layers(environ=environ)
    assert (layers.digest, use(layers, 2)) == (digest, expected(2))
    # An unset variable and an empty one are the same, and the argument counts before it.
    assert open_layers(store, environ={"MONO_STORE_DIGEST": ""}).digest == digest
    wrong = {"MONO_STORE_DIGEST": "sha256:" + "0" * 64}
    assert open_layers(store, digest=digest, environ=wrong).digest == digest


def test_another_digest_is_refused_with_both(store: Path) -> None:
    wanted = "sha256:" + "0" * 64
    for arguments in ({"digest": wanted}, {"environ": {"MONO_STORE_DIGEST": wanted}}):
        with pytest.raises(StoreDiffers) as caught:
            open_layers(store, **{"environ": {}, **arguments})  # type: ignore[arg-type]
        assert wanted in caught.value.what
        assert index_digest(store) in caught.value.what
        assert caught.value.where == str(store)


def test_a_store_that_was_built_on_still_serves_the_pinned_index_until_gc(store: Path) -> None:
    pinned = index_digest(store)
    fill(store, range(4, 5))
    now = index_digest(store)
    assert now != pinned
    layers = open_layers(store, digest=pinned, environ={})
    assert set(layers.keys()) == {key(rows) for rows in ROWS}
    assert use(layers, 3) == expected(3)
    # What index.json says does not matter then.
    listing = (store / "index.json").read_bytes()
    (store / "index.json").write_bytes(b"{")
    assert open_layers(store, digest=pinned, environ={}).digest == pinned
    (store / "index.json").write_bytes(listing)
    collect(store)
    with pytest.raises(StoreDiffers, match=now):
        open_layers(store, digest=pinned, environ={})


def test_a_pinned_digest_of_something_else_is_refused(store: Path) -> None:
    layers = opened(store)
    found = layers.find(key(1))
    with pytest.raises(StoreDamaged, match="not an index"):
        open_layers(store, digest=layers.artefact(found).inputs, environ={})
    with pytest.raises(StoreFormat, match="the index has schema 3"):
        open_layers(store, digest=found.entry.artefact, environ={})
    with pytest.raises(StoreDamaged, match="not JSON"):
        open_layers(store, digest="sha256:" + hashlib.sha256(code(1)).hexdigest(), environ={})


@pytest.mark.parametrize(
    "pin",
    [
        "",
        "latest",
        "sha256:",
        "sha256:" + "0" * 63,
        "sha256:" + "A" * 64,
        "sha512:" + "0" * 64,
        "sha256:" + "0" * 64 + "/../../index.json",
        "sha256:" + "0" * 64 + ",",
        "sha256:" + "0" * 64 + ":sha256:" + "0" * 64,
    ],
)
def test_a_malformed_pin_is_no_pin(store: Path, pin: str) -> None:
    with pytest.raises(InvalidValue, match="not a sha256 digest"):
        open_layers(store, digest=pin, environ={})
    if pin:
        with pytest.raises(InvalidValue) as caught:
            open_layers(store, environ={"MONO_STORE_DIGEST": pin})
        assert caught.value.where == "MONO_STORE_DIGEST"


def test_several_layers_are_pinned_in_their_order(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1, 2))
    fill(tmp_path / "b", range(2, 3))
    paths = [tmp_path / "a", tmp_path / "b"]
    a, b = (index_digest(path) for path in paths)
    assert use(open_layers(paths, digest=f"{a},{b}", environ={}), 2) == expected(2)
    assert use(open_layers(paths, digest=f"{a}, {b}", environ={}), 1) == expected(1)
    with pytest.raises(StoreDiffers):
        open_layers(paths, digest=f"{b},{a}", environ={})
    with pytest.raises(InvalidValue, match="1 digests are pinned for 2 stores"):
        open_layers(paths, digest=a, environ={})
    with pytest.raises(InvalidValue, match="2 digests are pinned for 1 stores"):
        open_layers(paths[0], digest=f"{a},{b}", environ={})


# The path of a store may be a link, inside nothing may be.


def test_a_link_to_a_store_is_followed_once(tmp_path: Path) -> None:
    fill(tmp_path / "v1", range(1, 2))
    fill(tmp_path / "v2", range(2, 3))
    current = tmp_path / "current"
    current.symlink_to("v1")
    layers = opened(current)
    assert layers.readers[0].path == tmp_path / "v1"
    current.unlink()
    current.symlink_to("v2")
    assert use(layers, 1) == expected(1)
    assert use(opened(current), 2) == expected(2)
    current.unlink()
    current.symlink_to("nowhere")
    with pytest.raises(StoreMissing, match="there is no store here"):
        opened(current)


def test_a_relative_path_is_meant_from_where_the_store_is_opened(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    layers = open_layers(environ={"MONO_STORE": "s"})
    os.chdir("/")
    assert use(layers, 1) == expected(1)
