"""Two families in one build, each with a compiler of its own: what breaks in one does not stop the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Result, environment, run

from mono_build.elf import check_artefact
from mono_build.store.verify import verify

pytestmark = pytest.mark.flydsl


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def both(
    home: Path, tmp_path: Path, probe: str, behaviours: str, *arguments: str
) -> tuple[Result, set[tuple[str, str]]]:
    """Build these launches of both families; the result, and what the store then has."""
    path = tmp_path / "m.yaml"
    path.write_text(
        "schema: 1\n"
        "builds:\n"
        "  - {family: standin, arch: gfx950, tp: 1, rows: [1],"
        f" variants: [{{launch: work, behaviour: [{behaviours}]}}]}}\n"
        "  - {family: probe, arch: gfx950, tp: 1, rows: [64],"
        f" variants: [{', '.join(f'{{launch: {name}}}' for name in probe.split())}]}}\n"
    )
    store = tmp_path / "store"
    words = ["build", "--store", str(store), "--manifest", str(path), "--json", *arguments]
    result = run(words, environment(home))
    if not (store / "index.json").exists():
        return result, set()
    assert verify(store, check_artefact).faults == ()
    listed = run(["ls", "--store", str(store), "--json"], environment(home)).json["launches"]
    return result, {(e["key"]["family"], e["key"]["launch"]) for e in listed}


def failures(result: Result) -> list[tuple[str, str, str]]:
    found = result.json["failures"]
    return [(f["key"]["family"], f["key"]["launch"], f["failure"]["kind"]) for f in found]


def test_both_are_built_and_then_reused(home: Path, tmp_path: Path) -> None:
    result, built = both(home, tmp_path, "computed", "work")
    assert result.code == 0, result.err
    assert (result.json["planned"], result.json["compiled"]) == (2, 2)
    assert built == {("probe", "computed"), ("standin", "work")}
    again, _ = both(home, tmp_path, "computed", "work")
    assert (again.code, again.json["reused"], again.json["traced"]) == (0, 2, 0)
    assert again.json["index_digest"] == result.json["index_digest"]


@pytest.mark.parametrize(
    ("probe", "behaviours", "broken"),
    [
        ("computed misspelt", "work", ("probe", "misspelt", "compile")),
        ("computed", "work, abort", ("standin", "work", "died")),
    ],
)
def test_a_broken_launch_of_one_leaves_the_other_to_be_built(
    home: Path, tmp_path: Path, probe: str, behaviours: str, broken: tuple[str, str, str]
) -> None:
    result, built = both(home, tmp_path, probe, behaviours)
    assert result.code == 1, result.err
    assert (result.json["planned"], result.json["compiled"]) == (3, 2)
    assert failures(result) == [broken]
    assert built == {("probe", "computed"), ("standin", "work")}


def test_fail_fast_leaves_the_other_family_out(home: Path, tmp_path: Path) -> None:
    result, built = both(home, tmp_path, "misspelt", "work", "--fail-fast")
    assert result.code == 1, result.err
    assert (result.json["failed"], result.json["not_started"]) == (1, 1)
    assert built == set()
