"""Building the key list: without an engine, the same bytes each time, found wrong when it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import ROOT
from key_list_kit import ARCHITECTURES, WIDTHS, build

from mono_build.cli.main import run as run_here
from mono_runtime.artefact import Artefact
from mono_runtime.expressions import Const
from mono_runtime.oci import StoreReader

SOURCE = "mono_build/kernels/deepseek_v41/key_list.py"
ARGUMENTS = (
    "kt i64, klen i64, slot i64, pos i64, swa_idx i64, swa_lens i64, topk i64, t2r i64, ratio i32,"
    " comp_block i32, bt_stride i32, comp_bt i64"
)


def artefacts(store: Path) -> dict[tuple[str, int], Artefact]:
    reader = StoreReader.open(store)
    entries = reader.index.entries
    return {(e.key.arch, int(e.key.values["tokens"])): reader.artefact(e.artefact) for e in entries}


@pytest.mark.flydsl
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("tokens", WIDTHS)
def test_a_launch_is_one_workgroup_a_token_that_waits_for_nobody(
    key_lists: Path, arch: str, tokens: int
) -> None:
    found = artefacts(key_lists)[arch, tokens]
    assert found.plan.to_json()["arguments"] == ARGUMENTS
    assert (found.plan.stream, found.plan.persistent, found.plan.workspace) == ("stream", False, ())
    (dispatch,) = found.plan.dispatches
    assert [*dispatch.grid, *dispatch.block] == [Const(n) for n in (tokens, 1, 1, 640, 1, 1)]
    assert dispatch.dynamic_lds == Const(0)
    ((kernel,),) = [c.kernels for c in found.code_objects]
    assert (kernel.lds, kernel.scratch, kernel.vgpr_spills, kernel.sgpr_spills) == (0, 0, 0, 0)


@pytest.mark.flydsl
def test_it_is_made_from_this_project_s_files_alone(key_lists: Path) -> None:
    reader = StoreReader.open(key_lists)
    (inputs,) = {a.inputs for a in artefacts(key_lists).values()}
    found = reader.inputs(inputs)
    assert [path for path, _ in found.sources] == [
        "mono_build/kernels/__init__.py",
        "mono_build/kernels/deepseek_v41/__init__.py",
        SOURCE,
    ]
    assert dict(found.kernels)["package"] == "mono-build"
    assert found.helpers == ()


@pytest.mark.flydsl
def test_two_builds_give_equal_stores_and_fetch_no_engine(key_lists: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    # A wheel would come from the package index: this one does not exist.
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "MONO_CACHE": str(cache)}
    result = build(tmp_path, tmp_path / "store", WIDTHS, **closed)
    assert result.code == 0, result.err
    assert {p.name for p in cache.iterdir()} == {"logs"}
    for name in ("index.json", "oci-layout"):
        assert (tmp_path / "store" / name).read_bytes() == (key_lists / name).read_bytes()


Verify = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    """``verify --execute`` in this process, which has torch already: exit code, and the cases' outcomes."""

    def call(store: Path, *arguments: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        code = run_here(["verify", "--store", str(store), "--execute", "--json", *arguments])
        launches = json.loads(capsys.readouterr().out)["executed"]["launches"]
        return code, [launch["outcome"] for launch in launches]

    return call


@pytest.mark.flydsl
def test_the_store_s_launches_match_their_reference(key_lists: Path, verify: Verify) -> None:
    code, outcomes = verify(key_lists, "--launch", "keylist", "--cases", "2")
    assert code == 0
    assert outcomes == ["matches"] * (2 * len(ARCHITECTURES) * len(WIDTHS))


# What a change would do, and the text of the kernel that it replaces.
ERRORS = {
    "a position that does not count itself": ("pos, token, Int64) + 1)", "pos, token, Int64))"),
    "no bit for compressed slots": (" | _COMPRESSED", " | 0"),
    "a hole that is a key": ("if row >= 0:", "if row >= _NONE:"),
    "window slots by their place in the table": ("+ entry - selected,", "+ entry,"),
    "another request's blocks": ("_load(t2r, token, Uint32)", "Uint32(0)"),
    "padding that has keys": ("if _load(slot, token, Int64) >= 0:", "if token >= 0:"),
    "a count that leaves out the window": (
        "_store(klen, token, length)",
        "_store(klen, token, selected)",
    ),
}


@pytest.mark.flydsl
@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_a_planted_error_is_found(error: str, tmp_path: Path, verify: Verify) -> None:
    changed = project(tmp_path / "project")
    text = (changed / SOURCE).read_text()
    right, wrong = ERRORS[error]
    assert text.count(right) == 1, right
    (changed / SOURCE).write_text(text.replace(right, wrong))
    store = tmp_path / "store"
    result = build(tmp_path, store, (8,), ("gfx942",), PYTHONPATH=str(changed))
    assert result.code == 0, result.err
    code, outcomes = verify(store, "--cases", "2")
    assert code == 8
    assert set(outcomes) <= {"differs", "stopped"}


def project(directory: Path) -> Path:
    """A copy of this project's packages that a test may change."""
    for name in ("mono_build", "mono_runtime", "manifests"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def test_planning_and_assessing_a_key_list_needs_no_compiler_in_the_process() -> None:
    script = (
        "import json, sys\n"
        "sys.modules['flydsl'] = sys.modules['torch'] = None\n"
        "import mono_build.cli.main, mono_build.toolbox\n"
        "from mono_build.families.registry import family\n"
        "own = family('deepseek_v41').own_modules\n"
        "print(json.dumps([own('keylist'), own('k1'), 'mono_build.kernels' in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["mono_build.kernels.deepseek_v41.key_list"], [], False]
