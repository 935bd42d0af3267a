"""Workgroups, waves, devices and threads that wait for each other; races, deadlocks and streams."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from asm_kit import Snippet, assemble

from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule
from mono_build.emulator.errors import Deadlock
from mono_runtime.errors import DeviceMissing, DriverError

# Every kernel has the arguments s[96:97], s[98:99] and s[94:95]; the frame of `Snippet` reads them.
# One lane adds 1 to a counter and polls until it is {wanted}.
_MEET = """v_mov_b32 v5, 0
  s_mov_b64 exec, 1
  v_mov_b32 v6, 1
  global_atomic_add v5, v6, s[94:95]
.Lpoll{wanted}:
  s_sleep 1
  global_load_dword v7, v5, s[94:95] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s20, v7
  s_cmp_lt_u32 s20, {wanted}
  s_cbranch_scc1 .Lpoll{wanted}"""
# Sets the peer's word (at s[96:97]) and waits for its own (at s[94:95]).
_EXCHANGE = """v_mov_b32 v5, 0
  v_mov_b32 v6, 1
  s_mov_b64 exec, 1
  global_store_dword v5, v6, s[96:97] sc0 sc1
.Lown:
  global_load_dword v7, v5, s[94:95] sc0 sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s20, v7
  s_cmp_eq_u32 s20, 0
  s_cbranch_scc1 .Lown"""
# Wave 0 writes LDS, wave 1 reads it and stores what it saw; {barrier} is what should be between.
_PASS_ON = """v_mov_b32 v5, 0
  v_mov_b32 v6, 7
  v_readfirstlane_b32 s20, v0
  s_mov_b64 exec, 1
  s_cmp_lg_u32 s20, 0
  s_cbranch_scc1 .Lreader{n}
  ds_write_b32 v5, v6
.Lreader{n}:
  s_waitcnt lgkmcnt(0)
  {barrier}
  s_cmp_eq_u32 s20, 0
  s_cbranch_scc1 .Ldone{n}
  ds_read_b32 v7, v5
  s_waitcnt lgkmcnt(0)
  global_store_dword v5, v7, s[94:95]
.Ldone{n}:"""
# Adds 1 to a word without an atomic.
_INCREMENT = """v_mov_b32 v5, 0
  s_mov_b64 exec, 1
  global_load_dword v7, v5, s[94:95]
  s_waitcnt vmcnt(0)
  v_add_u32 v7, 1, v7
  global_store_dword v5, v7, s[94:95]"""
# A barrier that one wave never reaches, because it waits for a word that nobody writes.
_HALF_BARRIER = """v_mov_b32 v5, 0
  v_readfirstlane_b32 s20, v0
  s_cmp_eq_u32 s20, 0
  s_cbranch_scc1 .Lwait
  s_barrier
