"""Launches that a runner cannot call, widths it first meets in a capture, and what it owns on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from v41_runner_kit import (
    ARGUMENTS,
    EPOCH_BYTES,
    PEER_BYTES,
    STREAM,
    Bench,
    HostTensors,
    Peer,
    Source,
    given,
    workspace,
)

from mono_runtime.errors import ArgumentMismatch, CaptureActive, LaunchMissing, Released
from mono_runtime.hooks.deepseek_v41.buffers import RunnerBuffers
from mono_runtime.hooks.deepseek_v41.tensors import TorchTensors


def changed(launch: str, old: str, new: str) -> Source:
    """Launches of which one has other arguments."""
    text = f" {ARGUMENTS[launch]} "
    assert f" {old} " in text
    return Source(texts={launch: text.replace(f" {old} ", f" {new} ").strip()})


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        (
            changed("k1", "topk", "topk seed"),
            ["the launch takes 'seed', which this release has no value for"],
        ),
        (changed("k2", "zrec", ""), ["the launch does not take 'zrec'"]),
        (
            changed("k2", "comp", "far"),
            ["the launch takes 'far', which", "the launch does not take 'comp'"],
        ),
        (changed("k1", "kt", "kt!"), ["'kt' is an address and the launch takes it as i32"]),
        (
            changed("keylist", "ratio!", "ratios"),
            ["the launch takes 'ratios', which", "the launch does not take 'ratio'"],
        ),
    ],
)
def test_a_launch_with_other_arguments_is_refused_when_it_is_met(
    source: Source, problems: list[str]
) -> None:
    bench = Bench("gfx942", source)
    with pytest.raises(ArgumentMismatch, match="arguments are not those") as refused:
        bench.forward(given(), select=lambda normed, qr: None)
    assert all(f"\n    {problem}" in str(refused.value) for problem in problems)
    assert refused.value.where is not None
    # Not even K1 ran, whose arguments may be right: the other ranks would wait for K2.
    assert bench.calls() == []


def test_an_ffn_with_other_arguments_is_refused_when_it_is_met() -> None:
    bench = Bench(source=changed("ffn", "rank!", "rank! world!"))
    with pytest.raises(ArgumentMismatch, match="takes 'world'"):
        bench.ffn(given(whole=False))
    assert bench.calls() == []


def test_memory_that_a_launch_does_not_state_is_not_guessed() -> None:
    stated = {name: size for name, size in workspace("k2", 3).items() if name != "scratch"}
    bench = Bench(source=Source(workspaces={"k2": stated}))
    with pytest.raises(ArgumentMismatch, match="takes 'scratch', which this release has no value"):
        bench.forward(given())


def test_memory_that_nothing_is_known_of_is_refused() -> None:
    bench = Bench(source=Source(workspaces={"k1": {**workspace("k1", 3), "kt": 64}}))
    with pytest.raises(ArgumentMismatch, match="states 64 bytes behind 'kt'"):
        bench.forward(given())


@pytest.mark.parametrize("missing", ["k1", "keylist", "k2"])
def test_a_width_that_is_not_prepared_launches_nothing(missing: str) -> None:
    bench = Bench("gfx942", Source(instead={missing: None}))
    with pytest.raises(LaunchMissing, match=f"no launch {missing} is prepared for steps of 3 rows"):
        bench.forward(given(), select=lambda normed, qr: None)
    assert bench.calls() == []
    assert bench.peers == []


def test_a_launcher_without_a_plan_is_refused() -> None:
    bench = Bench(source=Source(instead={"ffn": lambda *arguments: None}))
    with pytest.raises(ArgumentMismatch, match="prepared as ffn has no launch plan: function"):
        bench.ffn(given(whole=False))


def test_a_width_has_scratch_of_its_own_and_all_share_epochs_and_peer_memory() -> None:
    bench = Bench("gfx942")
    for rows in (3, 6, 3):
        bench.forward(given(rows), select=lambda normed, qr: None)
        bench.ffn(given(rows))
    scratch = [c.arguments["scratch"] for c in bench.calls() if "scratch" in c.arguments]
    three, six = scratch[0], scratch[3]
    assert three != six
    assert scratch == [three] * 3 + [six] * 3 + [three] * 3
    buffers = bench.runner.buffers
    assert {k: t.numel() for k, t in buffers.scratch.items()} == {(3, 3000): 3000, (6, 6000): 6000}
    assert all(not t.any() for t in buffers.scratch.values())
    assert {c.arguments["epoch"] for c in bench.calls() if c.name != "keylist"} == {
        buffers.epoch.data_ptr()  # type: ignore[union-attr]
    }
    assert [p.size for p in bench.peers] == [PEER_BYTES]
    table = {c.arguments["peers"] for c in bench.calls() if "peers" in c.arguments}
    assert len(table) == 1


def test_the_peers_table_holds_every_ranks_address() -> None:
    buffers = RunnerBuffers(HostTensors(), 2, "a test")
    found = buffers.provide(3, {"sym": PEER_BYTES}, Peer)
    assert isinstance(found["peers"], torch.Tensor)
    assert found["peers"].tolist() == [0x7000, 0x9000]
    assert found["peers"].dtype == torch.int64
    assert found["sym"] == 0x7000


def test_launches_of_another_layout_have_scratch_of_their_own() -> None:
    buffers = RunnerBuffers(HostTensors(), 2, "a test")
    one = buffers.provide(3, {"scratch": 100}, Peer)["scratch"]
    assert buffers.provide(3, {"scratch": 120}, Peer)["scratch"] is not one
    assert buffers.provide(3, {"scratch": 100}, Peer)["scratch"] is one


@pytest.mark.parametrize(("name", "size"), [("epoch", EPOCH_BYTES), ("sym", PEER_BYTES)])
def test_more_shared_memory_than_was_made_is_refused(name: str, size: int) -> None:
    buffers = RunnerBuffers(HostTensors(), 2, "a test")
    buffers.provide(3, {name: size}, Peer)
    buffers.provide(6, {name: size}, Peer)
    with pytest.raises(ArgumentMismatch, match=f"needs {size + 4} bytes of .* stated {size}"):
        buffers.provide(3, {name: size + 4}, Peer)


def test_a_width_that_is_first_met_in_a_capture_is_refused_and_others_go_on() -> None:
    bench, known, new = Bench(), given(3), given(6)
    bench.forward(known)
    bench.ffn(known)
    made = bench.tensors.made
    bench.tensors.records_graph = True
    for run in (bench.forward, bench.ffn):
        with pytest.raises(CaptureActive, match="the scratch of step width 6 would be allocated"):
            run(new)
    bench.forward(known)
    bench.ffn(known)
    # Another layer at a width that is there needs no memory of the device.
    bench.forward(given(3))
    assert bench.order() == ["k1", "k2", "ffn", "k1", "k2", "ffn", "k1", "k2"]
    assert bench.tensors.made == made
    bench.tensors.records_graph = False
    bench.forward(new)
    assert bench.order()[-2:] == ["k1", "k2"]


@pytest.mark.parametrize("name", ["epoch", "sym"])
def test_nothing_shared_is_made_in_a_capture(name: str) -> None:
    tensors = HostTensors()
    buffers = RunnerBuffers(tensors, 2, "a test")
    tensors.records_graph = True
    with pytest.raises(CaptureActive, match="would be allocated while the current stream records"):
        buffers.provide(3, {name: 64}, Peer)
    assert buffers.epoch is None
    assert buffers.peer is None


def test_a_runner_is_not_made_in_a_capture() -> None:
    tensors = HostTensors()
    tensors.records_graph = True
    with pytest.raises(CaptureActive, match="the runner's buffers"):
        RunnerBuffers(tensors, 2, "a test")
    assert tensors.made == 0


def test_buffers_have_room_for_the_widest_step() -> None:
    buffers = RunnerBuffers(HostTensors(), 4, "a test")
    shapes = {
        "q": ((48, 16, 512), torch.bfloat16),
        "kt": ((48 * 640,), torch.int32),
        "klen": ((96,), torch.int32),
        "normed": ((48, 5120), torch.bfloat16),
        "qr": ((48, 1280), torch.bfloat16),
        "res_mid": ((48, 4, 5120), torch.bfloat16),
        "post_mid": ((48, 4), torch.float32),
        "comb_mid": ((48, 4, 4), torch.float32),
        "pre_mid": ((48, 4), torch.float32),
        "zero_record": ((1024,), torch.uint8),
    }
    for name, (shape, dtype) in shapes.items():
        found = getattr(buffers, name)
        assert (tuple(found.shape), found.dtype) == (shape, dtype), name
        assert not found.any()


def test_a_closed_runner_has_released_its_peer_memory_once() -> None:
    bench = Bench()
    bench.forward(given())
    bench.runner.close()
    assert [p.closed for p in bench.peers] == [True]
    assert bench.runner.buffers.peer is None
    bench.runner.close()
    # Peer memory is not made a second time by a rank that goes on.
    for run in (bench.forward, bench.ffn):
        with pytest.raises(Released, match="after it had been closed"):
            run(given())
    assert len(bench.peers) == 1
    assert bench.order() == ["k1", "k2"]


def test_peer_memory_is_made_once_also_after_a_failure() -> None:
    class NoTable(HostTensors):
        failures = 1

        def addresses(self, values: Sequence[int]) -> torch.Tensor:
            if self.failures:
                self.failures -= 1
                raise MemoryError("no room for a table")
            return super().addresses(values)

    made: list[int] = []

    def make_peer(size: int) -> Peer:
        made.append(size)
        return Peer(size)

    buffers = RunnerBuffers(NoTable(), 2, "a test")
    with pytest.raises(MemoryError):
        buffers.provide(3, {"sym": PEER_BYTES}, make_peer)
    assert buffers.provide(3, {"sym": PEER_BYTES}, make_peer)["sym"] == 0x7000
    assert made == [PEER_BYTES]


def test_torchs_memory_and_stream_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Stream:
        cuda_stream = STREAM

    def current_stream(index: int) -> Stream:
        asked.append(index)
        return Stream()

    monkeypatch.delattr(torch._C, "_cuda_getCurrentRawStream", raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    tensors = TorchTensors(torch.device("cpu"))
    assert tensors.stream() == STREAM
    assert asked == [0]
    assert tensors.capturing()
    zeros = tensors.zeros((2, 3), "bfloat16")
    assert (tuple(zeros.shape), zeros.dtype, zeros.any().item()) == ((2, 3), torch.bfloat16, False)
    assert tensors.empty((5,), "float32").shape == (5,)
    assert tensors.addresses([1, 2**62]).tolist() == [1, 2**62]
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: STREAM + index, raising=False
    )
    assert TorchTensors(torch.device("cpu")).stream() == STREAM
