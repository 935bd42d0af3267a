"""Stores whose digests are all right and that were made to do harm: nothing but a typed error comes of it."""

from __future__ import annotations

import copy
import os
import random
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reading_kit import DOCUMENTS, Forgery, expected, opened, use
from store_kit import add, blob_file, code, key, sha

from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import (
    LaunchMissing,
    MonoError,
    StoreDamaged,
    StoreError,
    StoreFormat,
    StoreMissing,
    StoreUnsafe,
)
from mono_runtime.oci import StoreReader
from mono_runtime.sources import compare_sources

LEADING_OUT = [
    "sha256:../../../../etc/passwd",
    "sha256:" + "../" * 21 + "x",
    "sha256:/etc/passwd",
    "../index.json",
    "sha256:" + "0" * 63 + "/",
    "sha256:" + "0" * 64 + "\n",
    "sha256:" + "0" * 32 + "/." + "0" * 30,
    "",
]


def setting(path: list[Any], value: Any) -> Callable[[Any], Any]:
    """A change of a JSON document: ``value`` at ``path``."""

    def change(document: Any) -> Any:
        target = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        return document

    return change


@pytest.mark.parametrize("digest", LEADING_OUT)
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ("listing", ["manifests", 0, "digest"]),
        ("manifest", ["config", "digest"]),
        ("manifest", ["layers", 1, "digest"]),
        ("index", ["entries", 0, "artefact"]),
        ("index", ["entries", 0, "ir"]),
        ("artefact", ["inputs"]),
        ("artefact", ["code_objects", 0, "digest"]),
        ("artefact", ["plan", "dispatches", 0, "code_object"]),
    ],
)
def test_a_digest_that_could_be_a_path_is_refused(
    store: Path, document: str, path: list[Any], digest: str
) -> None:
    Forgery(store).write(document, setting(path, digest))
    with pytest.raises(StoreDamaged, match="not a sha256 digest"):
        use(opened(store), 1)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("name", ["oci-layout", "index.json", "code"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "directory", "device"])
def test_what_is_no_file_is_refused_at_once(
    store: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = blob_file(store, sha(code(1))) if name == "code" else store / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root can make devices")
        os.mknod(path, 0o020644, os.makedev(1, 5))
    else:
        # The path of a socket may be no longer than about a hundred bytes.
        monkeypatch.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
        path.chmod(0o644)
    with pytest.raises(StoreUnsafe) as caught:
        use(opened(store), 1)
    assert caught.value.where == str(path)


def test_a_huge_file_is_refused_by_its_size_and_not_read(store: Path) -> None:
    artefact = blob_file(store, opened(store).find(key(1)).entry.artefact)
    for path, limit in (
        (artefact, 64 << 20),
        (store / "index.json", 1 << 20),
        (store / "oci-layout", 1 << 20),
    ):
        os.truncate(path, 1 << 30)
        tracemalloc.start()
        with pytest.raises(StoreDamaged) as caught:
            use(opened(store), 1)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert caught.value.what == f"the file has {1 << 30} bytes; no more than {limit} are read"
        assert caught.value.where == str(path)
        assert peak < 1 << 20


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"[" * 200_000 + b"]" * 200_000, "not JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "not JSON"),
        (b"\xff\xfe{\0}\0", "not JSON"),
        (b"{", "not JSON"),
        (b'{"schema":NaN}', "NaN is no JSON number"),
        (b'{"schema":-Infinity}', "-Infinity is no JSON number"),
        (b"{}", None),
        (b"[]", None),
        (b"null", None),
        (b"1e999", None),
        (b'"\\ud800"', None),
    ],
)
def test_what_is_no_document_of_a_store_is_refused(
    store: Path, document: str, raw: bytes, what: str | None
) -> None:
    Forgery(store).write(document, raw=raw)
    with pytest.raises(StoreError) as caught:
        use(opened(store), 1)
    assert what is None or what in caught.value.what
    assert isinstance(caught.value, (StoreDamaged, StoreFormat))
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(store))