.Lwait:
  global_load_dword v7, v5, s[94:95]
  s_waitcnt vmcnt(0)
  s_cbranch_scc1 .Lwait"""
_KERNELS = {
    "meet": Snippet(_MEET.format(wanted=256)),
    "meet_one_more": Snippet(_MEET.format(wanted=257)),
    "exchange": Snippet(_EXCHANGE),
    "pass_on": Snippet(_PASS_ON.format(n=0, barrier="s_barrier"), lds=4),
    "pass_on_without_barrier": Snippet(_PASS_ON.format(n=1, barrier="s_nop 0"), lds=4),
    "increment": Snippet(_INCREMENT),
    "half_barrier": Snippet(_HALF_BARRIER),
}
SEEDS = range(12)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return assemble(_KERNELS, "gfx950", tmp_path_factory.mktemp("code"))


class Bench:
    """A driver with the kernels on every device, and a page of memory for each."""

    def __init__(
        self, code: bytes, devices: int = 1, *, wait: float = 20.0, **schedule: object
    ) -> None:
        self.driver = EmulatedDriver(
            ("gfx950",) * devices,
            schedule=Schedule(**schedule),  # type: ignore[arg-type]
            wait=wait,
        )
        self.modules = [self.driver.load_module(d, code) for d in range(devices)]
        self.pages = [self.driver.allocate(d, 4096, uncached=True) for d in range(devices)]
        for device, page in enumerate(self.pages):
            self.driver.fill(device, page, 0, 4096)

    def launch(
        self,
        name: str,
        *,
        device: int = 0,
        groups: int = 1,
        items: int = 64,
        stream: int = 0,
        data: int = 0,
    ) -> None:
        """Queue a launch; ``data`` is its first argument."""
        spare = self.pages[device] + 2048
        words = (data or spare, spare, self.pages[device])
        kernargs = bytearray(b"".join(w.to_bytes(8, "little") for w in words))
        function = self.driver.function(self.modules[device], name)
        submit = self.driver.prepare(device, function, (groups, 1, 1), (items, 1, 1), 0, kernargs)
        submit(stream)

    def word(self, device: int = 0) -> int:
        """The page's first word, after the default stream."""
        return int.from_bytes(self.driver.read(device, self.pages[device], 4), "little")


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("quantum", [1, 100, 100_000])
def test_256_workgroups_meet(code: bytes, quantum: int, seed: int | None) -> None:
    bench = Bench(code, quantum=quantum, seed=seed)
    bench.launch("meet", groups=256)
    assert bench.word() == 256


def test_workgroups_that_wait_for_one_too_many_are_a_deadlock(code: bytes) -> None:
    bench = Bench(code, wait=0.0)
    bench.launch("meet_one_more", groups=256)
    with pytest.raises(Deadlock, match=r"(?s)nobody moves.*meet_one_more: 256 waves around"):
        bench.driver.synchronize(0)
    assert bench.word() == 256


def test_a_barrier_that_not_all_reach_is_a_deadlock(code: bytes) -> None:
    bench = Bench(code, wait=0.0)
    bench.launch("half_barrier", items=128)
    with pytest.raises(Deadlock, match="1 waves at a barrier") as raised:
        bench.driver.synchronize(0)
    assert "1 waves around" in str(raised.value)


def test_two_devices_exchange_words(code: bytes) -> None:
    bench = Bench(code, devices=2)
    bench.launch("exchange", device=0, data=bench.pages[1])
    bench.launch("exchange", device=1, data=bench.pages[0])
    assert (bench.word(0), bench.word(1)) == (1, 1)


def test_one_rank_alone_is_a_deadlock(code: bytes) -> None:
    bench = Bench(code, devices=2, wait=0.0)
    bench.launch("exchange", device=0, data=bench.pages[1])
    with pytest.raises(Deadlock, match="device 0, exchange"):
        bench.driver.synchronize(0)


def test_ranks_in_threads_find_each_other(code: bytes) -> None:
    bench = Bench(code, devices=2)
    failures: list[BaseException] = []
    first_waits = threading.Event()

    def rank(device: int) -> None:
        try:
            if device == 1:
                first_waits.wait(60)
            bench.launch("exchange", device=device, data=bench.pages[1 - device])
            first_waits.set()
            bench.driver.synchronize(device)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rank, args=(d,)) for d in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (bench.word(0), bench.word(1)) == (1, 1)


def seen(code: bytes, kernel: str, seeds: Sequence[int]) -> set[int]:
    """What wave 1 read, over schedules with a small quantum."""
    found = set()
    for seed in seeds:
        bench = Bench(code, quantum=4, seed=seed)
        bench.launch(kernel, items=128)
        found.add(bench.word())
    return found


def test_a_schedule_sweep_finds_a_missing_barrier(code: bytes) -> None:
    poison = 0xDEADBEEF
    assert seen(code, "pass_on_without_barrier", SEEDS) == {7, poison}
    assert seen(code, "pass_on", SEEDS) == {7}


def test_launches_of_one_stream_run_one_after_another(code: bytes) -> None:
    bench = Bench(code, quantum=1)
    for _ in range(20):
        bench.launch("increment")
    assert bench.word() == 20


