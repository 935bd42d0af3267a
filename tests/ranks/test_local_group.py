"""Ranks that are threads, and the group of one."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from rank_threads import each_rank

from mono_runtime.errors import InvalidValue, RankLost
from mono_runtime.ranks import LocalGroup, SingleGroup, as_group, local_groups


def test_every_member_gets_every_payload_by_rank() -> None:
    def work(member: LocalGroup) -> list[tuple[bytes, ...]]:
        return [member.exchange(b"%d.%d" % (member.rank, turn), timeout=30.0) for turn in range(50)]

    expected = [(b"0.%d" % turn, b"1.%d" % turn, b"2.%d" % turn) for turn in range(50)]
    assert each_rank(3, work) == [expected] * 3


def test_members_that_do_not_come_are_named() -> None:
    member = local_groups(4)[1]
    with pytest.raises(RankLost) as caught:
        member.exchange(b"", timeout=0.01)
    assert str(caught.value).splitlines()[:2] == [
        "no answer in 0.01 s: rank 0, rank 2, rank 3",
        "  where: rank 1 of 4",
    ]


def test_after_a_loss_nobody_meets_in_the_group_again() -> None:
    first, second = local_groups(2)
    with pytest.raises(RankLost):
        first.exchange(b"", timeout=0.01)
    with pytest.raises(RankLost, match=r"no answer in 0\.01 s: rank 1"):
        second.exchange(b"", timeout=30.0)


def test_a_member_that_raises_ends_the_waiting_of_the_others() -> None:
    others_wait = threading.Barrier(4)

    def work(member: LocalGroup) -> None:
        with member:
            others_wait.wait(30.0)
            if member.rank == 2:
                raise ZeroDivisionError("by nothing")
            member.exchange(b"", timeout=50.0)

    ended = each_rank(4, work)
    assert isinstance(ended[2], ZeroDivisionError)
    for rank in (0, 1, 3):
        assert isinstance(ended[rank], RankLost)
        assert "lost: rank 2 (ZeroDivisionError: by nothing)" in ended[rank].what


def test_a_member_that_has_left_is_missed_at_once() -> None:
    first, second = local_groups(2)
    second.abandon()
    with pytest.raises(RankLost, match=r"lost: rank 1 \(it left the group\)"):
        first.exchange(b"", timeout=50.0)


def test_a_member_that_leaves_after_an_exchange_takes_nothing_from_it() -> None:
    def work(member: LocalGroup) -> tuple[bytes, ...]:
        with member:
            return member.exchange(b"x", timeout=30.0)

    assert each_rank(8, work) == [(b"x",) * 8] * 8


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_is_positive(timeout: float) -> None:
    with pytest.raises(InvalidValue, match="timeout"):
        local_groups(1)[0].exchange(b"", timeout=timeout)


def test_a_group_has_at_least_one_member() -> None:
    with pytest.raises(InvalidValue, match="0 ranks"):
        local_groups(0)


def test_no_group_is_a_group_of_one() -> None:
    group = as_group(None)
    assert isinstance(group, SingleGroup)
    assert (group.rank, group.size) == (0, 1)
    assert group.exchange(b"alone", timeout=1.0) == (b"alone",)


def test_a_group_stays_what_it_is() -> None:
    member = local_groups(1)[0]
    assert as_group(member) is member


def test_something_else_is_refused_with_what_to_pass() -> None:
    class Coordinator:
        """Has a CPU group, as vLLM's has, and is none."""

        cpu_group = None

    with pytest.raises(InvalidValue) as caught:
        as_group(Coordinator())
    assert "Coordinator" in caught.value.what
    assert "get_tp_group().cpu_group" in str(caught.value.fix)


def test_importing_the_ranks_does_not_import_torch() -> None:
    code = "import sys, mono_runtime.ranks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