def nested(depth: int) -> Any:
    value: Any = {"arg": "n"}
    for _ in range(depth):
        value = {"op": "add", "width": 32, "of": [value, 1]}
    return value


def listed(place: int = 0, **change: Any) -> list[Any]:
    """Kernel arguments of their own, the caller's in the other order, with one changed."""
    items: list[Any] = [
        {"name": "n", "type": "i32", "offset": 0, "value": {"arg": "n"}},
        {"name": "x", "type": "i64", "offset": 8, "value": {"arg": "x"}},
    ]
    items[place] = {**items[place], **change}
    return items


# What the plan of these stores means without listing it.
AS_THEY_ARE = [
    {"name": "x", "type": "i64", "offset": 0, "value": {"arg": "x"}},
    {"name": "n", "type": "i32", "offset": 8, "value": {"arg": "n"}},
]
REFUSED_VALUES = [
    (["schema"], 1.0),
    (["schema"], True),
    (["arch"], "gfx9999"),
    (["arch"], ["gfx950"]),
    (["plan", "persistent"], 1),
    (["plan", "stream"], "x"),
    (["plan", "stream"], "no name"),
    (["plan", "arguments"], None),
    (["plan", "arguments"], ["x i64", "n i32"]),
    (["plan", "arguments"], [["x", "i64"], ["n", "i32"]]),
    (["plan", "arguments"], {"x": "i64", "n": "i32"}),
    (["plan", "arguments"], "x i64,n i32"),
    (["plan", "arguments"], "x i64, n i32, "),
    (["plan", "arguments"], "x i64, , n i32"),
    (["plan", "arguments"], "x  i64, n i32"),
    (["plan", "arguments"], "x i64 , n i32"),
    (["plan", "arguments"], "x i64\n, n i32"),
    (["plan", "arguments"], "x, n i32"),
    (["plan", "arguments"], "a-b i64, n i32"),
    (["plan", "arguments"], "n i64, n i32"),
    (["plan", "arguments"], "x i128, n i32"),
    (["plan", "workspace"], None),
    (["plan", "workspace"], ""),
    (["plan", "workspace"], {"x": 16}),
    (["plan", "workspace"], "x"),
    (["plan", "workspace"], "x 0"),
    (["plan", "workspace"], "x 016"),
    (["plan", "workspace"], "x -16"),
    (["plan", "workspace"], "x 16.0"),
    (["plan", "workspace"], "x 1\u0666"),
    (["plan", "workspace"], "x " + "9" * 20),
    (["plan", "workspace"], "x " + "9" * 5000),
    (["plan", "workspace"], "x 16, "),
    (["plan", "workspace"], "x 16, x 16"),
    (["plan", "workspace"], "n 16"),
    (["plan", "workspace"], "y 16"),
    (["plan", "dispatches"], []),
    (["plan", "dispatches", 0, "symbol"], "two\nlines"),
    (["plan", "dispatches", 0, "symbol"], ""),
    (["plan", "dispatches", 0, "symbol"], "\ud800"),
    (["plan", "dispatches", 0, "kernarg_size"], 10**12),
    (["plan", "dispatches", 0, "kernarg_size"], -1),
    (["plan", "dispatches", 0, "kernarg_size"], 11),
    (["plan", "dispatches", 0, "grid"], [1, 1]),
    (["plan", "dispatches", 0, "grid"], {"x": 1, "y": 1, "z": 1}),
    (["plan", "dispatches", 0, "grid", 0], True),
    (["plan", "dispatches", 0, "grid", 0], 2.0),
    (["plan", "dispatches", 0, "grid", 0], 1 << 64),
    (["plan", "dispatches", 0, "grid", 0], {"arg": "unknown"}),
    (["plan", "dispatches", 0, "grid", 0], {"op": "zext", "width": 64, "of": [1, 10**9]}),
    (["plan", "dispatches", 0, "grid", 0], {"op": "system", "width": 64, "of": [1, 1]}),
    (["plan", "dispatches", 0, "grid", 0], nested(65)),
    (["plan", "dispatches", 0, "grid", 0], nested(300)),
    (["plan", "dispatches", 0, "arguments"], None),
    (["plan", "dispatches", 0, "arguments"], {}),
    (["plan", "dispatches", 0, "arguments"], "xn"),
    (["plan", "dispatches", 0, "arguments"], [["x", "i64"], ["n", "i32"]]),
    (["plan", "dispatches", 0, "arguments"], AS_THEY_ARE),
    (["plan", "dispatches", 0, "arguments"], listed(offset=True)),
    (["plan", "dispatches", 0, "arguments"], listed(offset=0.0)),
    (["plan", "dispatches", 0, "arguments"], listed(offset=-4)),
    (["plan", "dispatches", 0, "arguments"], listed(offset=2)),
    (["plan", "dispatches", 0, "arguments"], listed(1, offset=0)),
    (["plan", "dispatches", 0, "arguments"], listed(1, offset=16)),
    (["plan", "dispatches", 0, "arguments"], listed(type="i128")),
    (["plan", "dispatches", 0, "arguments"], listed(name="a b")),
    (["plan", "dispatches", 0, "arguments"], listed(value="n")),
    (["plan", "dispatches", 0, "arguments"], listed(value={"arg": "unknown"})),
    (["code_objects"], []),
    (["code_objects", 0, "size"], "205"),
    (["code_objects", 0, "size"], 1 << 70),
    (["code_objects", 0, "kernels", 0, "vgpr"], -1),
    (["code_objects", 0, "kernels", 0, "vgpr"], None),
    (["code_objects", 0, "kernels", 0, "symbol"], 7),
]


