"""A runner over launches that only record: what was asked for, and every argument of every call by name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import torch

from mono_runtime.driver import Driver, Grid, Submit
from mono_runtime.expressions import Const
from mono_runtime.hooks.deepseek_v41.inputs import LayerOutputs, LayerStep
from mono_runtime.hooks.deepseek_v41.runner import Kind, MonoRunner, Place
from mono_runtime.hooks.deepseek_v41.weights import AttentionWeights, LayerWeights
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Argument, Dispatch, LaunchPlan, Workspace, natural_layout
from mono_runtime.launching import Launch

# The launchers' parameters in vLLM 0.33.0 (deepseek_v41/amd/mono/layer.py), without the stream; those that
# are 32 bits wide end in "!". The last is this project's.
ARGUMENTS = {
    "k1": "res_in pend post_in comb_in pre_in hc_fn hc_scale hc_base attn_w res_out post_out comb_out "
    "pre_out wqkv wqkv_s qn_w kvn_w wqb wqb_s cos_sin pos slot swa swa_stride swa_block! q swa_idx "
    "swa_lens comp_block! comp_bt bt_stride! topk t2r kt klen normed_out qr_out scratch epoch tl",
    "k2": "q swa swa_stride swa_block! comp comp_stride comp_block! kt klen slot swa_idx swa_lens t2r topk "
    "comp_bt bt_stride! pos sink qk_scale! cos_sin woa woa_s wob wob_s zrec res_in post_in comb_in pre_in "
    "hc_fn hc_scale hc_base ffn_w res_out post_out comb_out pre_out gate_w bias w13 w13_s w2 w2_s sgu "
    "sgu_s sw2 sw2_s out scratch sym peers rank! epoch tl",
    "ffn": "part res_in post_in comb_in pre_in hc_fn hc_scale hc_base ffn_w res_out post_out comb_out "
    "pre_out gate_w bias w13 w13_s w2 w2_s sgu sgu_s sw2 sw2_s out scratch sym peers rank! epoch tl",
    "keylist": "kt klen slot pos swa_idx swa_lens topk t2r comp_bt bt_stride! comp_block! ratio!",
}
EPOCH_BYTES = 4 * 832
PEER_BYTES = 8192
STREAM = 0x5511000
DIGEST = "sha256:" + "0" * 64


def workspace(name: str, rows: int) -> dict[str, int]:
    """What a launch states in these tests; every launch of a width has the same scratch."""
    kept = {"scratch": 1000 * rows, "epoch": EPOCH_BYTES, "sym": PEER_BYTES}
    return {a.name: kept[a.name] for a in arguments(ARGUMENTS[name]) if a.name in kept}


def arguments(text: str) -> tuple[Argument, ...]:
    """``"x n!"`` as arguments of 64 and of 32 bits."""
    return tuple(Argument(n.rstrip("!"), "i32" if n.endswith("!") else "i64") for n in text.split())


@dataclass
class Call:
    """One launch that reached the device."""

    name: str
    rows: int
    variant: dict[str, Any]
    arguments: dict[str, int]
    stream: int


class Recorder:
    """A driver for launches alone."""

    name = "recorder"

    def __init__(self) -> None:
        self.submitted: list[tuple[int, int, bytes]] = []

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def prepare(
        self, device: int, function: int, grid: Grid, block: Grid, lds: int, kernargs: bytearray
    ) -> Submit:
        return lambda stream: self.submitted.append((function, stream, bytes(kernargs)))


@dataclass
class Source:
    """Gives launches that record.

    Attributes:
        texts: other arguments than `ARGUMENTS`, by launch.
        workspaces: other workspaces, by launch.
        instead: what is given in a launch's place, by name.
        asked: what was asked for, in order.
    """

    texts: dict[str, str] = field(default_factory=dict)
    workspaces: dict[str, dict[str, int]] = field(default_factory=dict)
    instead: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    driver: Recorder = field(default_factory=Recorder)

    def launch(self, name: str, rows: int, /, **variant: Any) -> Any:
        self.asked.append((name, rows, variant))
        if name in self.instead:
            return self.instead[name]
        taken = arguments(self.texts.get(name, ARGUMENTS[name]))
        one, blocks = Const(1), Const(256)
        layout = natural_layout(taken)
        size = -(-(layout[-1].offset + layout[-1].size) // 8) * 8
        dispatch = Dispatch(
            name, DIGEST, (blocks, one, one), (Const(512), one, one), Const(0), size, layout
        )
        stated = self.workspaces.get(name, workspace(name, rows))
        kept = tuple(Workspace(a.name, stated[a.name]) for a in taken if a.name in stated)
        plan = LaunchPlan(taken, "stream", True, (dispatch,), kept)
        plan.check()
        key = LaunchKey.of("deepseek_v41", name, "gfx950", {"tokens": rows})
        return Launch(key, plan, 0, cast(Driver, self.driver), [len(self.asked) - 1])

    def calls(self) -> list[Call]:
        """What reached the device, in order."""
        found = []
        for function, stream, data in self.driver.submitted:
            name, rows, variant = self.asked[function]
            taken = arguments(self.texts.get(name, ARGUMENTS[name]))
            values = {
                a.name: struct.unpack_from("<i" if a.type == "i32" else "<q", data, a.offset)[0]
                for a in natural_layout(taken)
            }
            found.append(Call(name, rows, variant, values, stream))
        return found


class HostTensors:
    """Tensors in host memory; ``records_graph`` is what a capture would say."""

    def __init__(self) -> None:
        self.records_graph = False
        self.made = 0

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        self.made += 1
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.full(shape, 9, dtype=getattr(torch, dtype))

    def addresses(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int64)

    def capturing(self) -> bool:
        return self.records_graph

    def stream(self) -> int:
        return STREAM


class Peer:
    """Peer memory of two ranks."""

    def __init__(self, size: int) -> None:
        self.size, self.local, self.addresses = size, 0x7000, (0x7000, 0x9000)
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Bench:
    """A runner, and what its surroundings have noted."""

    def __init__(self, arch: str = "gfx950", source: Source | None = None, **options: Any) -> None:
        self.source = source or Source()
        self.tensors = HostTensors()
        self.peers: list[Peer] = []
        place = Place(arch, 2, 1)
        self.runner = MonoRunner(place, self.source, self.tensors, self._peer, **options)

    def _peer(self, size: int) -> Peer:
        self.peers.append(Peer(size))
        return self.peers[-1]

    def forward(self, given: Given, **options: Any) -> LayerOutputs:
        """A whole layer's step."""
        return self.runner.forward(given.weights, given.step, *given.activations, **options)

    def ffn(self, given: Given, **options: Any) -> LayerOutputs:
        """A step of the FFN alone."""
        return self.runner.ffn(given.weights, *given.activations, **options)

    def calls(self) -> list[Call]:
        """What reached the device."""
        return self.source.calls()

    def order(self) -> list[str]:
        """The launches that reached the device."""
        return [c.name for c in self.calls()]


