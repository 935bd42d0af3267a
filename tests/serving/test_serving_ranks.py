"""Four ranks as processes with a gloo group: all take the same decision, whatever one of them lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import Answer, PerRank, Ranks
from serving_kit import planned, store_of

from mono_runtime.launch_key import LaunchKey

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(4, tmp_path_factory.mktemp("ranks"), jobs="serving_ranks") as ranks:
        assert len({*ranks.results("process"), os.getpid()}) == 5
        yield ranks


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(tmp_path_factory.mktemp("stores") / "whole", planned("deepseek_v41").keys)


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without one launch of 12 rows."""
    keys = [k for k in planned("deepseek_v41").keys if k != _absent()]
    return store_of(tmp_path_factory.mktemp("stores") / "lacking", keys)


def _absent() -> object:
    return [k for k in planned("deepseek_v41").keys if k.values["tokens"] == 12][-1]


def results(answers: list[Answer]) -> list[object]:
    return [answer.error or answer.result for answer in answers]


def test_ranks_that_have_everything_serve(ranks: Ranks, whole: Path) -> None:
    assert ranks.results("load_model", whole, "strict") == ["mono"] * 4
    assert ranks.results("step", 6) == [("mono", ["k1_6", "k1_6"])] * 4
    assert ranks.results("compiled") == [0] * 4


def test_one_rank_without_a_launch_is_every_ranks_error_under_strict(
    ranks: Ranks, whole: Path, lacking: Path
) -> None:
    answers = ranks.run("load_model", PerRank(whole, {2: lacking}), "strict")
    assert results(answers) == ["RanksDisagree"] * 4
    for answer in answers:
        assert f"rank 2: {_absent()}: LaunchMissing" in answer.text


def test_one_rank_without_a_launch_has_every_rank_decline_under_stock(
    ranks: Ranks, whole: Path, lacking: Path
) -> None:
    answers = ranks.run("load_model", PerRank(whole, {2: lacking}), "stock")
    assert results(answers) == ["vLLM"] * 4
    assert ranks.results("compiled") == [0] * 4


def test_one_rank_without_a_launch_is_every_ranks_error_under_jit(
    ranks: Ranks, whole: Path, lacking: Path
) -> None:
    # That rank would compile while the others launch; nothing says that both give the same kernel.
    answers = ranks.run("load_model", PerRank(whole, {2: lacking}), "jit")
    assert results(answers) == ["RanksDisagree"] * 4


def test_all_ranks_without_a_launch_decline_its_width_alone_under_stock(
    ranks: Ranks, lacking: Path
) -> None:
    assert ranks.results("load_model", lacking, "stock") == ["mono"] * 4
    assert ranks.results("step", 6) == [("mono", ["k1_6", "k1_6"])] * 4


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", ["RanksDisagree", "StoreMissing", "RanksDisagree", "RanksDisagree"]),
        ("stock", ["vLLM"] * 4),
        ("jit", ["RanksDisagree", "StoreMissing", "RanksDisagree", "RanksDisagree"]),
    ],
)
def test_a_rank_that_cannot_open_its_store_does_not_leave_the_others_waiting(
    ranks: Ranks, whole: Path, tmp_path: Path, policy: str, expected: list[str]
) -> None:
    answers = ranks.run("load_model", PerRank(whole, {1: tmp_path / "none"}), policy)
    assert results(answers) == expected


def test_ranks_of_different_policies_do_not_serve(ranks: Ranks, whole: Path) -> None:
    answers = ranks.run("load_model", whole, PerRank("strict", {3: "stock"}))
    assert results(answers) == ["RanksDisagree"] * 3 + ["vLLM"]
    assert "the policies differ" in answers[0].text


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(tmp_path_factory.mktemp("stores") / "kimi", planned("kimi_k3").keys)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", ["RanksDisagree", "RanksDisagree", "RanksDisagree", "LaunchMissing"]),
        # Not even the ranks that have everything launch.
        ("stock", [(False, 0)] * 4),
    ],
)
def test_a_launch_that_one_ranks_executor_lacks_is_every_ranks_decision(
    ranks: Ranks, kimi: Path, policy: str, expected: list[object]
) -> None:
    epsilons = PerRank(1e-5, {3: 1e-6})
    assert results(ranks.run("make_executor", kimi, policy, epsilons)) == expected


def test_an_executor_that_every_rank_makes_alike_serves(ranks: Ranks, kimi: Path) -> None:
    assert ranks.results("make_executor", kimi, "strict", 1e-5) == [(True, 0)] * 4


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", ["RanksDisagree"] * 4),
        # Rank 2 cannot read it, so the others do not use what they have.
        ("stock", [(False, True), (False, True), (False, False), (False, True)]),
    ],
)
def test_a_launch_that_nobody_planned_serves_all_ranks_or_none(
    ranks: Ranks, whole: Path, tmp_path: Path, policy: str, expected: list[object]
) -> None:
    key = _unplanned()
    more = store_of(tmp_path / "more", [*planned("deepseek_v41").keys, key])
    damaged = _without_its_code(more, whole, tmp_path / "damaged")
    answers = ranks.run("load_unplanned", PerRank(more, {2: damaged}), policy, key)
    assert results(answers) == expected
    if policy == "strict":
        assert all(f"rank 2: {key}: StoreDamaged" in answer.text for answer in answers)


def test_a_launch_that_nobody_planned_and_every_rank_has_is_loaded(
    ranks: Ranks, tmp_path: Path
) -> None:
    key = _unplanned()
    more = store_of(tmp_path / "more", [*planned("deepseek_v41").keys, key])
    assert ranks.results("load_unplanned", more, "strict", key) == [(True, True)] * 4


def _unplanned() -> LaunchKey:
    asked = planned("deepseek_v41")
    return asked.family.key(asked.deployment, "ffn", 7, {})


def _without_its_code(more: Path, whole: Path, copy: Path) -> Path:
    """A copy of ``more`` in which the code object that ``whole`` does not have is damaged."""
    shutil.copytree(more, copy)
    here, there = ({*(s / "blobs" / "sha256").iterdir()} for s in (copy, whole))
    new = [b for b in here if b.name not in {t.name for t in there}]
    (code,) = [b for b in new if b.read_bytes().startswith(b"\x7fELF")]
    content = bytearray(code.read_bytes())
    content[-1] ^= 1
    code.write_bytes(content)
    return copy
