"""How the bench measures: CPU time of whole families of processes, trees of files, scaled samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures.plans import CASES, Case, manifest_text
from figures.rebuild import _POISON, sampled, scaled
from figures.tree import compare

from mono_build.manifest import load_manifests, plan_for
from mono_build.plan import Selection
from mono_runtime.launch_key import LaunchKey

BENCH = Path(__file__).parents[2] / "ci" / "bench"

# A command whose work is done by a grandchild that outlives it, as a fork server does.
_ORPHAN = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
        while time.process_time() < 0.5:
            pass
    os._exit(0)
os.wait()
"""
# Run apart from the tests, because it waits for every child of its process.
_METER = f"""
import pathlib, sys
sys.path.insert(0, {str(BENCH)!r})
from figures.process import Command, adopt_orphans, measure
adopt_orphans()
work = pathlib.Path(sys.argv[1])
command = Command([sys.executable, "-S", "-c", sys.argv[2]], {{}}, work)
measured = measure([command, command], work)
print(measured.cpu, [r.exit_code for r in measured.results])
"""


def _meter(work: Path, program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _METER, str(work), program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(BENCH.parents[1])},
    ).stdout


def test_the_time_of_processes_that_outlive_their_command_is_counted(tmp_path: Path) -> None:
    cpu, _, codes = _meter(tmp_path, _ORPHAN).partition(" ")
    assert float(cpu) >= 1.0
    assert codes.strip() == "[0, 0]"


def test_a_killed_command_is_reported_as_such(tmp_path: Path) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert _meter(tmp_path, program).strip().endswith("[-9, -9]")


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_bytes(b"bytes")
        (tmp_path / name / "sub" / "file").chmod(0o644)
    return tmp_path / "a", tmp_path / "b"


def test_equal_trees_have_no_difference(trees: tuple[Path, Path]) -> None:
    same = compare(*trees)
    assert (same.entries, same.differing) == (3, ())


def test_one_changed_bit_of_equal_length_is_found(trees: tuple[Path, Path]) -> None:
    (trees[1] / "sub" / "file").write_bytes(b"bytEs")
    assert compare(*trees).differing == ("sub/file: different content (5 and 5 bytes)",)


def test_modes_of_files_and_of_the_root_count(trees: tuple[Path, Path]) -> None:
    trees[0].chmod(0o755)
    trees[1].chmod(0o700)
    (trees[1] / "sub" / "file").chmod(0o600)
    assert compare(*trees).differing == (
        ".: mode drwxr-xr-x and drwx------",
        "sub/file: mode -rw-r--r-- and -rw-------",
    )


def test_files_that_one_tree_lacks_are_named(trees: tuple[Path, Path]) -> None:
    (trees[0] / "left").touch()
    (trees[1] / "sub" / ".hidden").mkdir()
    assert compare(*trees).differing == (
        "left: only in the first",
        "sub/.hidden: only in the second",
    )


def test_links_are_compared_and_not_followed(trees: tuple[Path, Path]) -> None:
    for tree, target in zip(trees, ("sub", "elsewhere"), strict=True):
        (tree / "link").symlink_to(target)
    assert compare(*trees).differing == ("link: links to different places",)


def _key(launch: str, tokens: int, ratio: int = 2, *, fold: bool = True) -> LaunchKey:
    build = {"tokens": tokens, "ratio": ratio, "fold": fold, "index": False}
    return LaunchKey.of("deepseek_v41", launch, "gfx950", build)


def test_the_typical_layer_is_sampled_at_three_widths() -> None:
    keys = [
        _key(launch, rows, ratio, fold=fold)
        for launch in ("k1", "k2")
        for rows in (6, 12, 18, 24, 36, 42, 48)
        for ratio, fold in ((0, False), (1, True), (2, False), (2, True))
    ]
    expected = [_key(launch, rows) for launch in ("k1", "k2") for rows in (6, 24, 48)]
    assert sampled(keys) == expected


def test_all_keys_are_scaled_from_their_launch_and_width() -> None:
    sample = [_key("k1", 6), _key("k1", 24), _key("k2", 6), _key("k2", 24)]
    keys = [_key("k1", 6, 0), _key("k1", 15, 1), _key("k2", 24), _key("k2", 18)]
    # 1 + 2 for the k1 keys, 30 + 10 + 20 * 12/18 for the k2 keys.
    total = scaled(sample, [1.0, 3.0, 10.0, 30.0], keys)
    assert total == pytest.approx(1 + 2 + 30 + 10 + 40 / 3)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_the_manifests_of_the_bench_are_legal(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(manifest_text(case))
    plan = plan_for(load_manifests([str(file)]), Selection())
    assert {(k.family, k.arch) for k in plan.keys} == {(case.family, case.arch)}


def _package(root: Path, name: str, text: str) -> None:
    module = root.joinpath(*name.split("."))
    module.mkdir(parents=True, exist_ok=True)
    (module / "__init__.py").write_text(text)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("import flydsl.compiler", 99),
        ("import torch", 99),
        ("from importlib.util import find_spec; assert find_spec('flydsl').origin", 0),
        ("import other", 0),
    ],
)
def test_the_trap_stops_imports_and_not_searches(tmp_path: Path, statement: str, code: int) -> None:
    for name in ("flydsl", "flydsl.compiler", "torch", "other"):
        _package(tmp_path, name, "")
    (tmp_path / "sitecustomize.py").write_text(_POISON)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", statement], env=environment, check=False)
    assert done.returncode == code


_KERNEL = """
from dataclasses import dataclass
from pathlib import Path
import table

@dataclass
class Build:
    tokens: int

class Launcher:
    def __init__(self, build):
        self.build = build
        self.func = lambda a, b, c, stream=None: None
    def __call__(self, *arguments, **more):
        with Path("calls").open("a") as calls:
            print(self.build.tokens, arguments, more, file=calls)

def make(build):
    return Launcher(build)
"""


def test_a_plain_process_calls_each_launcher_once_with_zeros(tmp_path: Path) -> None:
    for name in ("flydsl", "flydsl.compiler", "flydsl.expr"):
        _package(tmp_path, name, "")
    # A module of the name of one of the bench's own must be the one that the kernels mean.
    (tmp_path / "table.py").write_text("")
    _package(tmp_path, "engine", "raise SystemExit('the engine was started')")
    _package(tmp_path, "engine.kernels", _KERNEL)
    launches = [
        {
            "number": number,
            "key_class": "engine.kernels:Build",
            "factory": "engine.kernels:make",
            "arguments": {"tokens": tokens},
        }
        for number, tokens in ((4, 48), (2, 6))
    ]
    task = {
        "roots": {"engine": str(tmp_path / "engine")},
        "modules": ["engine.kernels"],
        "launches": launches,
    }
    (tmp_path / "task").write_text(json.dumps(task))
    script = BENCH / "figures" / "plain_worker.py"
    subprocess.run(
        [sys.executable, str(script), "task", "answer"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=True,
    )
    assert (tmp_path / "calls").read_text() == "48 (0, 0, 0) {}\n6 (0, 0, 0) {}\n"
    answer = json.loads((tmp_path / "answer").read_text())
    assert [launch["number"] for launch in answer["launches"]] == [4, 2]