@dataclass
class Given:
    """A layer's weights, a step's tensors, and the activations: output, streams, post, comb, pre."""

    weights: LayerWeights
    step: LayerStep
    activations: list[torch.Tensor]

    def changed(self, **tensors: Any) -> Given:
        """The same with other tensors of the step."""
        return replace(self, step=self.step._replace(**tensors))


def weights(ratio: int = 2, *, whole: bool = True, experts: int = 384) -> LayerWeights:
    """Weights by name, each an address of its own."""

    def some(owner: type) -> dict[str, Any]:
        plain = ("layer", "ratio", "attention")
        return {f.name: torch.zeros(1) for f in fields(owner) if f.name not in plain}

    attention = AttentionWeights(**some(AttentionWeights)) if whole else None
    of_ffn = {**some(LayerWeights), "gate_w": torch.zeros(experts, 1)}
    return LayerWeights(layer=5, ratio=ratio, attention=attention, **of_ffn)


def records(blocks: int, rows: int, gap: int) -> torch.Tensor:
    """A cache's records, blocks ``gap`` bytes apart."""
    flat = torch.zeros(blocks, rows * 584 + gap, dtype=torch.uint8)
    return torch.as_strided(flat, (blocks, rows, 584), (flat.stride(0), 584, 1))


def given(rows: int = 3, ratio: int = 2, width: int = 128, **of_weights: Any) -> Given:
    """A step of ``rows`` rows."""
    ints: Callable[..., torch.Tensor] = lambda *shape: torch.zeros(*shape, dtype=torch.int32)  # noqa: E731
    far = (ints(48, 512), records(5, 32, 8), ints(2, 7)) if ratio else ()
    step = LayerStep(
        torch.zeros(rows, dtype=torch.int64),
        torch.zeros(rows, dtype=torch.int64),
        records(4, 64, 16),
        ints(48, 1, width),
        ints(48),
        ints(48),
        *far,
    )
    activations = [
        torch.zeros(rows, 5120, dtype=torch.bfloat16),
        torch.zeros(rows, 4, 5120, dtype=torch.bfloat16),
        torch.zeros(rows, 4, 1),
        torch.zeros(rows, 4, 4),
        torch.zeros(rows, 4),
    ]
    return Given(weights(ratio, **of_weights), step, activations)


__all__ = ["Bench", "Call", "Given", "Kind", "Source", "given", "records", "weights", "workspace"]
