"""Ranks that are real processes over gloo: exchanges, agreement, and ranks that are lost."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from rank_processes import PerRank, Ranks
from rank_statements import statement

# Not imported here: that takes longer than all tests together, and only the ranks need it.
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(4, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


def test_every_rank_gets_every_payload_by_rank(ranks: Ranks) -> None:
    payloads = (b"", b"one", b"\0" * 100_000, bytes(range(256)))
    results = ranks.results("exchange", PerRank(None, dict(enumerate(payloads))), 30.0)
    assert results == [payloads] * 4


def test_exchanges_follow_each_other(ranks: Ranks) -> None:
    for turn in (b"a", b"bb", b"ccc"):
        assert ranks.results("exchange", turn, 30.0) == [(turn,) * 4] * 4


def test_four_equal_ranks_agree(ranks: Ranks) -> None:
    assert ranks.results("agree", statement(84), 30.0) == [(statement(84),) * 4] * 4


def test_one_rank_that_fails_to_load_is_every_ranks_refusal(ranks: Ranks) -> None:
    answers = ranks.run("load_and_agree", statement(), PerRank(None, {2: "blobs/sha256/ab"}), 30.0)
    reason = (
        "rank 2: StoreDamaged: blobs/sha256/ab does not match its digest; where: /store; "
        "do: build it again"
    )
    assert [a.error for a in answers] == [
        "RanksDisagree",
        "RanksDisagree",
        "StoreDamaged",
        "RanksDisagree",
    ]
    for rank in (0, 1, 3):
        assert reason in answers[rank].text.splitlines()[1]
    assert answers[2].context == "RanksDisagree"


def test_a_store_of_another_digest_is_every_ranks_refusal(ranks: Ranks) -> None:
    other = statement(store="sha256:" + "b" * 64)
    answers = ranks.run("agree", PerRank(statement(), {2: other}), 30.0)
    expected = (
        f"the stores differ: ranks 0, 1, 3 have sha256:{'a' * 64}, rank 2 has sha256:{'b' * 64}"
    )
    assert [a.error for a in answers] == ["RanksDisagree"] * 4
    assert all(expected in a.text for a in answers)


def test_a_rank_that_never_comes_is_named_and_the_timeout_kept(ranks: Ranks) -> None:
    ranks.results("new_group")
    answers = ranks.run("exchange", b"here", 1.0, on=(0, 2, 3))
    for rank, answer in zip((0, 2, 3), answers, strict=True):
        assert answer.error == "RankLost"
        what, where, fix = answer.text.splitlines()
        assert what.endswith("s of at most 1 s: rank 1 (no answer)")
        assert f"rank {rank} of 4, waiting for it to begin" in where
        assert "look at the log of that rank" in fix
    late = ranks.run("exchange", b"late", 30.0, on=(1,))
    assert late[0].error == "RankLost"
    assert "rank 0 (connection closed, so it has ended or gave up waiting" in late[0].text
    again = ranks.run("exchange", b"again", 30.0, on=(0,))
    assert again[0].error == "RankLost"
    assert "an earlier exchange of this group failed" in again[0].text


def test_a_rank_that_is_stopped_is_named_and_the_timeout_kept(ranks: Ranks) -> None:
    ranks.results("new_group")
    ranks.stop(3)
    try:
        answers = ranks.run("agree", statement(), 1.0, on=(0, 1, 2))
    finally:
        ranks.resume(3)
    assert [a.error for a in answers] == ["RankLost"] * 3
    assert all("rank 3 (no answer)" in a.text for a in answers)


def test_a_rank_that_dies_in_the_middle_is_named_at_once(ranks: Ranks) -> None:
    ranks.results("new_group")
    ranks.start(3, "die_in_exchange", b"never sent", 50.0)
    for answer in ranks.run("exchange", b"here", 50.0, on=(0, 1, 2)):
        assert answer.error == "RankLost"
        what, where, _ = answer.text.splitlines()
        assert "s of at most 50 s: rank 3 (connection closed" in what
        assert where.endswith("waiting for its message")

    # Who comes first finds the dead rank before the others come, and leaves what these send unread.
    ranks.results("use_spare_group", on=(0, 1, 2))
    for rank in (0, 1, 2):
        (answer,) = ranks.run("exchange", b"here", 50.0, on=(rank,))
        assert answer.error == "RankLost"
        assert "rank 3 (connection closed" in answer.text
    assert ranks.results("use_spare_group", on=(0, 1, 2)) == [None] * 3
