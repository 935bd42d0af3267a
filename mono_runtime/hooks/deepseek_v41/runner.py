"""A rank's decode steps: K1, an index source's selection, the key list, K2; or the FFN launch alone.

One runner runs every layer of the model on its rank, and the DSpark draft's layers, whose routing and
window rows differ, have one of their own. Every rank takes the same launches in the same order: they wait
for each other's pushes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.buffers import MAX_ROWS, MakePeer, RunnerBuffers
from mono_runtime.hooks.deepseek_v41.inputs import (
    CacheNumbers,
    LayerOutputs,
    LayerStep,
    StepNumbers,
    TableNumbers,
    require_activations,
)
from mono_runtime.hooks.deepseek_v41.launches import (
    FfnLayer,
    Kind,
    Launches,
    LaunchSource,
    Place,
    WholeLayer,
)
from mono_runtime.hooks.deepseek_v41.tensors import BF16, F32, Tensors
from mono_runtime.hooks.deepseek_v41.weights import HIDDEN, STREAMS, LayerWeights

if TYPE_CHECKING:
    import torch

__all__ = [
    "Kind",
    "LaunchSource",
    "LayerOutputs",
    "LayerStep",
    "MonoRunner",
    "Place",
    "Select",
]

# Runs an index source's compressor and indexer, which write the step's ``topk_indices``, on the layer's
# input after the attention's norm [rows, 5120] and the query's low rank [rows, 1280], both bfloat16.
Select = Callable[["torch.Tensor", "torch.Tensor"], None]


class MonoRunner:
    """A rank's runner. It is used by one thread at a time.

    A layer is known by its weights' object, and a step's metadata and caches by their tensors: what was
    looked at once is not looked at again.

    Args:
        place: which rank this is.
        source: where launches come from.
        tensors: the device's memory.
        make_peer: makes peer memory of so many bytes; called once, at the first step, on all ranks.
        kind: what its layers have in common.
        key_list: whether an index source's keys are listed by a launch of their own, before a K2 that
            does not list them. As on gfx942 unless said otherwise.

    Raises:
        CaptureActive: the current stream records a graph.
    """

    def __init__(
        self,
        place: Place,
        source: LaunchSource,
        tensors: Tensors,
        make_peer: MakePeer,
        *,
        kind: Kind | None = None,
        key_list: bool | None = None,
    ) -> None:
        self.place = place
        self.kind = kind or Kind()
        self._tensors = tensors
        self._buffers = RunnerBuffers(tensors, place.tp, str(place))
        self._launches = Launches(
            place,
            self.kind,
            source,
            self._buffers,
            make_peer,
            key_list=place.arch.startswith("gfx942") if key_list is None else key_list,
        )
        self._wholes: dict[tuple[int, int, bool, bool], WholeLayer] = {}
        self._ffns: dict[tuple[int, int, int], FfnLayer] = {}
        self._step: StepNumbers | None = None
        self._tables: dict[int, TableNumbers] = {}
        self._no_table = (self._buffers.dummy.data_ptr(), 0)
        self._seen: set[tuple[object, ...]] = set()

    @property
    def buffers(self) -> RunnerBuffers:
        """What it owns on the device."""
        return self._buffers

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        """The pre-mix [rows, 4] float32 that enters a model's first layer."""
        return self._buffers.first_pre_mix(rows)

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

        Raises:
            ArgumentMismatch: a tensor is not as the kernels read it, or a launch takes other arguments
                than this release passes. Nothing was launched.
            LaunchMissing: no launch is prepared for this width.
            CaptureActive: the width is new, and the stream records a graph.
            RanksDisagree, RankLost: at the first step, peer memory could not be made.
            Released: after `close`.
        """
        rows = x.shape[0]
        index = select is not None
        given = self._activations(x, residual, post_mix, res_mix, pre_mix, mixes=fold)
        layer = self._wholes.get((id(weights), rows, fold, index))
        if layer is None:
            layer = self._meet(weights, rows, fold=fold, index=index)
        moving = (
            self._step_numbers(step, rows)
            + self._table_numbers(step, layer.weights.ratio)
            + self._cache_numbers(step, rows, layer)
        )
        outputs, written = self._outputs(rows)
        stream = self._tensors.stream()
        layer.k1(given + moving, stream)
        if select is not None:
            select(*self._buffers.for_indexer(rows))
            if layer.key_list is not None:
                layer.key_list(moving, stream)
        layer.k2(written + moving, stream)
        return outputs

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
        """The rest of a layer whose attention the engine ran, in one launch. Errors as for `forward`.

        Args:
            part: this rank's attention output before the ranks' sum [M, 5120] bfloat16.
            residual, post_mix, res_mix, pre_mix: the attention seam's outputs.
            topk: experts a token takes; the runner's unless said otherwise (on gfx942 a draft layer's
                FFN runs on the model's runner). How many experts there are, the gate's weight says.
        """
        rows = part.shape[0]
        picks = self.kind.topk if topk is None else topk
        given = self._activations(part, residual, post_mix, res_mix, pre_mix, mixes=True)
        layer = self._ffns.get((id(weights), rows, picks))
        if layer is None:
            _require_rows(rows)
            layer = self._launches.ffn(weights, rows, picks)
            self._ffns[id(weights), rows, picks] = layer
        outputs, written = self._outputs(rows)
        layer.ffn(given + written, self._tensors.stream())
        return outputs

    def forget(self, weights: LayerWeights) -> None:
        """Let go of a layer's weights, which are replaced by another object, or whose layer has ended.

        May be called by any thread, as layers end where Python's collector happens to run.
        """
        wholes, ffns = [*self._wholes.items()], [*self._ffns.items()]
        self._wholes = {k: v for k, v in wholes if v.weights is not weights}
        self._ffns = {k: v for k, v in ffns if v.weights is not weights}

    def close(self) -> None:
        """Release peer memory; collective. No launch may be running, and none may follow."""
        self._wholes, self._ffns, self._step, self._tables = {}, {}, None, {}
        self._buffers.close()

    def _meet(self, weights: LayerWeights, rows: int, *, fold: bool, index: bool) -> WholeLayer:
        _require_rows(rows)
        if index and not weights.ratio:
            raise InvalidValue(
                f"layer {weights.layer} selects keys and its compress ratio is 0",
                where=self.place,
                fix="give no selection for a layer without compressed keys",
            )
        layer = self._launches.whole(weights, rows, fold=fold, index=index)
        self._wholes[id(weights), rows, fold, index] = layer
        return layer

    def _activations(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        post: torch.Tensor,
        comb: torch.Tensor,
        pre: torch.Tensor,
        *,
        mixes: bool,
    ) -> tuple[int, ...]:
        geometry = (
            *(x.shape, x.dtype, x.is_contiguous(), mixes),
            *(residual.shape, residual.dtype, residual.is_contiguous()),
            *(post.shape, post.dtype, post.is_contiguous()),
            *(comb.shape, comb.dtype, comb.is_contiguous()),
            *(pre.shape, pre.dtype, pre.is_contiguous()),
        )
        if geometry not in self._seen:
            require_activations(x, residual, post, comb, pre, mixes=mixes)
            self._seen.add(geometry)
        return (
            x.data_ptr(),
            residual.data_ptr(),
            post.data_ptr(),
            comb.data_ptr(),
            pre.data_ptr(),
        )

    def _step_numbers(self, step: LayerStep, rows: int) -> tuple[int, ...]:
        known = self._step
        if known is None or not known.are_of(step, rows):
            known = self._step = StepNumbers(step, rows, self.kind.swa_width)
        return known.numbers

    def _table_numbers(self, step: LayerStep, ratio: int) -> tuple[int, ...]:
        if not ratio:
            return self._no_table
        known, table = self._tables.get(ratio), step.comp_block_table
        if known is None or not known.are_of(table):
            known = self._tables[ratio] = TableNumbers(table)
        return known.numbers

    def _cache_numbers(self, step: LayerStep, rows: int, layer: WholeLayer) -> tuple[int, ...]:
        known = layer.caches
        if known is None or not known.are_of(step):
            dummy = self._buffers.dummy.data_ptr()
            known = layer.caches = CacheNumbers(step, rows, layer.weights.ratio, dummy)
        return known.numbers

    def _outputs(self, rows: int) -> tuple[LayerOutputs, tuple[int, ...]]:
        # They outlive the step's next layer where the engine keeps a layer's output, so they are new ones.
        empty = self._tensors.empty
        found = LayerOutputs(
            empty((rows, HIDDEN), BF16),
            empty((rows, STREAMS, HIDDEN), BF16),
            empty((rows, STREAMS, 1), F32),
            empty((rows, STREAMS, STREAMS), F32),
            empty((rows, STREAMS), F32),
        )
        out, residual, post, comb, pre = found
        return found, (
            out.data_ptr(),
            residual.data_ptr(),
            post.data_ptr(),
            comb.data_ptr(),
            pre.data_ptr(),
        )


def _require_rows(rows: int) -> None:
    if not 1 <= rows <= MAX_ROWS:
        raise InvalidValue(
            f"a step of {rows} rows, where the kernels take 1 to {MAX_ROWS}",
            fix="let such steps run the engine's own path",
        )
