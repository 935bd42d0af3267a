"""The command that is printed for a failed launch: the options of the build, for that launch alone."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command import Result, environment, manifest, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def reproductions(result: Result) -> list[list[str]]:
    """The arguments of ``mono-build`` in each command that was printed."""
    lines = [line for line in result.err.splitlines() if "reproduce:" in line]
    commands = [shlex.split(line.partition("reproduce:")[2]) for line in lines]
    assert all(words[:2] == ["mono-build", "build"] for words in commands)
    return [words[1:] for words in commands]


def test_values_that_look_like_options_and_commands_are_kept(home: Path, tmp_path: Path) -> None:
    # A store that has the name of the command, and a manifest with a blank in its name.
    manifest(tmp_path / "my plan.yaml", {"behaviour": ["work", "fail"]}, rows=[1, 2])
    result = run(
        ["build", "--store", "build", "--manifest", "my plan.yaml", "--rows", "2", "--keep-going"],
        environment(home),
        cwd=tmp_path,
    )
    assert result.code == 1, result.err
    (words,) = reproductions(result)
    *given, option, key = words
    assert given == ["build", "--store", "build", "--manifest", "my plan.yaml", "--rows", "2"]
    assert option == "--key"
    again = run([*words, "--json"], environment(home), cwd=tmp_path)
    assert (again.code, again.json["planned"], again.json["failed"]) == (1, 1, 1)
    assert again.json["store"] == str(tmp_path / "build")
    assert again.json["failures"][0]["key_digest"].startswith(f"sha256:{key}")


def test_every_option_that_decides_is_kept_and_no_other(home: Path, tmp_path: Path) -> None:
    one = manifest(tmp_path / "one.yaml", {"behaviour": ["fail"]}, rows=[1])
    two = manifest(tmp_path / "two.yaml", {"behaviour": ["work"]}, rows=[1])
    store = str(tmp_path / "store")
    # No command, a short option, values with an equals sign, and options of the answer.
    words = (
        f"--json --plain -j2 --store={store} --manifest {one} --manifest={two} --family standin"
        " --launch=work --arch=gfx950 --tp 1 --rows 1 --timeout 60.5 --memory 4 --retries=0"
        " --device MI355X --fail-fast --check"
    )
    result = run(words.split(), environment(home))
    assert result.code == 1, result.err
    ((*given, _, key),) = reproductions(result)
    assert len(key) == 12
    assert list(zip(given[1::2], given[2::2], strict=True)) == [
        ("--store", store),
        ("--manifest", one),
        ("--manifest", two),
        ("--arch", "gfx950"),
        ("--tp", "1"),
        ("--family", "standin"),
        ("--launch", "work"),
        ("--rows", "1"),
        ("--jobs", "2"),
        ("--timeout", "60.5"),
        ("--memory", "4.0"),
        ("--retries", "0"),
        ("--device", "MI355X"),
    ]


def test_keys_that_were_given_are_replaced_by_the_one_that_failed(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"behaviour": ["fail"]}, rows=[1, 2, 3])
    arguments = ["--manifest", plan, "--store", str(tmp_path / "store")]
    planned = run(["plan", *arguments, "--json"], environment(home)).json["keys"]
    wanted = [k["key_digest"].removeprefix("sha256:")[:16] for k in planned[:2]]
    keys = [word for key in wanted for word in ("--key", key)]
    result = run(["build", *arguments, *keys], environment(home))
    printed = reproductions(result)
    assert sorted(words[-1] for words in printed) == sorted(key[:12] for key in wanted)
    assert all(words.count("--key") == 1 for words in printed)
    again = run([*printed[0], "--json"], environment(home))
    assert again.json["planned"] == 1