@pytest.mark.parametrize(("path", "value"), REFUSED_VALUES)
def test_a_value_that_no_build_writes_is_refused_when_it_is_read(
    store: Path, path: list[Any], value: Any
) -> None:
    Forgery(store).write("artefact", setting(path, value))
    layers = opened(store)
    with pytest.raises((StoreDamaged, StoreFormat)) as caught:
        use(layers, 1)
    assert caught.value.where == str(blob_file(store, layers.find(key(1)).entry.artefact))
    assert use(layers, 2) == expected(2)


@pytest.mark.parametrize("arguments", [listed(), listed(value=7), listed()[:1], []])
def test_kernel_arguments_that_are_not_the_callers_as_they_are_are_listed(
    store: Path, arguments: list[Any]
) -> None:
    Forgery(store).write("artefact", setting(["plan", "dispatches", 0, "arguments"], arguments))
    assert use(opened(store), 1) == expected(1)


@pytest.mark.parametrize(
    ("document", "schema", "read"),
    [("index", 2, 1), ("artefact", 4, 3), ("artefact", 2, 3), ("inputs", 2, 1)],
)
def test_another_schema_is_another_format_and_not_damage(
    store: Path, document: str, schema: int, read: int
) -> None:
    Forgery(store).write(document, setting(["schema"], schema))
    expected_text = f"has schema {schema}; this version reads {read}"
    with pytest.raises(StoreFormat, match=expected_text) as caught:
        use(opened(store), 1)
    assert caught.value.fix is not None
    assert "release that wrote the store" in caught.value.fix


def test_an_artefact_of_an_earlier_release_does_not_stop_a_build_and_is_replaced_by_one(
    store: Path,
) -> None:
    Forgery(store).write("artefact", setting(["schema"], 2))
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 8)])
    assert use(opened(store), 8) == expected(8)
    with pytest.raises(StoreFormat, match="has schema 2; this version reads 3"):
        use(opened(store), 1)
    old = StoreReader.open(store).index.by_key()[key(1)].artefact
    assert [
        f.what for f in verify(store).faults if f.file.endswith(old.removeprefix("sha256:"))
    ] == ["the artefact has schema 2; this version reads 3"]
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 1)])
    assert use(opened(store), 1) == expected(1)
    assert verify(store).exit_code == 0


