"""Ranks that load a deployment together: all of them go on, or none does, and nobody is left waiting."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import standin_hip
from rank_processes import PerRank, Ranks
from rank_servers import Server
from rank_threads import each_rank
from runtime_kit import deployment, flip, index_of, k1, k2, key, publish, three
from standin_hip import FakeDevice, StandIn
from store_kit import blob_file

from mono_runtime.errors import InvalidValue, RankLost, RanksDisagree
from mono_runtime.ranks import LocalGroup

KEYS = [made.key for made in deployment()]
TIMEOUT = 30.0


@pytest.fixture
def damaged(place: Path, tmp_path: Path) -> Path:
    """A copy of the store in which the code object of k1 for one token is damaged."""
    copy = Path(shutil.copytree(place, tmp_path / "damaged"))
    flip(blob_file(copy, k1(1).digest))
    return copy


@pytest.fixture
def another_build(tmp_path: Path) -> Path:
    """The same launches, one of them with another code object."""
    launches = [m for m in deployment() if m.key != key("k2", 1)]
    return publish(tmp_path / "another", *launches, k2(1, vgprs=72))


def reasons_of(text: str) -> list[str]:
    lines = text.splitlines()
    assert lines[0] == "the ranks cannot all serve the same launches, so none of them does:"
    return [line.strip() for line in lines[1:] if not line.startswith("  do: ")]


# ---- processes ----

processes = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    standin_hip.library()
    with Ranks(4, tmp_path_factory.mktemp("ranks"), jobs="rank_servers") as ranks:
        yield ranks


@processes
def test_four_processes_that_load_alike_go_on(ranks: Ranks, place: Path) -> None:
    ranks.results("open", place, "strict")
    assert ranks.results("preload", KEYS, TIMEOUT) == [(4, 4, 0)] * 4
    assert ranks.results("step") == [[(r, "k1_1", three(r, 2, 3))] for r in range(4)]
    assert ranks.results("close") == [{}] * 4


@processes
def test_one_process_with_a_damaged_code_object_is_every_processs_refusal(
    ranks: Ranks, place: Path, damaged: Path
) -> None:
    ranks.results("open", PerRank(place, {2: damaged}), "strict")
    answers = ranks.run("preload", KEYS, TIMEOUT)
    for answer in answers:
        assert answer.error == "RanksDisagree", answer.trace
        reasons = reasons_of(answer.text)
        assert len(reasons) == 3
        for reason, name in zip(
            reasons, ("k1 gfx942 fold=false", "k1 gfx942 fold=true", "k3"), strict=True
        ):
            assert reason.startswith(f"rank 2: deepseek_v41/{name}")
            assert "StoreDamaged: the content is not what its name says" in reason
            assert f"where: {blob_file(damaged, k1(1).digest)}" in reason
    assert len({a.text for a in answers}) == 1
    assert ranks.results("close") == [{}] * 4


@processes
def test_one_process_whose_driver_fails_is_every_processs_refusal_under_every_policy(
    ranks: Ranks, place: Path
) -> None:
    ranks.results("open", place, "stock")
    ranks.results("fail", "hipModuleLoadData", 2, on=(1,))
    answers = ranks.run("preload", KEYS[:1], TIMEOUT)
    for answer in answers:
        assert answer.error == "RanksDisagree", answer.trace
        (reason,) = reasons_of(answer.text)
        assert reason.startswith(
            "rank 1: deepseek_v41/k1 gfx942 fold=false tokens=1 tp=4: DriverError"
        )
        assert "hipErrorOutOfMemory" in reason
    assert ranks.results("close") == [{}] * 4


@processes
def test_a_process_with_another_build_is_every_processs_refusal(
    ranks: Ranks, place: Path, another_build: Path
) -> None:
    ranks.results("open", PerRank(place, {3: another_build}), "strict")
    answers = ranks.run("preload", KEYS, TIMEOUT)
    ours, theirs = index_of(place)[0], index_of(another_build)[0]
    for answer in answers:
        assert answer.error == "RanksDisagree", answer.trace
        stores, artefacts = reasons_of(answer.text)
        assert stores == f"the stores differ: ranks 0, 1, 2 have {ours}, rank 3 has {theirs}"
        assert artefacts.startswith("artefacts differ, 1 launch: deepseek_v41/k2 gfx942 tokens=1")
    assert ranks.results("close") == [{}] * 4


@processes
def test_a_process_that_fails_outside_of_loading_does_not_leave_the_others_waiting(
    ranks: Ranks, place: Path
) -> None:
    ranks.results("open", place, "strict")
    answers = ranks.run("preload", KEYS, TIMEOUT, PerRank(False, {1: True}))
    errors = ["RanksDisagree", "OSError", "RanksDisagree", "RanksDisagree"]
    assert [a.error for a in answers] == errors
    assert reasons_of(answers[0].text) == ["rank 1: OSError: the terminal is gone"]
    assert ranks.results("close") == [{}] * 4


@processes
def test_under_stock_processes_that_lack_the_same_launches_go_on(
    ranks: Ranks, damaged: Path
) -> None:
    ranks.results("open", damaged, "stock")
    wanted = [*KEYS, key("k1", 3)]
    assert ranks.results("preload", wanted, TIMEOUT) == [(3, 2, 4)] * 4
    assert ranks.results("close") == [{}] * 4


@processes
def test_under_stock_a_process_that_lacks_what_the_others_have_is_refused(
    ranks: Ranks, place: Path, damaged: Path
) -> None:
    ranks.results("open", PerRank(place, {0: damaged}), "stock")
    answers = ranks.run("preload", KEYS, TIMEOUT)
    for answer in answers:
        assert answer.error == "RanksDisagree", answer.trace
        (reason,) = reasons_of(answer.text)
        assert reason.startswith("not loaded on rank 0 but elsewhere, 3 launches: deepseek_v41/k1")
    assert ranks.results("close") == [{}] * 4


# ---- threads ----


@pytest.fixture
def four(hip: StandIn) -> StandIn:
    """The stand-in with four devices."""
    hip.reset(*[FakeDevice()] * 4)
    return hip


def together(
    stores: list[Path], keys: list[Any] = KEYS, policy: str = "strict", timeout: float = TIMEOUT
) -> list[Any]:
    """What a preload returns or raises on each of the ranks, which are threads."""

    def work(member: LocalGroup) -> Any:
        server = Server(member.rank, member, stores[member.rank], policy)
        with server.store:
            return server.preload(keys, timeout)

    return each_rank(len(stores), work)


def refusals(ended: list[Any]) -> list[str]:
    """The reasons, which are equal on all ranks."""
    assert [type(e) for e in ended] == [RanksDisagree] * len(ended)
    assert len({str(e) for e in ended}) == 1
    return reasons_of(str(ended[0]))


def test_threads_that_load_alike_go_on(four: StandIn, place: Path) -> None:
    assert together([place] * 4) == [(4, 4, 0)] * 4
    assert four.all_alive() == {}


def test_one_thread_with_a_damaged_store_refuses_for_all(
    four: StandIn, place: Path, damaged: Path
) -> None:
    reasons = refusals(together([place, place, damaged, place]))
    assert [r.partition(" gfx942")[0] for r in reasons] == [
        "rank 2: deepseek_v41/k1",
        "rank 2: deepseek_v41/k1",
        "rank 2: deepseek_v41/k3",
    ]
    assert four.all_alive() == {}


def test_a_launch_that_all_lack_is_refused_under_strict(four: StandIn, place: Path) -> None:
    (reason,) = refusals(together([place] * 4, [*KEYS, key("k1", 3)]))
    assert reason.startswith(
        "ranks 0, 1, 2, 3: deepseek_v41/k1 gfx942 fold=false tokens=3 tp=4: LaunchMissing: "
    )


@pytest.mark.parametrize("policy", ["stock", "jit"])
def test_a_launch_that_all_lack_is_agreed_on_under_another_policy(
    four: StandIn, place: Path, policy: str
) -> None:
    ended = together([place] * 4, [*KEYS, key("k1", 3)], policy)
    assert ended == [(4, 4, 1)] * 4


def test_what_no_policy_excuses_is_refused_also_when_it_is_everywhere(
    four: StandIn, place: Path
) -> None:
    four.fail("hipModuleGetFunction", 500)
    reasons = refusals(together([place] * 2, KEYS[:1], "stock"))
    assert [r.partition(": hipModule")[0] for r in reasons] == [
        f"rank {rank}: {KEYS[0]}: DriverError" for rank in (0, 1)
    ]


def test_ranks_on_unequal_devices_are_refused(hip: StandIn, place: Path) -> None:
    hip.reset(FakeDevice(), FakeDevice("gfx942:sramecc+:xnack+", 228))
    assert refusals(together([place] * 2)) == [
        "the devices differ: rank 0 has gfx942:sramecc+:xnack-, rank 1 has gfx942:sramecc+:xnack+",
        "the numbers of compute units differ: rank 0 has 304, rank 1 has 228",
    ]


def test_a_grid_that_does_not_fit_on_one_rank_is_refused(hip: StandIn, place: Path) -> None:
    hip.reset(FakeDevice(), FakeDevice(compute_units=60))
    reasons = refusals(together([place] * 2, [key("k1", 1)]))
    assert "rank 1: deepseek_v41/k1 gfx942 fold=false tokens=1 tp=4: NotResident: " in reasons[0]


def test_a_rank_that_never_preloads_is_lost_to_the_others(four: StandIn, place: Path) -> None:
    def work(member: LocalGroup) -> Any:
        if member.rank == 1:
            return None
        server = Server(member.rank, member, place)
        with server.store:
            return server.preload(KEYS, 0.2)

    ended = each_rank(2, work)
    assert isinstance(ended[0], RankLost)
    assert "rank 1" in ended[0].what
    assert four.all_alive() == {}


def test_ranks_agree_again_after_more_was_loaded(four: StandIn, place: Path) -> None:
    def work(member: LocalGroup) -> Any:
        server = Server(member.rank, member, place)
        with server.store:
            server.preload(KEYS[:2], TIMEOUT)
            if member.rank == 0:
                server.loader.load(KEYS[2])
            server.loader.agree(member, timeout=TIMEOUT)

    (reason,) = refusals(each_rank(2, work))
    assert reason == f"not loaded on rank 1 but elsewhere, 1 launch: {KEYS[2]}"


def test_what_is_no_group_is_refused_before_anything_is_loaded(hip: StandIn, place: Path) -> None:
    with pytest.raises(InvalidValue, match="not a group of ranks"):
        Server(0, object(), place).preload(KEYS, TIMEOUT)
    assert hip.calls("hipModuleLoadData") == 0
