"""Peer memory of ranks that are threads, also of threads that pass for processes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from rank_driver import Machine, RankDriver
from rank_threads import each_rank

from mono_runtime.driver import Driver
from mono_runtime.errors import DriverError, InvalidValue, RankLost, RanksDisagree, Released
from mono_runtime.ranks import LocalGroup, PeerMemory, peer_memory
from mono_runtime.ranks.process_identity import ProcessIdentity, this_process

Identity = Callable[[int], ProcessIdentity]


def of_process(rank: int) -> ProcessIdentity:
    """Each rank a process of its own in one container."""
    return ProcessIdentity("boot", "host", 4026531836, 100 + rank, 5000 + rank)


@pytest.fixture
def as_processes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Identity], None]:
    """Give the rank of each thread an identity."""

    def give(identity: Identity) -> None:
        monkeypatch.setattr(peer_memory, "this_process", lambda: identity(_rank.number))

    return give


_rank = threading.local()


def ranks_of(
    machine: Machine,
    work: Callable[[PeerMemory, RankDriver], Any],
    *,
    size: int = 3,
    fail: dict[int, dict[str, int]] | None = None,
    sizes: dict[int, Any] | None = None,
    device: Callable[[int], int] = lambda rank: rank,
) -> list[Any]:
    """``work`` with each rank's memory, or what making it raised."""

    def run(member: LocalGroup) -> Any:
        _rank.number = member.rank
        driver = RankDriver(machine, member.rank, (fail or {}).get(member.rank))
        memory = PeerMemory.allocate(
            cast(Driver, driver),
            device(member.rank),
            (sizes or {}).get(member.rank, 5000),
            member,
            timeout=30.0,
        )
        return work(memory, driver)

    return each_rank(size, run)


def closed(memory: PeerMemory, driver: RankDriver) -> None:
    memory.close(30.0)


def share(memory: PeerMemory, driver: RankDriver) -> list[bytes]:
    """Write to the own buffer and read everybody's."""
    with memory:
        rank = memory.addresses.index(memory.local)
        driver.write(rank, memory.local, b"from %d" % rank)
        memory._group.exchange(b"", timeout=30.0)
        return [driver.read(rank, address, 6) for address in memory.addresses]


def test_every_rank_reads_what_every_rank_wrote(as_processes: Callable[[Identity], None]) -> None:
    as_processes(of_process)
    machine = Machine()
    assert ranks_of(machine, share) == [[b"from 0", b"from 1", b"from 2"]] * 3
    assert (machine.memory, machine.mappings) == ({}, {})


def test_ranks_of_one_process_use_addresses_and_peer_access() -> None:
    machine = Machine()
    assert ranks_of(machine, share) == [[b"from 0", b"from 1", b"from 2"]] * 3
    assert machine.memory == {}
    names = [name for _, name in machine.happened]
    assert "export_memory" not in names
    assert "import_memory" not in names
    assert sorted(n for n in names if n.startswith("enable")) == [
        f"enable_peer_access {a} {b}" for a in range(3) for b in range(3) if a != b
    ]


def test_ranks_on_one_device_need_no_peer_access() -> None:
    machine = Machine()
    ranks_of(machine, closed, device=lambda rank: 0)
    assert not any("enable" in name for _, name in machine.happened)


def test_memory_is_uncached_and_of_whole_pages_and_zero() -> None:
    def look(memory: PeerMemory, driver: RankDriver) -> tuple[Any, ...]:
        with memory:
            content = {driver.read(0, a, memory.size) for a in memory.addresses}
            return memory.size, driver.sizes, driver.uncached, content

    assert ranks_of(Machine(), look) == [(8192, [8192], [True], {bytes(8192)})] * 3


