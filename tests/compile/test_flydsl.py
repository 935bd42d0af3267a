"""The real compiler: what we keep is what FlyDSL itself would load, and its refusals are survived."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import PLUGIN, ROOT, command, environment, run

from mono_build.elf import check_artefact
from mono_build.store.verify import verify
from mono_build.toolchain import identify, toolkit, worker_environment
from mono_runtime.expressions import evaluate
from mono_runtime.oci import StoreReader

pytestmark = pytest.mark.flydsl

# FlyDSL on its own: call the launcher as an engine does, and take the binary out of its artefact.
_PLAIN = """
import json, sys
from flydsl._mlir import ir
from flydsl._mlir.dialects import gpu
from flydsl.compiler.jit_function import _create_mlir_context
from probe_kernels import launches
found = {}
for name in ("computed", "chain", "resident"):
    launcher = getattr(launches, name)(launches.Build(256))
    launcher(*[0] * 5)
    with _create_mlir_context():
        module = ir.Module.parse(launcher._last_compiled[1].ir)
        for op in module.body.operations:
            if op.operation.name == "gpu.binary":
                objects = ir.ArrayAttr(op.attributes["objects"])
                found[name] = bytes(gpu.ObjectAttr(objects[0]).object).hex()
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the probe launches of both architectures."""
    directory = tmp_path_factory.mktemp("probe")
    path = directory / "m.yaml"
    path.write_text(
        "schema: 1\nbuilds:\n  - {family: probe, arch: [gfx942, gfx950], tp: 1, rows: [256]}\n"
    )
    place = directory / "store"
    result = run(
        ["build", "--store", str(place), "--manifest", str(path), "--json"], environment(directory)
    )
    assert result.code == 0, result.err
    assert (result.json["planned"], result.json["compiled"]) == (6, 6)
    return place


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    """The code objects that FlyDSL makes for gfx950 when it is left alone."""
    tools = identify(os.environ)
    with toolkit(tools.linker, tools.bitcode) as root:
        variables = worker_environment("gfx950", root, os.environ, ())
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PLUGIN)])
        done = subprocess.run(
            [sys.executable, "-c", _PLAIN],
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def artefact(store: Path, launch: str, arch: str = "gfx950") -> Any:
    reader = StoreReader.open(store)
    (entry,) = [e for e in reader.index.entries if (e.key.launch, e.key.arch) == (launch, arch)]
    return reader.artefact(entry.artefact)


@pytest.mark.parametrize("launch", ["computed", "chain", "resident"])
def test_the_kept_object_is_flydsls_own_byte_for_byte(
    store: Path, plain: dict[str, str], launch: str
) -> None:
    (code,) = artefact(store, launch).code_objects
    assert StoreReader.open(store).blob(code.digest).hex() == plain[launch]


def test_a_computed_grid_counts_workgroups(store: Path) -> None:
    (dispatch,) = artefact(store, "computed").plan.dispatches
    counted = [evaluate(dispatch.grid[0], {"count": n}) for n in (1, 255, 256, 257, 1000)]
    assert counted == [1, 1, 1, 2, 4]
    assert [(a.name, a.type, a.offset) for a in dispatch.arguments] == [
        ("left", "i64", 0),
        ("right", "i64", 8),
        ("out", "i64", 16),
        ("count", "i32", 24),
        ("scale", "f32", 28),
    ]
    assert dispatch.kernarg_size == 32


def test_a_chain_keeps_order_and_computed_arguments(store: Path) -> None:
    plan = artefact(store, "chain").plan
    assert plan.stream is None
    assert [a.name for a in plan.arguments] == ["left", "out", "count", "skip", "scale"]
    first, second = plan.dispatches
    assert first.symbol != second.symbol
    values = {"left": 4096, "out": 8192, "count": 1000, "skip": 300, "scale": 0}
    passed = [evaluate(a.value, values) for a in second.arguments]
    assert passed[:4] == [8192, 4096, 8192, 700]
    assert evaluate(second.grid[0], values) == 3


@pytest.mark.parametrize(("arch", "mach"), [("gfx942", 0x4C), ("gfx950", 0x4F)])
def test_objects_are_for_the_architecture_that_was_asked_for(
    store: Path, arch: str, mach: int
) -> None:
    (code,) = artefact(store, "resident", arch).code_objects
    assert StoreReader.open(store).blob(code.digest)[48] == mach


def test_an_argument_that_decides_whether_to_launch_is_refused(tmp_path: Path) -> None:
    path = _manifest(tmp_path, "gfx950", "conditional")
    result = run(
        ["build", "--store", str(tmp_path / "s"), "--manifest", path, "--json"],
        environment(tmp_path),
    )
    assert result.code == 1
    failure = result.json["failures"][0]["failure"]
    assert failure["kind"] == "extract"
    assert "the host function branches (llvm.cond_br)" in failure["what"]


def test_a_compile_hint_changes_the_key_and_a_misspelt_one_is_refused(tmp_path: Path) -> None:
    path = _manifest(tmp_path, "gfx950", "computed", "hinted", "misspelt")
    store = tmp_path / "s"
    arguments = ["build", "--store", str(store), "--manifest", path, "--json"]
    result = run(arguments, environment(tmp_path))
    assert result.code == 1
    assert (result.json["compiled"], result.json["reused"], result.json["failed"]) == (2, 0, 1)
    failure = result.json["failures"][0]["failure"]
    assert "the compile hint 'fast_fp_maths'" in failure["what"]
    assert failure["fix"] == "did you mean fast_fp_math?"
    assert artefact(store, "hinted").ir != artefact(store, "computed").ir


def test_llvms_abort_costs_one_launch(tmp_path: Path) -> None:
    path = _manifest(tmp_path, "gfx942", "unselectable", "computed")
    result = run(
        ["build", "--store", str(tmp_path / "s"), "--manifest", path, "--json"],
        environment(tmp_path),
    )
    assert result.code == 1
    assert (result.json["compiled"], result.json["failed"]) == (1, 1)
    failure = result.json["failures"][0]["failure"]
    assert failure["kind"] == "died"
    assert "LLVM ERROR: Cannot select" in failure["what"]
    assert (tmp_path / "s" / "index.json").exists()


def _manifest(tmp_path: Path, arch: str, *launches: str) -> str:
    lines = [
        "schema: 1",
        "builds:",
        f"  - family: probe\n    arch: {arch}\n    tp: 1\n    rows: [64]",
    ]
    lines += ["    variants:", *(f"      - {{launch: {name}}}" for name in launches)]
    path = tmp_path / "m.yaml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_two_runs_of_the_real_compiler_give_equal_bytes(store: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text("schema: 1\nbuilds:\n  - {family: probe, arch: gfx950, tp: 1, rows: [256]}\n")
    home = tmp_path / "another home"
    home.mkdir()
    result = run(
        ["build", "--store", str(tmp_path / "s"), "--manifest", str(again), "--json", "-j1"],
        environment(home, PYTHONHASHSEED="7"),
    )
    assert result.code == 0
    second = {e.key: e.artefact for e in StoreReader.open(tmp_path / "s").index.entries}
    first = {e.key: e.artefact for e in StoreReader.open(store).index.entries}
    assert len(second) == 3
    assert second.items() <= first.items()


@pytest.mark.slow
def test_sigkill_over_the_real_compiler_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    chance = random.Random(20261129)
    path = tmp_path / "m.yaml"
    path.write_text(
        "schema: 1\nbuilds:\n  - {family: probe, arch: gfx950, tp: 1, rows: [64, 128, 256, 512, 1024]}\n"
    )
    store, variables = tmp_path / "store", environment(tmp_path)
    arguments = ["build", "--store", str(store), "--manifest", str(path), "--json"]
    for _ in range(6):
        builder = subprocess.Popen(
            command(*arguments),
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            builder.wait(timeout=chance.uniform(2.0, 8.0))
        except subprocess.TimeoutExpired:
            os.killpg(builder.pid, signal.SIGKILL)
            builder.wait()
        if (store / "index.json").exists():
            assert verify(store, check_artefact).faults == ()
    result = run(arguments, variables)
    assert (result.code, result.json["planned"], result.json["failed"]) == (0, 15, 0)
    fresh = run(["build", "--store", str(tmp_path / "fresh"), *arguments[3:]], variables)
    assert fresh.json["index_digest"] == result.json["index_digest"]
    assert verify(store, check_artefact).faults == ()
