"""Launches of this project's own in a family whose other launches come from an engine: what each is made from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from command import PLUGIN, ROOT, Result, environment, run

KERNELS = "mono_build/kernels"
OWN = {
    f"{KERNELS}/made_up.py": """
import os
from dataclasses import dataclass

import standin_compiler

from mono_build.kernels import made_up_text


@dataclass(frozen=True)
class Build:
    rows: int
    fold: bool = False


def factory(build):
    text = made_up_text.instructions(build.rows)
    return standin_compiler.Launcher(os.environ["ARCH"], f"own_{build.rows}", text)
""",
    f"{KERNELS}/made_up_text.py": """
import json
import struct
from pathlib import Path


def instructions(rows):
    words = json.loads(Path(__file__).with_name("made_up.json").read_text())
    return struct.pack(f"<{rows + 1}I", *[words["nop"]] * rows, words["end"])
""",
    f"{KERNELS}/made_up.json": '{"nop": 3212836864, "end": 3212902400}',
    # Nothing imports it.
    f"{KERNELS}/idle.py": "VALUE = 1\\n",
}
FAMILY = """
from mono_build.families.base import LaunchSpec as _LaunchSpec

_OWN = "mono_build.kernels.made_up"


class WithOwn(StandIn):
    launches = (
        *StandIn.launches,
        _LaunchSpec("own", "", (ROWS, FOLD), f"{_OWN}:Build", f"{_OWN}:factory", persistent=False),
    )

    def workspace(self, key):
        return WORKSPACE(key)


WORKSPACE = lambda key: {}
FAMILY = WithOwn()
"""
MADE_FROM = [
    f"{KERNELS}/__init__.py",
    f"{KERNELS}/made_up.json",
    f"{KERNELS}/made_up.py",
    f"{KERNELS}/made_up_text.py",
    "standin_compiler.py",
    "standin_family.py",
]


class Tree:
    """A copy of this project and of the stand-in family, both with a launch of our own, and a store."""

    def __init__(self, root: Path) -> None:
        self.home, self.store = root / "home", root / "store"
        self.project, self.plugin = root / "project", root / "plugin"
        self.home.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("mono_build", "mono_runtime", "manifests"):
            shutil.copytree(ROOT / name, self.project / name, ignore=ignored)
        shutil.copytree(PLUGIN, self.plugin, ignore=ignored)
        for name, text in OWN.items():
            (self.project / name).write_text(text)
        family = self.plugin / "standin_family.py"
        family.write_text(family.read_text() + FAMILY)
        self.plan = self.manifest("work", "own")

    def manifest(self, *launches: str, folds: str = "false") -> str:
        path = self.home / f"{'-'.join(launches)}-{folds.replace(', ', '-')}.yaml"
        variants = ", ".join(f"{{launch: {name}, fold: [{folds}]}}" for name in launches)
        path.write_text(
            "schema: 1\nbuilds:\n  - {family: standin, arch: gfx950, tp: 1, rows: [2],"
            f" variants: [{variants}]}}\n"
        )
        return str(path)

    def replace(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))

    def run(self, command: str, *arguments: str, plan: str | None = None) -> Result:
        path = os.pathsep.join(map(str, [self.project, self.plugin]))
        words = [command, "--store", str(self.store), *arguments, "--json"]
        if command in ("build", "explain"):
            words += ["--manifest", plan or self.plan]
        return run(words, {**environment(self.home), "PYTHONPATH": path}, cwd=self.home)

    def changed(self) -> dict[str, list[str]]:
        """For each launch that would be built again, the inputs that differ."""
        stale = self.run("explain").json["stale"]
        return {s["key"]["launch"]: [d["name"] for d in s["differences"]] for s in stale}

    def inspect(self, launch: str) -> Mapping[str, object]:
        found: Mapping[str, object] = self.run("inspect", "--launch", launch).json
        return found


def counts(result: Result) -> tuple[int, ...]:
    assert result.code == 0, result.err
    return tuple(result.json[n] for n in ("planned", "traced", "compiled", "reused"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree with a complete store, which no test changes."""
    tree = Tree(tmp_path_factory.mktemp("own") / "tree")
    assert counts(tree.run("build")) == (2, 2, 2, 0)
    return tree


@pytest.fixture
def mine(built: Tree, tmp_path: Path) -> Tree:
    """A tree of this test's own, with what the complete store holds."""
    tree = Tree(tmp_path / "tree")
    shutil.copytree(built.store, tree.store)
    return tree


def test_each_launch_is_recorded_with_its_own_files_and_origin(built: Tree) -> None:
    own, work = built.inspect("own")["inputs"], built.inspect("work")["inputs"]
    assert isinstance(own, dict)
    assert isinstance(work, dict)
    # The stand-in's compiler is a module like any other, and imports one from elsewhere.
    own_files, files = (
        [p for p in sorted(i["sources"]) if not p.startswith("msgpack/")] for i in (own, work)
    )
    assert own_files == MADE_FROM
    assert files == [
        "standin_compiler.py",
        "standin_family.py",
        "standin_kernels/__init__.py",
        "standin_kernels/helper.py",
        "standin_kernels/launches.py",
    ]
    assert (own["kernels"]["package"], own["helpers"]) == ("mono-build", {})
    assert work["kernels"]["package"] == "standin_kernels"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("made_up.py", "own_{build", "mine_{build"),
        ("made_up_text.py", "[words", "[1 + words"),
        ("made_up.json", "3212836864", "3212836865"),
    ],
)
def test_an_edit_of_our_kernels_makes_their_launches_stale_and_no_other(
    mine: Tree, file: str, old: str, new: str
) -> None:
    mine.replace(mine.project / KERNELS / file, old, new)
    assert mine.changed() == {"own": [f"{KERNELS}/{file}"]}
    assert counts(mine.run("build")) == (2, 1, 1, 1)
    assert mine.changed() == {}


