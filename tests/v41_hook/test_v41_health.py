"""Launches that wait too long are reported, beside steps that know nothing of it."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import standin_hip
from standin_hip import FakeDevice, StandIn

from mono_runtime.errors import DriverError, InvalidValue
from mono_runtime.hip.driver import open_hip
from mono_runtime.hooks.deepseek_v41.health import Area, Health, HealthCounts, Watched
from mono_runtime.hooks.deepseek_v41.wait_limit import wait_seconds

EPOCH, SCRATCH_6, SCRATCH_12, PEER = 0x1000, 0x100000, 0x200000, 0x1000000
# Peer memory of TP 2: two halves of two sums, of 48 rows of 2560 pairs from each of two ranks.
HALF = 2 * 2 * 48 * 2560 * 8
ROW = 2560 * 8


class Memory:
    """The part of a driver that reads, over memory that a test writes."""

    def __init__(self) -> None:
        self.areas = {
            EPOCH: bytearray(1040),
            SCRATCH_6: bytearray(80_000),
            SCRATCH_12: bytearray(160_000),
            PEER: bytearray(2 * HALF),
        }
        self.streams: list[int] = []
        self.reads: list[int] = []
        self.failing = False

    def create_stream(self, device: int) -> int:
        self.streams.append(70 + device)
        return 70 + device

    def destroy_stream(self, device: int, stream: int) -> None:
        self.streams.remove(stream)

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        assert device == 3
        assert stream in self.streams  # never the default one, behind which launches spin
        if self.failing:
            raise DriverError("the device is lost")
        self.reads.append(address)
        start = max(a for a in self.areas if a <= address)
        data = self.areas[start][address - start : address - start + size]
        assert len(data) == size
        return bytes(data)

    def epoch(self, epoch: int, *, begun: int = 0) -> None:
        """Let ``begun`` of the workgroups have begun the launch of this epoch."""
        marks = [epoch + 1] * begun + [epoch] * (256 - begun)
        self.areas[EPOCH][:] = struct.pack("<260I", epoch, 0, 0, 0, *marks)

    def pairs(self, address: int, count: int, tag: int) -> None:
        start = max(a for a in self.areas if a <= address)
        at = address - start
        self.areas[start][at : at + 8 * count] = struct.pack("<2I", 7, tag) * count


WATCHED = Watched(
    Area(EPOCH, 4000),
    ((6, Area(SCRATCH_6, 80_000)), (12, Area(SCRATCH_12, 160_000))),
    Area(PEER, 2 * HALF),
)


class Case:
    """Rank 1 of TP 2 with a clock that a test sets; the thread is not waited for."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.now = 0.0
        self.watched: Watched | None = WATCHED
        # The thread would first look after more seconds than a test takes.
        self.told: list[str] = []
        self.health = Health(
            memory,  # type: ignore[arg-type]
            3,
            1,
            2,
            seconds=10.0,
            tell=self.told.append,
            clock=lambda: self.now,
        )
        self.health.watch("model", lambda: self.watched)

    def look(self, now: float) -> None:
        self.now = now
        self.health.look()