def test_a_nesting_that_a_build_may_write_is_read(store: Path) -> None:
    Forgery(store).write("artefact", setting(["plan", "dispatches", 0, "grid", 0], nested(64)))
    assert use(opened(store), 1) == expected(1)


def test_sources_that_lead_out_of_the_package_are_not_looked_at(
    store: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.py").write_text("x = 1")
    (tmp_path / "root" / "vllm").mkdir(parents=True)
    sources = {"vllm/../../secret.py": "0" * 64, "/etc/passwd": "0" * 64, "": "0" * 64}
    Forgery(store).write("inputs", setting(["sources"], sources))
    layers = opened(store)
    inputs = layers.inputs(layers.find(key(1)))
    comparison = compare_sources(inputs, {"vllm": tmp_path / "root"})
    assert (comparison.compared, comparison.differences) == (0, ())


# What a mutation puts in the place of a value.
POOL: list[Any] = [
    *(None, True, False, 0, -1, 1, 255, 1 << 31, 1 << 63, 10**30, 1.5, -0.0, 1e308),
    *("", "x", "k1", "gfx950", "../..", "\ud800", "a" * 3000, "sha256:" + "0" * 64),
    *([], {}, [[]], [None], {"arg": "x"}, {"arg": 1}, {"op": "sdiv", "width": 1, "of": [1, 0]}),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value, at any depth."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, k) for k in keys]
    return found + [
        p for _, k in found if isinstance(value[k], (dict, list)) for p in places(value[k])
    ]


def mutated(document: Any, chance: random.Random) -> Any:
    document = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 2, 4))):
        every = places(document)
        if not every:
            return document
        container, name = chance.choice(every)
        how = chance.random()
        if how < 0.6:
            container[name] = copy.deepcopy(chance.choice(POOL))
        elif how < 0.75:
            del container[name]
        elif how < 0.9:
            other, key_there = chance.choice(every)
            container[name] = copy.deepcopy(other[key_there]) if other is not container else None
        elif isinstance(container, list):
            container.insert(0, copy.deepcopy(container[name]))
        else:
            container[str(chance.choice(POOL))] = container.pop(name)
    return document


@pytest.mark.slow
def test_only_typed_errors_come_of_mutated_documents(store: Path) -> None:
    chance = random.Random(20)
    forgery = Forgery(store)
    rounds = 150
    for name in DOCUMENTS:
        errors: list[MonoError] = []
        for _ in range(rounds):
            forgery.write(name, lambda document: mutated(document, chance))
            with suppress_typed(errors):
                read_all(store)
        # Many a mutation leaves a document that a build could have written, and some are not in what
        # is read; but most are found.
        assert rounds // 4 < len(errors) < rounds, name
        # A lone surrogate in a message would end in another error when it is printed.
        assert all(str(error).encode() for error in errors)


@contextmanager
def suppress_typed(errors: list[MonoError]) -> Iterator[None]:
    try:
        yield
    except MonoError as error:
        errors.append(error)


def read_all(store: Path) -> None:
    layers = opened(store)
    for wanted in list(layers.keys()):
        found = layers.find(wanted)
        for code_object in layers.artefact(found).code_objects:
            layers.code(found, code_object)
        compare_sources(layers.inputs(found), {"vllm": store})
    with pytest.raises(LaunchMissing):
        layers.find(key(77))


def test_a_missing_launch_in_a_mutated_store_is_still_explained(store: Path) -> None:
    Forgery(store).write("index", setting(["entries", 0, "key", "build", "rows"], 1e300))
    layers = opened(store)
    with pytest.raises(StoreMissing, match="rows is 2, not 77"):
        layers.find(key(77))
