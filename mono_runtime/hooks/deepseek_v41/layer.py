"""One decoder layer's decode steps by the launches; it takes the place of vLLM's ``MonoDecodeLayer``.

vLLM's decoder layer calls it at two boundaries (``models/deepseek_v41/amd/model.py``): with the layer's
inputs, and, where the engine runs the attention, with that attention's unreduced output. Both paths share
every tensor there, so a step that is not taken runs as if nothing were installed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mono_runtime.errors import CaptureActive
from mono_runtime.hooks.deepseek_v41.eligibility import LayerDecision, Path
from mono_runtime.hooks.deepseek_v41.engine import Engine
from mono_runtime.hooks.deepseek_v41.facts import StepLimits
from mono_runtime.hooks.deepseek_v41.inputs import LayerOutputs, LayerStep
from mono_runtime.hooks.deepseek_v41.reading import SeenStep, read_step, record_view
from mono_runtime.hooks.deepseek_v41.reload import LayerLoading
from mono_runtime.hooks.deepseek_v41.report import StepReport
from mono_runtime.hooks.deepseek_v41.runner import Kind, MonoRunner, Select
from mono_runtime.hooks.deepseek_v41.selection import select
from mono_runtime.hooks.deepseek_v41.step import decide_step
from mono_runtime.hooks.deepseek_v41.weights import LayerWeights, Layout

if TYPE_CHECKING:
    import torch

    Mixes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# The weights of one of vLLM's decoder layers, checked against a layout.
TakeWeights = Callable[[Any, Layout], LayerWeights]
MakeRunner = Callable[[Kind], MonoRunner]


class Runners:
    """A rank's runners, one for each kind of layer: the model's, and the draft's whole layers.

    A runner is made at the first step that needs it, on all ranks at the same layer: its peer memory
    is exchanged between them.
    """

    def __init__(self, make: MakeRunner, engine: Engine) -> None:
        self._make = make
        self._engine = engine
        self._made: dict[Kind, MonoRunner] = {}

    def of(self, kind: Kind) -> MonoRunner:
        """The runner of this kind of layer.

        Raises:
            CaptureActive: it would have to be made while the current stream records a graph.
        """
        found = self._made.get(kind)
        if found is None:
            if self._engine.capturing():
                raise CaptureActive(
                    "a layer's first decode step with mono launches is inside a graph capture",
                    where=f"a runner of {kind.experts} experts and windows of {kind.swa_width}",
                    fix="run one decode step eagerly before capturing, on all ranks, as vLLM's warm-up does",
                )
            found = self._made[kind] = self._make(kind)
        return found

    def close(self) -> None:
        """Release what they own; collective. No step may be running."""
        made, self._made = self._made, {}
        for runner in made.values():
            runner.close()


@dataclass(frozen=True, slots=True)
class Rank:
    """What the layers of one rank share."""

    engine: Engine
    runners: Runners
    report: StepReport


class MonoLayer:
    """A layer whose decode steps run as launches; made by `factory.LayerFactory.create`.

    Args:
        rank: what it shares with the rank's other layers.
        decision: what of it the launches run; not `Path.OFF`.
        arch: the rank's architecture.
        limits: what its launches can take, with and without folding the previous layer's output into
            the residual.
        weights: the layer's.

    Attributes:
        ffn_only: the engine runs its attention, and hands over that attention's unreduced output.
        draft: it is a whole layer of the DSpark draft.
    """

    def __init__(
        self,
        rank: Rank,
        decision: LayerDecision,
        arch: str,
        limits: Mapping[bool, StepLimits],
        weights: CurrentWeights,
    ) -> None:
        self.ffn_only = decision.path is Path.FFN
        self.draft = decision.draft
        self.experts, self.topk = decision.experts, decision.topk
        self.swa_width = decision.swa_width
        self._rank = rank
        self._arch = arch
        self._weights = weights
        self._limits = dict(limits)
        self._kind = runner_kind(decision)
        self._window, self._compressed = RecordView(), RecordView()

    @property
    def unfolded_entry(self) -> bool:
        """Whether vLLM's own first layer takes the unfolded seam weights, as K1 does.

        On gfx942 alone: its folded form has no AITER kernel, and would run as some hundred small ones.
        """
        return not self.ffn_only and self._arch == "gfx942"

    def __call__(
        self,
        layer: Any,
        x: torch.Tensor,
        positions: torch.Tensor,
        residual: torch.Tensor | None,
        post_mix: torch.Tensor | None,
        res_mix: torch.Tensor | None,
        pre_mix: torch.Tensor | None,
        engram_hashes: torch.Tensor | None = None,
        engram_mask: torch.Tensor | None = None,
    ) -> LayerOutputs | None:
        """The whole layer, or None when the engine runs this step (always where `ffn_only`).

        Args:
            layer: vLLM's decoder layer.
            x: the previous layer's output [rows, 5120] bfloat16; in the first layer the embedding,
                which the draft has in all four streams [rows, 4, 5120].
            positions: [rows] int64.
            residual, post_mix, res_mix, pre_mix: the previous layer's (`LayerOutputs`); None in the
                first layer.
            engram_hashes, engram_mask: of the step's tokens, where there is an Engram.

        Raises:
            CaptureActive: something would have to be made inside a graph capture.
            MonoError: the weights or the step's tensors are not as the kernels read them.
        """
        if self.ffn_only:
            return None
        first = residual is None
        owed = not first and (layer.engram is None or engram_hashes is None)
        limits = self._limits[owed]
        seen = read_step(
            layer.attn,
            x.shape[0],
            (x,) if first else (x, residual, post_mix, res_mix, pre_mix),
            self._rank.engine,
            entered=not first or x.dim() == (3 if self.draft else 2),
        )
        if not self._takes(seen, limits):
            return None
        runner = self._rank.runners.of(self._kind)
        weights = self._weights.of(layer, runner)
        step = self._step(layer.attn, positions, seen)
        if residual is None:
            x, residual = self._entry(layer, x)
            pre = runner.first_pre_mix(x.shape[0])
            # Without the fold the other two are not read.
            mixes: Mixes = (pre, pre, pre)
        else:
            # A step that lacks one of them was declined.
            mixes = cast("Mixes", (post_mix, res_mix, pre_mix))
            if not owed:
                settled = layer.mhc_post(x, residual, *mixes[:2])
                hashes = cast("torch.Tensor", engram_hashes)[:, layer.engram.layer_hash_index]
                residual = cast("torch.Tensor", layer.engram(settled, hashes, engram_mask))
        chosen = _selection(layer.attn, positions)
        return runner.forward(weights, step, x, residual, *mixes, fold=owed, select=chosen)

    def ffn(
        self,
        layer: Any,
        part: torch.Tensor,
        residual: torch.Tensor,
        post_mix: torch.Tensor,
        res_mix: torch.Tensor,
        pre_mix: torch.Tensor,
    ) -> LayerOutputs | None:
        """The rest of a layer whose attention the engine ran, or None when it runs this step as well.

        Args:
            part: this rank's attention output [rows, 5120] bfloat16, which the engine has not reduced;
                it does so itself when this gives None.
            residual, post_mix, res_mix, pre_mix: the attention seam's outputs.

        Raises: as `__call__`.
        """
        tensors = (part, residual, post_mix, res_mix, pre_mix)
        seen = read_step(layer.attn, part.shape[0], tensors, self._rank.engine)
        if not self._takes(seen, self._limits[True]):
            return None
        runner = self._rank.runners.of(self._kind)
        return runner.ffn(self._weights.of(layer, runner), *tensors, topk=self.topk)

    def _takes(self, seen: SeenStep, limits: StepLimits) -> bool:
        decision = decide_step(seen.facts, limits)
        if not decision.taken:
            self._rank.report.declined(decision)
        return decision.taken

    def _entry(self, layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The first layer's input and residual: the embedding in one stream, and in all."""
        if self.draft:
            return x[:, 0].contiguous(), x
        return x, x.unsqueeze(1).expand(-1, layer.hc_mult, -1).contiguous()

    def _step(self, attn: Any, positions: torch.Tensor, seen: SeenStep) -> LayerStep:
        window, compressed = seen.window, seen.compressed
        step = LayerStep(
            positions,
            window.slot_mapping,
            self._window.of(attn.swa_cache_layer.kv_cache, window.block_size),
            window.decode_swa_indices,
            window.decode_swa_lens,
            window.token_to_req_indices,
        )
        ratio = attn.compress_ratio
        if not ratio:
            return step
        rows = compressed.block_size // ratio
        return step._replace(
            topk_indices=attn.topk_indices_buffer,
            comp_cache=self._compressed.of(attn._compressed_kv_cache(), rows),
            comp_block_table=compressed.block_table,
        )