@pytest.fixture
def case() -> Iterator[Case]:
    made = Case(Memory())
    yield made
    made.health.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_launch_that_waits_for_a_rank_is_reported_once(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.memory.epoch(6, begun=256)
    case.memory.pairs(SCRATCH_12, 3000, 2 * 6 + 1)
    # Epoch 6 uses the first half. This rank pushed 12 rows, rank 0 nothing.
    case.memory.pairs(PEER + 12 * ROW, 12 * 2560, 2 * 6 + 2)
    for now in (0.0, 5.0, 11.0, 30.0):
        case.look(now)
    (text,) = said(caplog)
    assert text.startswith(
        "rank 1: a launch of a step of 12 rows (model, epoch 6) has not ended for 11.0 s. "
    )
    assert "the attention sum: 0 of 30720 from rank 0\n" in text
    assert case.health.counts() == HealthCounts(incidents=1, longest=11.0)
    assert case.told == ["reported"]


def test_odd_epochs_use_the_other_half_of_peer_memory(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.memory.epoch(7, begun=256)
    case.memory.pairs(SCRATCH_6, 3000, 2 * 7 + 2)
    for part in (0, 1, 3):  # the attention's from both, the experts' from this rank alone
        case.memory.pairs(PEER + HALF + part * 6 * ROW, 6 * 2560, 2 * 7 + 2)
    case.look(0.0)
    case.look(10.0)
    (text,) = said(caplog)
    assert "a step of 6 rows" in text
    assert "the experts sum: 0 of 15360 from rank 0\n" in text


def test_workgroups_that_have_not_begun_are_named(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.memory.epoch(6, begun=250)
    case.look(0.0)
    case.look(10.0)
    (text,) = said(caplog)
    assert "250 of 256 workgroups have begun; not: 250-255" in text


def test_an_ffn_launch_that_left_nothing_in_scratch_has_the_width_that_this_rank_pushed(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.memory.epoch(6, begun=256)
    case.look(0.0)
    case.look(10.0)
    case.memory.epoch(8, begun=256)
    case.memory.pairs(PEER + 6 * ROW, 6 * 2560, 2 * 8 + 2)
    case.look(20.0)
    case.look(30.0)
    first, _, second = said(caplog)
    assert first.startswith("rank 1: a launch of a step (model, epoch 6)")
    assert second.startswith("rank 1: a launch of a step of 6 rows (model, epoch 8)")
    assert "0 of 15360 from rank 0" in second


def test_recovery_is_reported(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.memory.epoch(6, begun=256)
    case.look(0.0)
    case.look(12.0)
    case.memory.epoch(7)
    case.look(15.0)
    assert said(caplog)[1:] == [
        "rank 1: the launch of epoch 6 (model) has ended, after up to 15.0 s"
    ]
    assert case.health.counts() == HealthCounts(incidents=1, recovered=1, longest=15.0)
    assert case.told == ["reported", "ended"]


def test_an_idle_server_says_nothing(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.memory.epoch(6)
    for now in (0.0, 100.0, 1000.0):
        case.look(now)
    assert said(caplog) == []
    # Scratch is read for a report and not before.
    assert set(case.memory.reads) == {EPOCH}


def test_replays_of_a_graph_are_watched_without_a_call_from_them(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(20):
        case.memory.epoch(40 * step, begun=256)
        case.look(4.0 * step)
    assert said(caplog) == []
    case.look(76.0 + 10)
    assert "epoch 760" in said(caplog)[0]


def test_two_runners_are_watched_apart(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    draft = Memory()
    draft.epoch(90, begun=256)
    case.memory.areas[0x5000] = draft.areas[EPOCH]
    case.health.watch("draft", lambda: Watched(Area(0x5000, 4000)))
    case.memory.epoch(6)
    case.look(0.0)
    case.look(10.0)
    (text,) = said(caplog)
    assert "(draft, epoch 90)" in text
    assert "What it waits for is not known" in text


def test_before_the_first_launch_there_is_nothing_to_read(case: Case) -> None:
    case.watched = None
    case.look(0.0)
    assert case.memory.reads == []
    assert case.health.counts() == HealthCounts()


def test_a_failing_look_raises_nothing(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.memory.failing = True
    case.look(0.0)
    case.health.watch("broken", lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    case.look(1.0)
    assert case.health.counts().failures == 3
    assert said(caplog) == []


def test_a_report_whose_details_cannot_be_read_is_made_without(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.memory.epoch(6, begun=256)
    read = case.memory.read

    def reading(device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        case.memory.failing = address != EPOCH
        return read(device, address, size, stream=stream)

    case.memory.read = reading  # type: ignore[method-assign]
    case.look(0.0)
    case.look(10.0)
    assert said(caplog)[0].startswith("rank 1: a launch of a step (model, epoch 6)")


# ---- the thread ----


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("mono-health")]


def test_the_thread_looks_and_ends_with_close(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    memory.epoch(6, begun=256)
    health = Health(memory, 3, 1, 2, seconds=0.02)  # type: ignore[arg-type]
    assert threads() == []
    health.watch("model", lambda: WATCHED)
    (thread,) = threads()
    assert thread.daemon
    assert until(lambda: health.counts().incidents == 1)
    health.close()
    health.close()
    assert not thread.is_alive()
    assert memory.streams == []
    health.watch("model", lambda: WATCHED)
    assert threads() == []


def test_a_device_that_does_not_answer_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    memory.failing = True
    health = Health(memory, 3, 1, 2, seconds=0.02)  # type: ignore[arg-type]
    health.watch("model", lambda: WATCHED)
    assert until(lambda: not threads())
    health.close()
    assert said(caplog) == [
        "rank 1: the device did not answer 3 times, so launches are not watched any more"
    ]


def test_zero_seconds_watch_nothing() -> None:
    memory = Memory()
    health = Health(memory, 3, 1, 2, seconds=0.0)  # type: ignore[arg-type]
    health.watch("model", lambda: WATCHED)
    assert threads() == []
    assert memory.streams == []
    health.close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 10.0), ("30", 30.0), (" 0.5 ", 0.5), ("0", 0.0)]
)
def test_the_environment_gives_the_seconds(text: str, seconds: float) -> None:
    assert wait_seconds({"MONO_WAIT_SECONDS": text}) == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "90000"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=f"MONO_WAIT_SECONDS is '{text}'") as caught:
        wait_seconds({"MONO_WAIT_SECONDS": text})
    assert caught.value.fix == "give seconds, such as 10; 0 turns the reports off"


# ---- over HIP ----


@pytest.fixture
def hip() -> Iterator[StandIn]:
    standin = standin_hip.load()
    standin.reset(FakeDevice(), FakeDevice())
    yield standin
    standin.reset()


def test_a_launch_that_spins_is_seen_while_its_stream_and_a_capture_go_on(
    hip: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    driver = open_hip()
    spinning, captured = driver.create_stream(1), driver.create_stream(1)
    words = driver.allocate(1, 4096)
    driver.write(1, words, struct.pack("<260I", 6, 0, 0, 0, *[7] * 256))
    health = Health(driver, 1, 1, 2, seconds=0.02)
    hip.hold_stream(spinning)
    with_default = driver.current_device()
    hip.begin_capture(captured)
    try:
        health.watch("model", lambda: Watched(Area(words, 4096)))
        seen = until(lambda: health.counts().incidents == 1)
        graph = hip.end_capture(captured)
        hip.release_stream(spinning)
        driver.write(1, words, struct.pack("<260I", 7, 0, 0, 0, *[7] * 256))
        ended = until(lambda: health.counts().recovered == 1)
    finally:
        hip.release_stream(spinning)
        health.close()
    assert seen
    assert ended
    assert graph  # the capture was not spoilt
    assert driver.current_device() == with_default
    assert health.counts().failures == 0
    hip.destroy_graph(graph)
    for stream in (spinning, captured):
        driver.destroy_stream(1, stream)
    driver.free(1, words)
    assert hip.all_alive() == {}
