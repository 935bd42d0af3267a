"""What a direct hit depends on, end to end: kernels with helpers and tables in another package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from command import PLUGIN, ROOT, Result, environment, manifest, run

# Stands in for the stand-in family's helper: the instructions come from another package and a table.
HELPER = """
import struct

from far_tools import codes, limits


def instructions(rows):
    words = [codes.Op.NOP] * rows + codes.tail() + [limits.LIMIT.end]
    return struct.pack(f"<{len(words)}I", *words)
"""
FAR = {
    "far_tools/__init__.py": "",
    "far_tools/codes.py": """
import enum
import json
from pathlib import Path

HERE = Path(__file__).parent


class Op(enum.IntEnum):
    NOP = 0xBF800000


MIDDLE = json.loads((HERE / "tables" / "middle.json").read_text())


def tail():
    with open(HERE / "tail.txt") as file:
        return [MIDDLE, int(file.read(), 16)]
""",
    "far_tools/limits.py": """
import types

LIMIT = types.SimpleNamespace(end=0xBF810000)
""",
    "far_tools/tables/middle.json": "3212836864",
    "far_tools/tail.txt": "BF800000",
}
UNCHANGED = (2, 0, 0, 2, 0, 0)


class Tree:
    """The stand-in family with its helpers elsewhere, a manifest of two launches, and a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plugin, self.far, self.store = root / "plugin", root / "far", root / "store"
        self.home = root / "home"
        self.home.mkdir(parents=True)
        shutil.copytree(PLUGIN, self.plugin, ignore=shutil.ignore_patterns("__pycache__"))
        (self.plugin / "standin_kernels" / "helper.py").write_text(HELPER)
        for name, text in FAR.items():
            (self.far / name).parent.mkdir(parents=True, exist_ok=True)
            (self.far / name).write_text(text)
        self.plan = manifest(root / "m.yaml", {})

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(map(str, [ROOT, self.plugin, self.far]))
        return {**environment(self.home), "PYTHONPATH": path, **more}

    def arguments(self, command: str) -> list[str]:
        return [command, "--store", str(self.store), "--manifest", self.plan, "--json"]

    def build(self, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Result:
        return run(self.arguments("build"), environ or self.environment(), cwd=cwd)

    def changed(self) -> list[list[str]]:
        """For each launch that would be built again, the inputs that differ."""
        explained = run(self.arguments("explain"), self.environment())
        return [[d["name"] for d in launch["differences"]] for launch in explained.json["stale"]]


def counts(result: Result) -> tuple[int, ...]:
    assert result.code == 0, result.err
    names = ("planned", "traced", "compiled", "reused", "failed", "not_started")
    return tuple(result.json[n] for n in names)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree with a complete store, which no test changes."""
    tree = Tree(tmp_path_factory.mktemp("built") / "tree")
    assert counts(tree.build()) == (2, 2, 2, 0, 0, 0)
    return tree


@pytest.fixture
def mine(built: Tree, tmp_path: Path) -> Tree:
    """A tree of this test's own, with what the complete store holds."""
    tree = Tree(tmp_path / "tree")
    shutil.copytree(built.store, tree.store)
    return tree


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        # Read when the helper is imported, and while a launch is traced.
        ("far_tools/tables/middle.json", "3212836864", "3212836865"),
        ("far_tools/tail.txt", "BF800000", "BF800001"),
        # A member of an enumeration, and an attribute of a module-level object.
        ("far_tools/codes.py", "0xBF800000", "0xBF800001"),
        ("far_tools/limits.py", "0xBF810000", "0xBF810001"),
    ],
)
def test_whatever_the_kernels_take_from_another_package_is_a_miss_when_it_changes(
    mine: Tree, file: str, old: str, new: str
) -> None:
    path = mine.far / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert mine.changed() == [[file], [file]]
    assert counts(mine.build()) == (2, 2, 2, 0, 0, 0)


