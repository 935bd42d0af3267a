"""The runners of a process's device: what they are made of, and what is watched of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import FakeEngine

from mono_runtime.counters import Counters
from mono_runtime.hooks.deepseek_v41 import install
from mono_runtime.hooks.deepseek_v41.buffers import RunnerBuffers
from mono_runtime.hooks.deepseek_v41.health import Area, Watched
from mono_runtime.hooks.deepseek_v41.runner import Kind, Place
from mono_runtime.hooks.deepseek_v41.watching import watched


class HostTensors:
    """Tensors in host memory, and a stream that records nothing."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    empty = zeros

    def addresses(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(values))

    def capturing(self) -> bool:
        return False

    def stream(self) -> int:
        return 0


class Peer:
    """Peer memory in whole pages."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // 4096) * 4096
        self.local = 0x7000
        self.addresses = (0x7000, 0x9000)

    def close(self) -> None:
        pass


def test_what_is_watched_grows_with_what_launches_were_given() -> None:
    buffers = RunnerBuffers(HostTensors(), 4, "a test")
    assert watched(buffers) is None
    given = buffers.provide(6, {"scratch": 96, "epoch": 1040}, Peer)
    epoch, scratch = given["epoch"], given["scratch"]
    assert isinstance(epoch, torch.Tensor)
    assert isinstance(scratch, torch.Tensor)
    before = watched(buffers)
    assert before == Watched(
        Area(epoch.data_ptr(), 1040), ((6, Area(scratch.data_ptr(), 96)),), None
    )
    buffers.provide(12, {"scratch": 160, "epoch": 1040, "sym": 5000}, Peer)
    after = watched(buffers)
    assert after is not None
    assert [(rows, area.size) for rows, area in after.scratch] == [(6, 96), (12, 160)]
    # What was stated, not the pages that were made of it: its halves are the launches'.
    assert after.peer == Area(0x7000, 5000)
    buffers.close()
    closed = watched(buffers)
    assert closed is not None
    assert closed.peer is None


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The watches that were made, each with what it was made with and was told to watch."""
    made: list[Any] = []

    class Watching:
        def __init__(self, *given: Any, tell: Any) -> None:
            self.given, self.tell = given, tell
            self.areas: dict[str, Callable[[], Any]] = {}
            self.closed = False
            made.append(self)

        def watch(self, name: str, areas: Callable[[], Any]) -> None:
            self.areas[name] = areas

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(install, "Health", Watching)
    monkeypatch.setattr("mono_runtime.hooks.deepseek_v41.tensors.TorchTensors", HostTensors)
    return made


def test_runners_are_of_this_rank_and_watched_together(
    health: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def allocate(*given: Any, timeout: float) -> Peer:
        asked.append((*given, timeout))
        return Peer(given[2])

    monkeypatch.setattr("mono_runtime.ranks.peer_memory.PeerMemory.allocate", allocate)
    prepared: Any = Object(
        store=Object(driver="the driver", counters=Counters()),
        loader=Object(device=Object(ordinal=2)),
        group="the ranks",
    )
    maker, engine = install.DeviceRunners(), FakeEngine(rank=3, device=2)
    runner = maker.make(prepared, engine, Kind())  # type: ignore[arg-type]
    draft = maker.make(prepared, engine, Kind(128, 3, 1, 192))  # type: ignore[arg-type]
    assert runner.place == draft.place == Place("gfx950", 4, 3)
    assert draft.kind == Kind(128, 3, 1, 192)
    (watch,) = health
    assert watch.given == ("the driver", 2, 3, 4)
    watch.tell("reported")
    assert prepared.store.counters.snapshot()["waits"] == {"reported": 1}
    assert [*watch.areas] == ["the model's layers", "the draft's layers"]
    assert install._peer_memory(prepared, 8000).size == 8192
    # As long as for a model's load: in its first step a rank may still compile something of the engine's.
    assert asked == [("the driver", 2, 8000, "the ranks", 300.0)]
    runner.buffers.provide(6, {"epoch": 1040}, Peer)
    assert watch.areas["the model's layers"]() is not None
    assert watch.areas["the draft's layers"]() is None
    maker.close()
    maker.close()
    assert watch.closed
