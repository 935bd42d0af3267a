from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_kit import add, blob_file, fill, inputs, key, sha

from mono_build.store.diff import Change, StoreDiff, diff
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import StoreDamaged
from mono_runtime.oci import StoreReader


def compared(a: Path, b: Path) -> StoreDiff:
    return diff(StoreReader.open(a), StoreReader.open(b))


def test_equal_stores_have_no_difference(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    fill(tmp_path / "b")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found == StoreDiff((), (), (), 3)
    assert found.equal


def test_launches_of_one_side_are_listed(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1, 4))
    fill(tmp_path / "b", range(2, 6))
    found = compared(tmp_path / "a", tmp_path / "b")
    assert (found.only_a, found.only_b) == ((key(1),), (key(4), key(5)))
    assert (found.changed, found.same, found.equal) == ((), 2, False)


def test_every_input_that_differs_is_named(tmp_path: Path) -> None:
    for name, used in [
        ("a", inputs(OLD="1", BOTH="x")),
        ("b", inputs("ef" * 32, "24.0", NEW="2", BOTH="x")),
    ]:
        with StoreWriter(tmp_path / name) as writer:
            writer.publish([add(writer, 1, used=used)])
    (change,) = compared(tmp_path / "a", tmp_path / "b").changed
    assert change.inputs == (
        Change("sources", "vllm/models/mono.py", "ab" * 32, "ef" * 32),
        Change("environment", "OLD", "1", None),
        Change("environment", "NEW", None, "2"),
        Change("toolchain", "linker.version", "23.1", "24.0"),
    )
    assert change.same_ir
    assert change.same_machine_code
    assert (change.code_objects, change.plan, change.resources) == (None, (), ())


def test_plan_objects_and_resource_figures_that_differ_are_named(tmp_path: Path) -> None:
    elf = {"a": b"\x7fELF" + b"1" * 100, "b": b"\x7fELF" + b"2" * 140}
    for name, vgpr, grid in [("a", 128, 256), ("b", 132, 304)]:
        with StoreWriter(tmp_path / name) as writer:
            writer.publish([add(writer, 1, elf=elf[name], vgpr=vgpr, grid=grid)])
    found = compared(tmp_path / "a", tmp_path / "b")
    (change,) = found.changed
    assert change.key == key(1)
    assert change.code_objects == ((sha(elf["a"]),), (sha(elf["b"]),))
    assert not change.same_machine_code
    assert change.plan == (Change("plan", "dispatches[0].grid[0]", 256, 304),)
    assert change.resources == (
        Change("resources", "size", 104, 144),
        Change("resources", "text_size", 100, 140),
        Change("resources", "kernel_0.vgpr", 128, 132),
    )
    assert change.inputs == ()
    value = json.loads(json.dumps(found.to_json()))
    assert value["changed"][0]["resources"][2] == {
        "section": "resources",
        "name": "kernel_0.vgpr",
        "a": 128,
        "b": 132,
    }
    assert value["changed"][0]["key"]["build"] == {"rows": 1, "tp": 4}


def test_a_damaged_artefact_is_an_error_and_not_a_difference(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(1, 2))
    with StoreWriter(tmp_path / "b") as writer:
        entry = add(writer, 1, vgpr=64)
        writer.publish([entry])
    blob_file(tmp_path / "b", entry.artefact).write_bytes(b"")
    with pytest.raises(StoreDamaged, match=entry.artefact):
        compared(tmp_path / "a", tmp_path / "b")


def test_what_executions_counted_is_compared_where_both_sides_have_it(tmp_path: Path) -> None:
    elf = {"a": b"\x7fELF" + b"1" * 100, "b": b"\x7fELF" + b"2" * 100}
    for name in ("a", "b"):
        with StoreWriter(tmp_path / name) as writer:
            writer.publish([add(writer, n, elf=elf[name]) for n in (1, 2)])
    known = {
        (key(1), (sha(elf["a"]),)): {"instructions": 900, "polls": 7, "seed": 1},
        (key(1), (sha(elf["b"]),)): {"instructions": 750, "polls": 7, "seed": 1},
        # Nothing was counted of the other build of this launch.
        (key(2), (sha(elf["a"]),)): {"instructions": 5},
    }
    readers = [StoreReader.open(tmp_path / name) for name in ("a", "b")]
    found = diff(*readers, lambda launch, objects: known.get((launch, objects)))
    assert [(c.key, c.counts) for c in found.changed] == [
        (key(1), (Change("counts", "instructions", 900, 750),)),
        (key(2), ()),
    ]
    (first, _) = found.to_json()["changed"]
    assert first["counts"] == [{"section": "counts", "name": "instructions", "a": 900, "b": 750}]