def test_a_table_that_is_gone_is_a_miss_and_not_a_hit(mine: Tree) -> None:
    (mine.far / "far_tools" / "tables" / "middle.json").unlink()
    assert mine.changed() == [["far_tools/tables/middle.json"]] * 2
    assert mine.build().code == 1


def test_a_file_that_no_kernel_reads_is_no_input(mine: Tree) -> None:
    (mine.far / "far_tools" / "tables" / "other.json").write_text("1")
    (mine.far / "far_tools" / "unused.py").write_text("")
    assert counts(mine.build()) == UNCHANGED


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHASHSEED": "4711"},
        {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"},
        {"USER": "somebody", "LOGNAME": "somebody", "HOSTNAME": "elsewhere"},
        {"PYTHONDONTWRITEBYTECODE": "1"},
        {"PYTHONSAFEPATH": "1"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_who_builds_and_how_python_is_set_changes_nothing(
    built: Tree, variables: dict[str, str]
) -> None:
    assert counts(built.build(built.environment(**variables))) == UNCHANGED


def test_another_home_changes_nothing(built: Tree, tmp_path: Path) -> None:
    home = tmp_path / "another home"
    home.mkdir()
    assert counts(built.build(built.environment(HOME=str(home), TMPDIR=str(home)))) == UNCHANGED


def decoys(directory: Path) -> Path:
    """``directory`` with namesakes of everything that the launches are made from, none of which may run."""
    names = ("standin_compiler.py", "standin_kernels/__init__.py", "far_tools/__init__.py")
    for name in (*names, "far_tools/codes.py", "aiter/__init__.py", "vllm/__init__.py"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("raise SystemExit('the decoy ran')\n")
    return directory


def test_namesakes_in_the_current_directory_change_nothing(built: Tree, tmp_path: Path) -> None:
    assert counts(built.build(cwd=decoys(tmp_path))) == UNCHANGED


def test_a_build_among_namesakes_takes_the_real_ones(mine: Tree, tmp_path: Path) -> None:
    shutil.rmtree(mine.store)
    assert counts(mine.build(cwd=decoys(tmp_path / "here"))) == (2, 2, 2, 0, 0, 0)
    assert counts(mine.build()) == UNCHANGED


def test_the_console_script_hits_what_the_module_built(built: Tree, tmp_path: Path) -> None:
    script = decoys(tmp_path / "bin") / "mono-build"
    script.write_text("import sys\nfrom mono_build.cli import main\nsys.exit(main())\n")
    done = subprocess.run(
        [sys.executable, str(script), *built.arguments("build")],
        env=built.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert counts(Result(done.returncode, done.stdout, done.stderr)) == UNCHANGED


def age(tree: Tree) -> None:
    for path in (*tree.plugin.rglob("*"), *tree.far.rglob("*")):
        os.utime(path, (1, 1))


def move(tree: Tree) -> None:
    for name in ("plugin", "far"):
        moved = tree.root / "moved" / name
        moved.parent.mkdir(exist_ok=True)
        setattr(tree, name, getattr(tree, name).rename(moved))


def link(tree: Tree) -> None:
    for name in ("plugin", "far"):
        real = getattr(tree, name)
        linked = tree.root / f"linked {name}"
        linked.symlink_to(real)
        setattr(tree, name, linked)


def cache_bytecode(tree: Tree) -> None:
    for path in (tree.plugin, tree.far):
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(path)], check=True)


@pytest.mark.parametrize("change", [age, move, link, cache_bytecode])
def test_where_the_sources_lie_and_how_old_they_are_changes_nothing(
    mine: Tree, change: Callable[[Tree], None]
) -> None:
    change(mine)
    assert counts(mine.build()) == UNCHANGED
    # Whoever builds there anew makes the same store, so that both hit each other's.
    before = (mine.store / "index.json").read_bytes()
    shutil.rmtree(mine.store)
    assert counts(mine.build()) == (2, 2, 2, 0, 0, 0)
    assert (mine.store / "index.json").read_bytes() == before
