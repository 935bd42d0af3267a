"""A rank's decode steps: K1, an index source's selection, the key list, K2; or the FFN launch alone.

One runner runs every layer of the model on its rank, and the DSpark draft's layers, whose routing and
window rows differ, have one of their own. Every rank takes the same launches in the same order: they wait
for each other's pushes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mono_runtime.hooks.deepseek_v41.buffers import MakePeer, RunnerBuffers, Tensors
from mono_runtime.hooks.deepseek_v41.weights import LayerWeights
from mono_runtime.launch_key import Scalar

if TYPE_CHECKING:
    import torch

    from mono_runtime.launching.launch import Launch

# Runs an index source's compressor and indexer, which write the step's ``topk_indices``, on the layer's
# input after the attention's norm [rows, 5120] and the query's low rank [rows, 1280], both bfloat16.
Select = Callable[["torch.Tensor", "torch.Tensor"], None]


class LaunchSource(Protocol):
    """Where launches come from: what a server prepared."""

    def launch(self, name: str, rows: int, /, **variant: Scalar) -> Launch | None:
        """The launch of this name at this width, or None where the policy declines it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank of which deployment a runner is: ``arch`` is ``gfx950`` or ``gfx942``."""

    arch: str
    tp: int
    rank: int


@dataclass(frozen=True, slots=True)
class Kind:
    """What the layers of a runner have in common; the model's unless said otherwise.

    Attributes:
        experts, topk: the routing, the model's or the draft's.
        ug_groups: FP4 groups of an up-gate task; 1 for the draft, whose unions of experts are small.
        swa_width: width of the window's index rows.
    """

    experts: int = 384
    topk: int = 6
    ug_groups: int = 2
    swa_width: int = 128


class LayerStep(NamedTuple):
    """What a decode step gives a layer, beside the activations. M is the step's rows.

    A layer whose compress ratio is 0 has neither of the last three. Give the same tensor objects again
    where nothing changed (views of caches, the step's metadata in every layer): they are looked at once.
    """

    positions: torch.Tensor  # [M] int64
    slot_mapping: torch.Tensor  # [M] int64; -1 is a padding row
    swa_cache: torch.Tensor  # [blocks, rows, 584] uint8: records of the sliding window
    swa_indices: torch.Tensor  # [M or more, 1, swa_width] int32
    swa_lens: torch.Tensor  # [M or more] int32
    token_to_req: torch.Tensor  # [M or more] int32
    topk_indices: torch.Tensor | None = None  # [M or more, 512] int32
    comp_cache: torch.Tensor | None = None  # [blocks, rows, 584] uint8: compressed records
    comp_block_table: torch.Tensor | None = None  # [requests, blocks] int32


class LayerOutputs(NamedTuple):
    """A layer's outputs, the next layer's inputs."""

    out: torch.Tensor  # [M, 5120] bfloat16: the experts' output, reduced over the ranks
    residual: torch.Tensor  # [M, 4, 5120] bfloat16: the streams after the FFN seam
    post_mix: torch.Tensor  # [M, 4, 1] float32
    res_mix: torch.Tensor  # [M, 4, 4] float32
    pre_mix: torch.Tensor  # [M, 4] float32


class MonoRunner:
    """A rank's runner.

    Args:
        place: which rank this is.
        launches: where launches come from.
        tensors: the device's memory.
        make_peer: makes peer memory of so many bytes; called once, at the first step, on all ranks.
        kind: what its layers have in common.
        key_list: whether an index source's keys are listed by a launch of their own, before a K2 that
            does not list them. As on gfx942 unless said otherwise.
    """

    def __init__(
        self,
        place: Place,
        launches: LaunchSource,
        tensors: Tensors,
        make_peer: MakePeer,
        *,
        kind: Kind | None = None,
        key_list: bool | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def buffers(self) -> RunnerBuffers:
        """What it owns on the device."""
        raise NotImplementedError

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        """The pre-mix [rows, 4] float32 that enters a model's first layer."""
        raise NotImplementedError

    def forward(
        self,
        weights: LayerWeights,
        step: LayerStep,
        x: torch.Tensor,
        residual: torch.Tensor,
        post_mix: torch.Tensor,
        res_mix: torch.Tensor,
        pre_mix: torch.Tensor,
        *,
        fold: bool = True,
        select: Select | None = None,
    ) -> LayerOutputs:
        """A whole layer.

        Args:
            x: the previous layer's output [M, 5120] bfloat16, reduced.
            residual: [M, 4, 5120] bfloat16.
            post_mix, res_mix, pre_mix: the previous seam's mixes, as in `LayerOutputs`. Without ``fold``
                the first two are not read.
            fold: whether the previous layer's output is still owed to the residual.
            select: for an index source; runs between the launches.
        """
        raise NotImplementedError

    def ffn(
        self,
        weights: LayerWeights,
        part: torch.Tensor,
        residual: torch.Tensor,
        post_mix: torch.Tensor,
        res_mix: torch.Tensor,
        pre_mix: torch.Tensor,
        *,
        topk: int | None = None,
    ) -> LayerOutputs:
        """The rest of a layer whose attention the engine ran, in one launch.

        Args:
            part: this rank's attention output before the ranks' sum [M, 5120] bfloat16.
            residual, post_mix, res_mix, pre_mix: the attention seam's outputs.
            topk: experts a token takes; the runner's unless said otherwise (on gfx942 a draft layer's
                FFN runs on the model's runner). How many experts there are, the gate's weight says.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release peer memory; collective. No launch may be running."""
        raise NotImplementedError