def test_another_stream_does_not_wait(code: bytes) -> None:
    bench = Bench(code, devices=1)
    stream = bench.driver.create_stream(0)
    spare = bench.pages[0] + 1024
    # The first waits for what the second, on the other stream, writes.
    bench.launch("exchange", data=spare)
    bench.launch("exchange", data=bench.pages[0], stream=stream)
    bench.driver.synchronize(0)
    assert bench.word() == 1


def test_events_and_records(code: bytes) -> None:
    bench = Bench(code)
    before, after = bench.driver.create_event(0), bench.driver.create_event(0)
    bench.driver.record(0, before, 0)
    bench.launch("meet", groups=256)
    bench.driver.record(0, after, 0)
    assert bench.driver.is_done(0, before)
    while not bench.driver.is_done(0, after):
        pass
    assert bench.driver.elapsed(0, before, after) > 0
    (record,) = bench.driver.take_records()
    assert (record.symbol, record.device, record.grid) == ("meet", 0, (256, 1, 1))
    # Each workgroup ends once and adds once; it sleeps at least once.
    last = record.code.flow.segment_of(record.code.instructions.index(_last(record.code, "meet")))
    assert record.counts[last] == 256
    assert record.sleeps >= 256
    assert record.instructions == sum(
        n * (s.end - s.first) for n, s in zip(record.counts, record.code.flow.segments, strict=True)
    )


def _last(code: object, symbol: str) -> object:
    kernel = code.image.kernels[symbol]  # type: ignore[attr-defined]
    ends = [i for i in code.instructions if i.mnemonic == "s_endpgm"]  # type: ignore[attr-defined]
    return next(i for i in ends if i.address > kernel.entry)


def test_a_freed_allocation_is_wild(code: bytes) -> None:
    bench = Bench(code)
    bench.launch("increment")
    bench.driver.free(0, bench.pages[0])
    bench.launch("increment")
    with pytest.raises(DriverError, match="outside of every allocation"):
        bench.driver.synchronize(0)


def test_memory_is_checked_on_the_host_side_too(code: bytes) -> None:
    bench = Bench(code)
    with pytest.raises(DriverError, match="cannot read 8 bytes"):
        bench.driver.read(0, bench.pages[0] + 4092, 8)
    with pytest.raises(DriverError, match="no allocation begins"):
        bench.driver.free(0, bench.pages[0] + 16)
    with pytest.raises(DeviceMissing):
        bench.driver.allocate(1, 16)


def test_a_shape_that_no_device_takes_is_refused(code: bytes) -> None:
    bench = Bench(code)
    function = bench.driver.function(bench.modules[0], "meet")
    with pytest.raises(DriverError, match="1025 work-items"):
        bench.driver.prepare(0, function, (1, 1, 1), (1025, 1, 1), 0, bytearray(24))
    with pytest.raises(DriverError, match="takes 24 bytes of arguments"):
        bench.driver.prepare(0, function, (1, 1, 1), (64, 1, 1), 0, bytearray(8))
    with pytest.raises(DriverError, match="no kernel absent"):
        bench.driver.function(bench.modules[0], "absent")


def test_another_process_maps_uncached_memory(code: bytes) -> None:
    bench = Bench(code)
    bench.driver.write(0, bench.pages[0], b"\x05\x00\x00\x00")
    handle = bench.driver.export_memory(0, bench.pages[0])
    script = f"""
from mono_build.emulator.driver import EmulatedDriver
driver = EmulatedDriver(("gfx950",))
address = driver.import_memory(0, {handle!r})
assert driver.read(0, address, 4) == b"\\x05\\x00\\x00\\x00"
driver.write(0, address, b"\\x06\\x00\\x00\\x00")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
    assert bench.word() == 6
    own = bench.driver.import_memory(0, handle)
    assert own == bench.pages[0]
    bench.driver.release_memory(0, own)
    assert bench.word() == 6
