"""What counts as a difference between ranks, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from rank_statements import loaded, statement
from rank_threads import each_rank

from mono_runtime.errors import InvalidValue, RankLost, RanksDisagree, StoreDamaged
from mono_runtime.ranks import LocalGroup, Statement, agree, agree_or_fail


def reasons(statements: Sequence[Statement]) -> list[str]:
    """The reasons that all ranks give alike."""
    ended = each_rank(len(statements), lambda m: agree(m, statements[m.rank], timeout=30.0))
    assert [type(e) for e in ended] == [RanksDisagree] * len(statements)
    texts = {str(e) for e in ended}
    assert len(texts) == 1
    lines = texts.pop().splitlines()
    assert lines[0] == "the ranks cannot all serve the same launches, so none of them does:"
    assert lines[-1].startswith("  do:    mend what is named for each rank")
    return [line.strip() for line in lines[1:-1]]


def test_equal_ranks_agree_whatever_the_order_of_their_launches() -> None:
    forwards = statement(loaded=(loaded(0), loaded(1)))
    backwards = statement(loaded=(loaded(1), loaded(0)))
    ended = each_rank(2, lambda m: agree(m, (forwards, backwards)[m.rank], timeout=30.0))
    assert ended == [(forwards, forwards)] * 2


def test_one_rank_agrees_with_itself() -> None:
    assert agree(None, statement()) == (statement(),)


def test_one_rank_that_failed_does_not_agree_even_alone() -> None:
    with pytest.raises(RanksDisagree, match="rank 0: no luck"):
        agree(None, statement(failures=("no luck",)))


def test_all_reasons_are_gathered_and_equal_ones_joined() -> None:
    assert reasons(
        [
            statement(failures=("A",)),
            statement(),
            statement(failures=("B", "A")),
            statement(policy="stock"),
        ]
    ) == [
        "ranks 0, 2: A",
        "rank 2: B",
        "the policies differ: ranks 0, 1, 2 have strict, rank 3 has stock",
    ]


def test_devices_and_compute_units_are_compared() -> None:
    assert reasons([statement(), statement(architecture="gfx950", compute_units=256)]) == [
        "the devices differ: rank 0 has gfx942:sramecc+:xnack-, rank 1 has gfx950",
        "the numbers of compute units differ: rank 0 has 304, rank 1 has 256",
    ]


def test_missing_launches_are_named_up_to_ten() -> None:
    assert reasons([statement(84), statement(72), statement(84)]) == [
        "not loaded on rank 1 but elsewhere, 12 launches: "
        + "; ".join(f"deepseek_v41/k1 gfx942 tokens=0{n}" for n in range(72, 82))
        + "; and 2 more"
    ]


def test_launches_missing_on_different_ranks_are_told_apart() -> None:
    first, second = statement(loaded=(loaded(0),)), statement(loaded=(loaded(1),))
    assert reasons([first, first, second]) == [
        "not loaded on rank 2 but elsewhere, 1 launch: deepseek_v41/k1 gfx942 tokens=000",
        "not loaded on ranks 0, 1 but elsewhere, 1 launch: deepseek_v41/k1 gfx942 tokens=001",
    ]


def test_other_artefacts_and_residency_of_a_launch_are_told() -> None:
    other = statement(loaded=(loaded(0), loaded(1, artefact=7), loaded(2, workgroups=None)))
    assert reasons([statement(), other]) == [
        "artefacts differ, 1 launch: deepseek_v41/k1 gfx942 tokens=001: "
        f"rank 0 has sha256:{1:064x}, rank 1 has sha256:{7:064x}",
        "workgroups on a compute unit differ, 1 launch: deepseek_v41/k1 gfx942 tokens=002: "
        "rank 0 has 2, rank 1 has None",
    ]


def test_a_rank_that_failed_is_not_said_to_miss_launches() -> None:
    assert reasons([statement(), Statement(failures=("no device",))]) == ["rank 1: no device"]


def test_a_rank_that_failed_with_another_store_shows_both() -> None:
    failed = Statement(store="sha256:" + "b" * 64, failures=("LaunchMissing: k1",))
    assert reasons([statement(), failed]) == [
        "rank 1: LaunchMissing: k1",
        f"the stores differ: rank 0 has sha256:{'a' * 64}, rank 1 has sha256:{'b' * 64}",
    ]


def test_a_failure_that_is_no_utf8_reaches_the_others() -> None:
    assert reasons([statement(), statement(failures=("no /store/\udcff",))]) == [
        r"rank 1: no /store/\udcff"
    ]


def test_a_statement_that_is_no_json_is_a_reason_instead_of_a_wait() -> None:
    broken = statement(store="sha256:\udcff")
    (text,) = reasons([statement(), broken])
    assert text.startswith("rank 1: InvalidValue: not expressible as canonical JSON")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff\x00", "its message is not JSON"),
        (b"[" * 100_000, "its message is not JSON"),
        (b"[]", "its messages have protocol None, this rank's 1"),
        (b'{"protocol":2}', "its messages have protocol 2, this rank's 1"),
        (
            b'{"protocol":1,"step":"peer memory: export"}',
            "it is at 'peer memory: export' while others are at 'agreement'",
        ),
        (
            b'{"protocol":1,"step":"agreement","failures":"no"}',
            "its message has no list of failures",
        ),
        (
            b'{"protocol":1,"step":"agreement","failures":[],"body":{}}',
            "InvalidValue: not a statement",
        ),
        (
            json.dumps(
                {
                    "protocol": 1,
                    "step": "agreement",
                    "failures": [],
                    "body": {**statement().to_json(), "loaded": [["k1", 5, 2]]},
                }
            ).encode(),
            "InvalidValue: not a statement: a loaded launch",
        ),
    ],
)
def test_what_cannot_be_read_is_a_reason(sent: bytes, reason: str) -> None:
    def work(member: LocalGroup) -> object:
        if member.rank == 1:
            return member.exchange(sent, timeout=30.0)
        return agree(member, statement(), timeout=30.0)

    ended = each_rank(3, work)
    for rank in (0, 2):
        assert isinstance(ended[rank], RanksDisagree)
        assert f"rank 1: {reason}" in str(ended[rank])


def test_the_error_of_loading_is_raised_with_its_cause_after_the_exchange() -> None:
    def load() -> Statement:
        try:
            raise OSError("input/output error")
        except OSError as error:
            raise StoreDamaged("blob gone", where="/store", fix="build again") from error

    def work(member: LocalGroup) -> object:
        make = load if member.rank == 0 else statement
        return agree_or_fail(member, make, timeout=30.0)

    failed, other = each_rank(2, work)
    assert isinstance(failed, StoreDamaged)
    assert isinstance(failed.__cause__, OSError)
    assert isinstance(failed.__context__, RanksDisagree)
    assert isinstance(other, RanksDisagree)
    reason = "rank 0: StoreDamaged: blob gone; where: /store; do: build again"
    assert reason in str(other)
    assert reason in str(failed.__context__)


def test_any_exception_while_loading_is_told_and_raised() -> None:
    def load() -> Statement:
        raise KeyError("tokens")

    def work(member: LocalGroup) -> object:
        return agree_or_fail(member, load if member.rank == 0 else statement, timeout=30.0)

    failed, other = each_rank(2, work)
    assert isinstance(failed, KeyError)
    assert "rank 0: KeyError: 'tokens'" in str(other)


def test_the_error_of_loading_is_raised_also_when_the_others_are_gone() -> None:
    def load() -> Statement:
        raise StoreDamaged("blob gone")

    def work(member: LocalGroup) -> object:
        if member.rank == 1:
            return member.abandon("killed")
        return agree_or_fail(member, load, timeout=30.0)

    failed, _ = each_rank(2, work)
    assert isinstance(failed, StoreDamaged)
    assert isinstance(failed.__context__, RankLost)


def test_statements_that_all_succeed_are_agreed_on() -> None:
    ended = each_rank(2, lambda m: agree_or_fail(m, statement, timeout=30.0))
    assert ended == [(statement(), statement())] * 2


def test_a_failure_is_cut_to_a_readable_length() -> None:
    (text,) = reasons([statement(), statement(failures=("x" * 5000,))])
    assert text == "rank 1: " + "x" * 2000


def test_not_a_group_is_refused() -> None:
    with pytest.raises(InvalidValue, match="not a group of ranks"):
        agree(4, statement())