class CurrentWeights:
    """A layer's weights: taken at its first step, when they are loaded, and anew after a reload.

    The engine reloads into the memory that captured graphs read, but not always into the same tensors.
    They end with this object, so with the layer: the rank's runners, which have them too, live on.

    Args:
        loading: the layer's loads.
        take: gives the weights.
    """

    def __init__(self, loading: LayerLoading, take: TakeWeights) -> None:
        self._loading = loading
        self._take = take
        self._weights: LayerWeights | None = None
        self._forget: weakref.finalize[..., CurrentWeights] | None = None
        self._loads = 0

    def of(self, layer: Any, runner: MonoRunner) -> LayerWeights:
        """The weights of vLLM's ``layer``; those that ``runner`` had before are forgotten there.

        Raises:
            WeightsMismatch: they are not as the kernels read them.
        """
        known, loads = self._weights, self._loading.loads
        if known is not None and loads == self._loads:
            return known
        taken = self._take(layer, self._loading.layout)
        if self._forget is not None:
            self._forget()
        self._forget = weakref.finalize(self, runner.forget, taken)
        self._forget.atexit = False
        self._weights, self._loads = taken, loads
        return taken


class RecordView:
    """The record view of one cache, made anew only when the engine binds another cache.

    The runner looks at a tensor once, so it should see the same one at each step. A cache that the engine
    lets go is not kept: vLLM captures graphs on a small one first, and wants its memory for the real one.
    """

    def __init__(self) -> None:
        self._cache: weakref.ref[torch.Tensor] | None = None
        self._rows = 0
        self._view: torch.Tensor | None = None

    def of(self, cache: torch.Tensor, rows: int) -> torch.Tensor:
        """``cache`` as records, ``rows`` a block."""
        known = self._cache
        if self._view is None or known is None or known() is not cache or rows != self._rows:
            self._view = record_view(cache, rows)
            self._cache, self._rows = weakref.ref(cache, self._let_go), rows
        return self._view

    def _let_go(self, cache: weakref.ref[torch.Tensor]) -> None:
        if cache is self._cache:
            self._cache = self._view = None


def runner_kind(decision: LayerDecision) -> Kind:
    """The runner that a layer's launches belong to.

    A layer of which only the FFN runs is on the model's runner, with its own routing.
    """
    if not decision.draft:
        return Kind()
    # The draft's unions of experts are small: one FP4 group a task.
    return Kind(decision.experts, decision.topk, 1, decision.swa_width)


def _selection(attn: Any, positions: torch.Tensor) -> Select | None:
    if attn.indexer is None:
        return None

    def run(normed: torch.Tensor, qr: torch.Tensor) -> None:
        select(attn, positions, normed, qr)

    return run