def test_an_edit_of_the_engine_s_kernels_leaves_ours_as_they_are(mine: Tree) -> None:
    helper = mine.plugin / "standin_kernels" / "helper.py"
    helper.write_text(helper.read_text() + "# another\n")
    assert mine.changed() == {"work": ["standin_kernels/helper.py"]}


def test_what_no_launch_of_ours_uses_is_no_input(mine: Tree) -> None:
    (mine.project / KERNELS / "idle.py").write_text("VALUE = 2\n")
    (mine.project / KERNELS / "other.json").write_text("1")
    assert mine.changed() == {}


def test_a_kernel_of_ours_that_is_gone_is_a_miss(mine: Tree) -> None:
    (mine.project / KERNELS / "made_up_text.py").unlink()
    assert mine.changed() == {"own": [f"{KERNELS}/made_up_text.py"]}
    assert mine.run("build").code == 1


def test_what_is_recorded_does_not_depend_on_the_rest_of_the_plan(mine: Tree) -> None:
    together = (mine.store / "index.json").read_bytes()
    shutil.rmtree(mine.store)
    for launch in ("own", "work"):
        assert counts(mine.run("build", plan=mine.manifest(launch))) == (1, 1, 1, 0)
    assert (mine.store / "index.json").read_bytes() == together


def test_a_plan_of_ours_alone_needs_no_engine_and_any_other_does(mine: Tree) -> None:
    shutil.rmtree(mine.store)
    shutil.rmtree(mine.plugin / "standin_kernels")
    assert counts(mine.run("build", plan=mine.manifest("own"))) == (1, 1, 1, 0)
    assert counts(mine.run("build", plan=mine.manifest("own"))) == (1, 0, 0, 1)
    refused = mine.run("build")
    assert refused.code == 4
    assert "standin_kernels is not installed" in refused.err


def test_tools_are_pinned_where_no_engine_is_needed_too(mine: Tree) -> None:
    plan = Path(mine.manifest("own"))
    plan.write_text(plan.read_text() + "toolchain: {lld: '==1.0'}\n")
    refused = mine.run("build", plan=str(plan))
    assert refused.code == 4
    assert "the manifest pins ==1.0" in refused.err


def test_stale_bytecode_of_ours_is_not_run(mine: Tree) -> None:
    text = mine.project / KERNELS / "made_up_text.py"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(text)], check=True)
    before = text.stat()
    mine.replace(text, "rows + 1}I", "rows + 2}I")
    mine.replace(text, 'words["end"])', 'words["end"], 0)')
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert counts(mine.run("build")) == (2, 1, 1, 1)
    artefact = mine.inspect("own")["artefact"]
    assert isinstance(artefact, dict)
    # Two and two instructions of four bytes, where there were three.
    assert artefact["code_objects"][0]["text_size"] == 16


def with_workspace(tree: Tree, expression: str) -> None:
    tree.replace(
        tree.plugin / "standin_family.py", "WORKSPACE = lambda key: {}", f"WORKSPACE = {expression}"
    )


def test_workspace_is_in_the_plan_and_is_shown(mine: Tree) -> None:
    with_workspace(mine, "lambda key: {'target': 96, 'source': 64}")
    assert counts(mine.run("build", plan=mine.manifest("own"))) == (1, 1, 1, 0)
    artefact = mine.inspect("own")["artefact"]
    assert isinstance(artefact, dict)
    # In the order of the launcher's arguments.
    assert artefact["plan"]["workspace"] == "source 64, target 96"
    path = os.pathsep.join(map(str, [mine.project, mine.plugin]))
    words = ["inspect", "--store", str(mine.store), "--launch", "own"]
    text = run(words, {**environment(mine.home), "PYTHONPATH": path}, cwd=mine.home).out
    assert [line for line in text.splitlines() if line.startswith("workspace")] == [
        "workspace source 64 B",
        "workspace target 96 B",
    ]


@pytest.mark.parametrize(
    ("size", "made"), [("96", (2, 2, 1, 1)), ("96 + key.values['fold']", (2, 2, 2, 0))]
)
def test_equal_ir_shares_an_artefact_if_its_workspace_is_equal(
    mine: Tree, size: str, made: tuple[int, ...]
) -> None:
    with_workspace(mine, f"lambda key: {{'target': {size}}}")
    plan = mine.manifest("own", folds="false, true")
    assert counts(mine.run("build", plan=plan)) == made


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("lambda key: {'other': 64}", "workspace for other, which the launcher does not take"),
        ("lambda key: {'source': 0}", "the workspace of source is 0 bytes"),
    ],
)
def test_workspace_that_does_not_fit_the_launcher_is_a_failure_that_names_it(
    mine: Tree, expression: str, reason: str
) -> None:
    with_workspace(mine, expression)
    failed = mine.run("build", plan=mine.manifest("own"))
    assert failed.code == 1
    (failure,) = [f["failure"] for f in failed.json["failures"]]
    assert failure["kind"] == "extract"
    assert reason in failure["what"]
