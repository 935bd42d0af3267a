"""What the watch over launches reads is what vLLM's real kernels leave, under an ISA model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from command import environment, run

import mono_runtime
from mono_build.emulator.cases.case import Address, Case, Step
from mono_build.emulator.cases.memory import CaseMemory
from mono_build.emulator.cases.run import CaseRunner
from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule
from mono_build.emulator.execute import maker_for
from mono_runtime.errors import DriverError
from mono_runtime.hooks.deepseek_v41.health import Area, Health, Watched
from mono_runtime.hooks.deepseek_v41.waiting import (
    Arrived,
    Progress,
    arrival_bytes,
    arrived,
    progress_of,
    width_of,
)
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROWS, TP = 2, 2
# A row of a rank's partial sum is 2560 pairs of two bfloat16.
WANTED = ROWS * 2560
MANIFEST = f"""\
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: {TP}
    rows: [{ROWS}]
    variants:
      - {{launch: ffn, ratio: 0, fold: true, index: false}}
"""


@pytest.fixture(scope="module")
def store(
    tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> tuple[Path, LaunchKey]:
    """A store of the FFN launch, and its key."""
    directory = tmp_path_factory.mktemp("waiting")
    manifest, path = directory / "m.yaml", directory / "store"
    manifest.write_text(MANIFEST)
    arguments = ["build", "--store", str(path), "--manifest", str(manifest), *kernels]
    result = run(arguments, environment(directory, MONO_CACHE=cache), timeout=900)
    assert result.code == 0, result.err
    (entry,) = StoreReader.open(path).index.entries
    return path, entry.key


class Ranks:
    """Two emulated ranks; what of each is watched, and how to read it."""

    def __init__(self, driver: EmulatedDriver, memory: CaseMemory, case: Case) -> None:
        self.driver = driver
        self._memory = memory
        self._sizes = {name: buffer.size for name, buffer in case.buffers[0].items()}

    def area(self, rank: int, name: str) -> Area:
        return Area(self._memory.address(rank, Address(name)), self._sizes[name])

    def watched(self, rank: int) -> Watched:
        scratch = self.area(rank, "scratch")
        return Watched(
            self.area(rank, "epoch"), ((7, scratch), (ROWS, scratch)), self.area(rank, "peer")
        )

    def read(self, rank: int, area: Area) -> bytes:
        return self.driver.read(rank, area.address, area.size)

    def progress(self, rank: int) -> Progress:
        return progress_of(self.read(rank, Area(self.area(rank, "epoch").address, 1040)))

    def arrived(self, rank: int) -> tuple[Arrived, ...]:
        first = Area(self.area(rank, "peer").address, arrival_bytes(TP, ROWS))
        return arrived(self.read(rank, first), TP, ROWS, 0)


@contextmanager
def launched(
    store: tuple[Path, LaunchKey], of: Callable[[int], bool]
) -> Iterator[tuple[Ranks, CaseRunner, CaseMemory]]:
    """The launch's case on two ranks, of which only those that ``of`` names launch."""
    path, key = store
    case = maker_for(key.family, key.launch)(key, 1)
    (step,) = case.steps
    calls = tuple(call for call in step.calls if of(call.rank))
    only = replace(case, steps=(Step(calls, lambda _: []),))
    driver = EmulatedDriver((key.arch,) * TP, schedule=Schedule(), wait=0.0)
    try:
        with mono_runtime.open(path, driver=driver, policy="strict") as opened:
            runner, memory = CaseRunner(only, opened), CaseMemory(driver, case)
            try:
                yield Ranks(driver, memory, case), runner, memory
            finally:
                memory.close()
                runner.close()
    finally:
        driver.close()


@pytest.fixture(autouse=True)
def _kept_translations(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONO_CACHE", cache)


def test_launches_that_ended_leave_what_is_taken_for_idle(store: tuple[Path, LaunchKey]) -> None:
    with launched(store, lambda _: True) as (ranks, runner, memory):
        assert ranks.progress(0) == Progress(0, False)
        runner.run(memory)
        for rank in range(TP):
            assert ranks.progress(rank) == Progress(1, False)
            scratch = ranks.read(rank, ranks.area(rank, "scratch"))
            assert width_of([(7, bytes(4096)), (ROWS, scratch)], 0) == ROWS
            assert ranks.arrived(rank) == tuple(
                Arrived(r, WANTED, WANTED, WANTED) for r in range(TP)
            )


def test_a_rank_that_is_left_alone_says_for_whom_it_waits(
    store: tuple[Path, LaunchKey], caplog: pytest.LogCaptureFixture
) -> None:
    with launched(store, lambda rank: rank == 1) as (ranks, runner, memory):
        with pytest.raises(DriverError, match="nobody moves"):
            runner.run(memory)
        assert ranks.progress(1) == Progress(0, True)
        assert ranks.arrived(1) == (Arrived(0, 0, 0, WANTED), Arrived(1, WANTED, 0, WANTED))
        now = [0.0]
        health = Health(ranks.driver, 1, 1, TP, seconds=10.0, clock=lambda: now[0])
        health.watch("model", lambda: ranks.watched(1))
        for now[0] in (0.0, 11.0):
            health.look()
        health.close()
        assert health.counts().failures == 0
    (text,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert text.startswith("rank 1: a launch of a step of 2 rows (model, epoch 0) has not ended")
    assert "All 256 workgroups have begun." in text
    assert "0 of 5120 from rank 0\n" in text
