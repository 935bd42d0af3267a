"""Ranks that are real processes over gloo: exchanges, agreement, and ranks that are lost."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

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


def test_an_exchange_needs_no_default_device_of_torch(ranks: Ranks) -> None:
    results = ranks.results("exchange_with_default_device", b"payload", "meta")
    assert results == [(b"payload",) * 4] * 4


def test_a_gloo_group_of_torch_is_a_group(ranks: Ranks) -> None:
    assert ranks.results("type_of_group") == ["TorchGroup"] * 4


@pytest.mark.parametrize(
    ("job", "what"),
    [
        ("use_foreign_backend", "a process group whose CPU backend is fake"),
        ("use_group_without_cpu", "a process group that is not on the CPU"),
    ],
)
def test_a_group_that_is_not_on_gloo_is_refused(ranks: Ranks, job: str, what: str) -> None:
    for answer in ranks.run(job):
        assert answer.error == "InvalidValue", answer.trace
        assert answer.text.splitlines()[0] == what
        assert "get_tp_group().cpu_group" in answer.text


def test_a_timeout_that_gloo_would_take_for_none_is_refused(ranks: Ranks) -> None:
    assert [a.error for a in ranks.run("exchange", b"", 0.0)] == ["InvalidValue"] * 4


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


def test_every_process_reads_what_every_process_wrote(ranks: Ranks) -> None:
    assert ranks.results("make_memory", 10_000, {}, 30.0) == [(12_288, 4)] * 4
    # hipDeviceMallocUncached is 3.
    assert ranks.results("flags") == [(3, rank) for rank in range(4)]
    assert ranks.results("read", 12_288) == [[bytes(12_288)] * 4] * 4
    patterns = [bytes([rank + 1]) * 12_288 for rank in range(4)]
    ranks.results("write", PerRank(None, dict(enumerate(patterns))))
    assert ranks.results("read", 12_288) == [patterns] * 4
    assert ranks.results("alive") == [{"allocations": 1, "imports": 3}] * 4
    ranks.results("close_memory", 30.0)
    assert ranks.results("alive") == [{}] * 4
    assert (
        ranks.results("made_and_released")
        == [
            [
                "hipExtMallocWithFlags",
                *["hipIpcOpenMemHandle"] * 3,
                *["hipIpcCloseMemHandle"] * 3,
                "hipFree",
            ]
        ]
        * 4
    )


@pytest.mark.parametrize(
    ("symbol", "after", "step"),
    [
        ("hipExtMallocWithFlags", 0, "allocate"),
        ("hipMemset", 0, "allocate"),
        ("hipIpcGetMemHandle", 0, "export"),
        ("hipIpcOpenMemHandle", 1, "import"),
        ("hipMemcpy", 1, "confirm"),
        ("hipMemset", 1, "clear"),
    ],
)
def test_a_failure_of_one_process_is_raised_on_all_and_leaves_nothing(
    ranks: Ranks, symbol: str, after: int, step: str
) -> None:
    answers = ranks.run("make_memory", 4096, PerRank({}, {2: {symbol: (2, after)}}), 30.0)
    for answer in answers:
        assert answer.error == "RanksDisagree", answer.trace
        what, reason, *_ = answer.text.splitlines()
        assert what == f"peer memory failed at {step}:"
        assert reason.strip().startswith("rank 2: DriverError: ")
        assert symbol in reason
        assert "hipErrorOutOfMemory" in reason
    assert answers[2].cause == "DriverError"
    assert ranks.results("alive") == [{}] * 4


def test_processes_that_ask_for_unequal_sizes_are_refused(ranks: Ranks) -> None:
    answers = ranks.run("make_memory", PerRank(4096, {0: 4097}), {}, 30.0)
    assert [a.error for a in answers] == ["RanksDisagree"] * 4
    assert all("rank 0 has 4097, ranks 1, 2, 3 have 4096" in a.text for a in answers)
    assert ranks.results("alive") == [{}] * 4


def test_a_rank_that_never_comes_is_named_and_the_timeout_kept(ranks: Ranks) -> None:
    ranks.results("new_group")
    answers = ranks.run("exchange", b"here", 2.0, on=(0, 2, 3))
    for rank, answer in zip((0, 2, 3), answers, strict=True):
        assert answer.error == "RankLost"
        what, where, fix = answer.text.splitlines()
        assert what.endswith("s of at most 2 s: rank 1 (no answer)")
        assert f"rank {rank} of 4, waiting for it to begin" in where
        assert "look at the log of that rank" in fix
    late = ranks.run("exchange", b"late", 30.0, on=(1,))
    assert late[0].error == "RankLost"
    assert "rank 0 (connection closed, so it has ended or gave up waiting" in late[0].text
    again = ranks.run("exchange", b"again", 30.0, on=(0,))
    assert again[0].error == "RankLost"
    assert "an earlier exchange of this group failed" in again[0].text


def test_a_message_of_somebody_else_is_not_taken_for_one(ranks: Ranks) -> None:
    ranks.results("new_group")
    ranks.start(1, "send_foreign_header")
    for answer in ranks.run("exchange", b"here", 30.0, on=(0, 2, 3)):
        assert answer.error == "RankLost"
        assert "rank 1 sent something that is no message of this protocol" in answer.text
    assert not ranks.finish(1).error


def test_a_rank_that_is_stopped_is_named_and_the_timeout_kept(ranks: Ranks) -> None:
    ranks.results("new_group")
    ranks.stop(3)
    try:
        answers = ranks.run("agree", statement(), 2.0, on=(0, 1, 2))
    finally:
        ranks.resume(3)
    assert [a.error for a in answers] == ["RankLost"] * 3
    assert all("rank 3 (no answer)" in a.text for a in answers)


def test_a_rank_that_dies_in_the_middle_is_named_at_once(ranks: Ranks) -> None:
    ranks.results("new_group")
    ranks.start(3, "die_in_exchange", b"never sent")
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


def test_a_process_that_dies_with_peer_memory_takes_nobody_elses_along(tmp_path: Path) -> None:
    with Ranks(2, tmp_path) as two:
        two.results("make_memory", 4096, {}, 30.0)
        two.kill(1)
        (answer,) = two.run("close_memory", 50.0, on=(0,))
        assert answer.error == "RankLost"
        assert two.results("alive", on=(0,)) == [{}]
        assert two.results("made_and_released", on=(0,)) == [
            ["hipExtMallocWithFlags", "hipIpcOpenMemHandle", "hipIpcCloseMemHandle", "hipFree"]
        ]
