"""``build --check``: the second build is reported like the first, and only code is compared."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import PLUGIN, ROOT, Result, command, environment, manifest, run

from mono_build.cli import checking, main
from mono_build.errors import ToolchainError
from mono_build.report import BuildReport
from mono_runtime.oci import StoreReader


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def altered(home: Path, tmp_path: Path, file: str, old: str, new: str) -> dict[str, str]:
    """An environment in which a file of the stand-in family has ``new`` for ``old``."""
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine, dirs_exist_ok=True)
    text = (mine / file).read_text()
    assert old in text
    (mine / file).write_text(text.replace(old, new))
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    return variables


def first_time_only(marker: Path, then: str, later: str) -> str:
    """Python statements: ``then`` in the first process that runs them, ``later`` afterwards."""
    return (
        "import pathlib\n"
        f"_marker = pathlib.Path({str(marker)!r})\n"
        "if not _marker.exists():\n"
        "    _marker.touch()\n"
        f"    {then}\n"
        "else:\n"
        f"    {later}\n"
    )


def checked(tmp_path: Path, variables: dict[str, str], *arguments: str) -> Result:
    plan = manifest(tmp_path / "m.yaml", {}, rows=[1, 2])
    place = str(tmp_path / "store")
    return run(["build", "--store", place, "--manifest", plan, "--check", *arguments], variables)


def test_equal_builds_are_said_to_be_equal(home: Path, tmp_path: Path) -> None:
    result = checked(tmp_path, environment(home))
    assert result.code == 0, result.err
    assert result.out.endswith("check: built twice, equal bytes\n")
    again = checked(tmp_path, environment(home), "--json").json
    assert (again["planned"], again["reused"]) == (2, 2)
    assert again["check"] == {
        "compared": 2,
        "differing": [],
        "failures": [],
        "interrupted": False,
        "error": None,
    }


def test_other_bytes_are_a_difference(home: Path, tmp_path: Path) -> None:
    # The read-only data of every object holds the time at which it was made.
    variables = altered(
        home,
        tmp_path,
        "standin_compiler.py",
        'b"\\0" * 64),',
        '__import__("time").time_ns().to_bytes(64, "big")),',
    )
    result = checked(tmp_path, variables, "--json")
    assert result.code == 1, result.err
    assert result.json["failed"] == 0
    assert result.json["check"]["compared"] == 2
    assert [k["build"]["rows"] for k in result.json["check"]["differing"]] == [1, 2]
    told = checked(tmp_path, variables).out
    assert told.count("differs: standin/work gfx950 rows=") == 2
    assert "code objects sha256:" in told
    assert told.endswith("check: 2 of 2 launches built twice, 2 of them differ\n")


def test_another_launch_plan_is_a_difference(home: Path, tmp_path: Path) -> None:
    helper = "    return struct.pack("
    variables = altered(home, tmp_path, "standin_kernels/helper.py", helper, helper)
    launches = tmp_path / "plugin" / "standin_kernels" / "launches.py"
    grid = first_time_only(tmp_path / "marker", "_grid = 4", "_grid = 5")
    launches.write_text(f"{launches.read_text().replace('grid=build.grid', 'grid=_grid')}\n{grid}")
    result = checked(tmp_path, variables)
    assert result.code == 1, result.err
    assert result.out.count("equal code objects, another launch plan") == 2


def test_other_provenance_of_equal_code_is_no_difference(home: Path, tmp_path: Path) -> None:
    # Only the first build imports a module that the code does not depend on.
    extra = first_time_only(tmp_path / "marker", "import standin_kernels.extra", "pass")
    variables = altered(
        home,
        tmp_path,
        "standin_kernels/launches.py",
        "from standin_kernels import helper\n",
        f"from standin_kernels import helper\n{extra}",
    )
    (tmp_path / "plugin" / "standin_kernels" / "extra.py").write_text("")
    result = checked(tmp_path, variables, "--json")
    assert (result.code, result.json["check"]["differing"]) == (0, []), result.err
    reader = StoreReader.open(tmp_path / "store")
    inputs = reader.inputs(reader.artefact(reader.index.entries[0].artefact).inputs)
    assert "standin_kernels/extra.py" in dict(inputs.sources)


def test_failures_of_the_second_build_are_shown_with_a_command_that_finds_them(
    home: Path, tmp_path: Path
) -> None:
    second = first_time_only(tmp_path / "marker", "_late = False", "_late = True")
    variables = altered(
        home,
        tmp_path,
        "standin_kernels/launches.py",
        "from standin_kernels import helper\n",
        f"from standin_kernels import helper\n{second}",
    )
    launches = tmp_path / "plugin" / "standin_kernels" / "launches.py"
    launches.write_text(
        launches.read_text().replace(
            "time.sleep(build.pause)", "_fail() if _late and build.rows == 2 else None"
        )
    )
    result = checked(tmp_path, variables, "--json")
    assert result.code == 1, result.err
    report = result.json
    assert (report["compiled"], report["failed"], report["failures"]) == (2, 0, [])
    assert (report["check"]["compared"], report["check"]["differing"]) == (1, [])
    (failure,) = report["check"]["failures"]
    assert failure["key"]["build"]["rows"] == 2
    assert "the kernel does not like this key" in failure["failure"]["what"]
    line = next(line for line in result.err.splitlines() if "reproduce:" in line)
    words = shlex.split(line.partition("reproduce:")[2])
    again = run([*words[1:], "--json"], variables)
    assert (again.code, again.json["planned"], again.json["failed"]) == (1, 1, 0)
    assert len(again.json["check"]["failures"]) == 1


def test_an_interrupt_of_the_second_build_leaves_the_answer_of_the_first(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.0, 1.0]}, rows=[1, 2])
    errors = tmp_path / "errors"
    arguments = ["--store", str(tmp_path / "store"), "--manifest", plan, "--json", "--check"]
    with errors.open("wb") as file:
        builder = subprocess.Popen(
            command("build", *arguments, "-j2"),
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=file,
        )
    while errors.read_bytes().count(b"[1/4") < 2 and builder.poll() is None:
        time.sleep(0.02)
    os.kill(builder.pid, signal.SIGINT)
    out, _ = builder.communicate(timeout=20)
    assert builder.returncode == 130
    report = json.loads(out)
    assert (report["planned"], report["failed"], report["interrupted"]) == (4, 0, False)
    assert report["index_digest"] == StoreReader.open(tmp_path / "store").index_digest
    assert report["check"]["interrupted"] is True
    assert report["check"]["differing"] == []
    assert 1 <= report["check"]["compared"] < 4
    assert list(home.glob("mono-build-check-*")) == []


@pytest.fixture
def _terminate_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_terminate_as_before")
@pytest.mark.parametrize(
    ("trouble", "code", "word"),
    [
        (ToolchainError("no room for a second build", fix="make some"), 4, "no room for a second"),
        (KeyboardInterrupt(), 130, "interrupted; the first build is in the store"),
    ],
)
def test_what_stops_the_second_build_leaves_the_answer_of_the_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: BaseException,
    code: int,
    word: str,
) -> None:
    def stopped(*_: object) -> BuildReport:
        raise trouble

    monkeypatch.setattr(checking, "build", stopped)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{PLUGIN}")
    plan = manifest(tmp_path / "m.yaml", {}, rows=[1])
    arguments = ["build", "--store", str(tmp_path / "store"), "--manifest", plan]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json", "--check"])
    assert ended.value.code == code
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert (report["planned"], report["compiled"], report["check"]["compared"]) == (1, 1, 0)
    assert report["check"]["interrupted"] == isinstance(trouble, KeyboardInterrupt)
    error = report["check"]["error"]
    assert (error and error["kind"]) == (None if code == 130 else "ToolchainError")
    assert word in shown.err
