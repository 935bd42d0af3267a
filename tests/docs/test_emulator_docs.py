"""docs/emulator.md says what is modelled, and counts are described as they are written."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from docs_pages import ROOT, page
from instruction_table import CLASSES, census, table

from mono_build.emulator.classes import CLASSES as COUNTED
from mono_build.emulator.figures import Figures, LaunchFigures, Stage
from mono_runtime.launch_key import LaunchKey

pytest.importorskip("tinygrad")


def test_the_table_of_instructions_is_that_of_the_emitters_and_the_tests() -> None:
    stale = "paste what `python tests/docs/instruction_table.py` prints"
    assert table() in page("docs/emulator.md").text, stale


def test_every_instruction_of_the_families_has_a_model() -> None:
    from mono_build.emulator.translate.registry import emitters

    assert census() - emitters().keys() == set()


def test_every_group_of_emitters_is_in_the_table() -> None:
    directory = ROOT / "mono_build" / "emulator" / "translate"
    groups = {
        p.stem for p in directory.glob("*.py") if re.search(r"^EMITTERS\b", p.read_text(), re.M)
    }
    assert groups == set(CLASSES)


def test_the_number_of_instructions_is_stated() -> None:
    stated = re.search(r"They use (\d+) mnemonics", page("docs/emulator.md").text)
    assert stated is not None
    assert int(stated[1]) == len(census())


def test_the_named_tests_are_there() -> None:
    section = page("docs/emulator.md").section("Modelled instructions")
    named = re.findall(r"`(?:tests/emulator/)?(test_\w+\.py)`", section)
    assert len(named) >= 9
    for name in named:
        assert (ROOT / "tests" / "emulator" / name).is_file(), name


def test_figures_are_described() -> None:
    figures = LaunchFigures(
        LaunchKey.of("a", "b", "gfx950", {}),
        (),
        "",
        1,
        1,
        "",
        Figures(),
        (Stage("k", 0, 4, 1, Figures()),),
    ).to_json()
    described = set(re.findall(r"`([a-z_]+)`", page("docs/commands.md").section("verify")))
    assert set(figures) | set(figures["stages"][0]) <= described
    explained = set(re.findall(r"`([a-z_]+)`", page("docs/emulator.md").section("Counts")))
    assert {f.name for f in fields(Figures)} <= explained


def test_the_classes_that_are_counted_are_named() -> None:
    text = (
        page("docs/emulator.md")
        .section("Counts")
        .replace("LDS load and store", "lds load, lds store")
    )
    row = re.search(r"by class: ([^|]*)\|", text)
    assert row is not None
    assert {c.strip() for c in row[1].split(",")} == set(COUNTED)