def test_zeroes_are_in_place_before_any_handle_leaves(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(of_process)
    machine = Machine()
    ranks_of(machine, closed)
    happened = machine.happened
    first_export = min(i for i, (_, name) in enumerate(happened) if name == "export_memory")
    for rank in range(3):
        own = [name for r, name in happened[:first_export] if r == rank]
        assert own == ["device", "allocate", "fill", "synchronize"]


def test_mappings_are_released_everywhere_before_any_buffer_is_freed(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(of_process)
    machine = Machine()
    ranks_of(machine, closed)
    tail = machine.happened[-12:]
    assert {name for _, name in tail[:9]} == {"synchronize", "release_memory"}
    assert [name for _, name in tail[9:]] == ["free"] * 3
    for rank in range(3):
        own = [name for r, name in tail if r == rank]
        assert own == ["synchronize", "release_memory", "release_memory", "free"]


@pytest.mark.parametrize(
    ("method", "after", "step"),
    [
        ("device", 0, "allocate"),
        ("allocate", 0, "allocate"),
        ("fill", 0, "allocate"),
        ("synchronize", 0, "allocate"),
        ("export_memory", 0, "export"),
        ("import_memory", 0, "import"),
        ("import_memory", 1, "import"),
        ("write", 0, "import"),
        ("read", 2, "confirm"),
        ("fill", 1, "clear"),
        ("synchronize", 1, "clear"),
    ],
)
def test_a_failure_of_one_rank_is_raised_on_all_and_leaves_nothing(
    as_processes: Callable[[Identity], None], method: str, after: int, step: str
) -> None:
    as_processes(of_process)
    machine = Machine()
    ended = ranks_of(machine, closed, fail={1: {method: after}})
    for error in ended:
        assert isinstance(error, RanksDisagree)
        assert error.what.splitlines()[0] == f"peer memory failed at {step}:"
        assert "rank 1: DriverError: " in error.what
        assert f"{method} was told to fail" in error.what
    assert isinstance(ended[1].__cause__, DriverError)
    assert (machine.memory, machine.mappings) == ({}, {})
    names = [name for _, name in machine.happened]
    if "release_memory" in names:
        last_release = len(names) - 1 - names[::-1].index("release_memory")
        assert last_release < names.index("free")


def test_failures_of_several_ranks_are_all_told(as_processes: Callable[[Identity], None]) -> None:
    as_processes(of_process)
    fail = {0: {"allocate": 0}, 2: {"fill": 0}}
    for error in ranks_of(Machine(), closed, fail=fail):
        assert "rank 0: DriverError: allocate was told to fail" in error.what
        assert "rank 2: DriverError: fill was told to fail" in error.what


def test_unequal_sizes_are_refused_on_all() -> None:
    machine = Machine()
    for error in ranks_of(machine, closed, sizes={2: 5001}):
        assert isinstance(error, RanksDisagree)
        assert "the sizes differ, in bytes: ranks 0, 1 have 5000, rank 2 has 5001" in error.what
    assert machine.memory == {}


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_size_that_is_none_on_one_rank_is_refused_on_all(size: Any) -> None:
    for error in ranks_of(Machine(), closed, sizes={0: size}):
        assert isinstance(error, RanksDisagree)
        assert f"rank 0: InvalidValue: peer memory of {size!r} bytes" in error.what


def test_a_rank_on_another_host_is_refused(as_processes: Callable[[Identity], None]) -> None:
    as_processes(lambda rank: ProcessIdentity(f"boot {rank // 2}", f"host{rank // 2}", 1, rank, 1))
    machine = Machine()
    for error in ranks_of(machine, closed):
        assert "the buffer of rank 2 is on another host: device 2" in error.what
        assert "process 2 on host1" in error.what
        assert "reaches the GPUs of one host" in error.what
    assert (machine.memory, machine.mappings) == ({}, {})


def test_equal_process_ids_of_two_containers_are_refused(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(lambda rank: ProcessIdentity("boot", f"container{rank}", rank, 1, 7))
    for error in ranks_of(Machine(), closed):
        assert "same process id 1 in another PID namespace" in error.what
        assert "--pid=host" in error.what


def test_a_handle_that_cannot_be_mapped_in_another_container_says_what_to_share(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(lambda rank: ProcessIdentity("boot", f"container{rank}", rank, rank, 7))
    for error in ranks_of(Machine(), closed, fail={0: {"import_memory": 0}}):
        assert "the buffer of rank 1 cannot be mapped" in error.what
        assert "--pid=host, --ipc=host" in error.what


def test_a_mapping_that_leads_elsewhere_is_found(as_processes: Callable[[Identity], None]) -> None:
    as_processes(of_process)
    machine = Machine()

    class Astray(RankDriver):
        def import_memory(self, device: int, handle: bytes) -> int:
            return super().import_memory(device, min(self.machine.memory).to_bytes(64, "little"))

    def run(member: LocalGroup) -> None:
        _rank.number = member.rank
        driver = cast(Driver, Astray(machine, member.rank))
        PeerMemory.allocate(driver, 0, 4096, member, timeout=30.0)

    for error in each_rank(3, run):
        assert isinstance(error, RanksDisagree)
        assert error.what.splitlines()[0] == "peer memory failed at confirm:"
        assert "buffer does not lead there" in error.what
    assert (machine.memory, machine.mappings) == ({}, {})


def test_a_rank_that_is_lost_while_memory_is_made_leaves_nothing_on_the_others(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(of_process)
    machine = Machine()

    def run(member: LocalGroup) -> None:
        _rank.number = member.rank
        driver = RankDriver(machine, member.rank)
        if member.rank == 1:

            def die() -> None:
                member.abandon("killed")
                raise SystemExit

            driver.before["write"] = die
        PeerMemory.allocate(cast(Driver, driver), 0, 4096, member, timeout=30.0)

    ended: dict[int, Any] = {}

    def guarded(member: LocalGroup) -> Any:
        try:
            run(member)
        except SystemExit:
            ended[member.rank] = "exit"

    results = each_rank(3, guarded)
    assert ended == {1: "exit"}
    for rank in (0, 2):
        assert isinstance(results[rank], RankLost)
        assert "rank 1 (killed)" in results[rank].what
    assert (machine.memory, machine.mappings) == ({}, {})


def test_a_rank_that_is_lost_before_closing_does_not_keep_the_others_memory(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(of_process)
    machine = Machine()

    def work(memory: PeerMemory, driver: RankDriver) -> int:
        if driver.rank == 2:
            cast(LocalGroup, memory._group).abandon("killed")
            memory._closed = True
            return memory._local
        with pytest.raises(RankLost, match=r"rank 2 \(killed\)"):
            memory.close(30.0)
        own = [name for rank, name in machine.happened if rank == driver.rank]
        assert own[-4:] == ["synchronize", "release_memory", "release_memory", "free"]
        memory.close(30.0)
        return 0

    ended = ranks_of(machine, work)
    assert list(machine.memory) == [ended[2]]
    assert len(machine.mappings) == 2


def test_a_mapping_that_cannot_be_released_is_told_on_all_and_the_rest_is_released(
    as_processes: Callable[[Identity], None],
) -> None:
    as_processes(of_process)
    machine = Machine()
    for error in ranks_of(machine, closed, fail={0: {"release_memory": 0}}):
        assert isinstance(error, RanksDisagree)
        assert "rank 0: DriverError: release_memory was told to fail" in error.what
    assert machine.memory == {}
    assert len(machine.mappings) == 2


def test_a_buffer_that_cannot_be_freed_is_told_where_it_is() -> None:
    machine = Machine()
    ended = ranks_of(machine, closed, fail={0: {"free": 0}})
    assert isinstance(ended[0], DriverError)
    assert ended[1:] == [None, None]


def test_what_cannot_be_undone_after_a_failure_is_logged(
    as_processes: Callable[[Identity], None], caplog: pytest.LogCaptureFixture
) -> None:
    as_processes(of_process)
    with caplog.at_level(logging.WARNING):
        ended = ranks_of(Machine(), closed, fail={1: {"read": 0, "free": 0}})
    assert all(isinstance(e, RanksDisagree) for e in ended)
    assert [r.getMessage() for r in caplog.records] == [
        "while peer memory was released: DriverError: free was told to fail"
    ]


def test_closed_memory_tells_no_addresses_and_closes_once() -> None:
    def work(memory: PeerMemory, driver: RankDriver) -> None:
        memory.close(30.0)
        memory.close(30.0)
        with pytest.raises(Released):
            _ = memory.addresses
        with pytest.raises(Released):
            _ = memory.local

    machine = Machine()
    assert ranks_of(machine, work) == [None] * 3
    assert [name for _, name in machine.happened].count("free") == 3


def test_one_rank_needs_no_group() -> None:
    machine = Machine()
    driver = RankDriver(machine, 0)
    with PeerMemory.allocate(cast(Driver, driver), 0, 1, None) as memory:
        assert memory.addresses == (memory.local,)
        assert memory.size == 4096
    assert machine.memory == {}


def test_memory_that_was_never_closed_is_warned_of() -> None:
    driver = RankDriver(Machine(), 0)
    memory = PeerMemory.allocate(cast(Driver, driver), 0, 1, None)
    with pytest.warns(ResourceWarning, match="4096 bytes was not closed"):
        del memory


def test_a_process_is_itself_and_no_later_one_of_the_same_number() -> None:
    here = this_process()
    assert here.is_process(this_process())
    assert ProcessIdentity.from_json(here.to_json()) == here
    later = ProcessIdentity(here.boot, here.host, here.pid_namespace, here.pid, here.start + 1)
    assert not here.is_process(later)


def test_a_process_that_proc_does_not_tell_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: object, *arguments: Any, **named: Any) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(self))

    monkeypatch.setattr("pathlib.Path.read_text", gone)
    with pytest.raises(InvalidValue, match="which process this is"):
        this_process()
