"""A runner's launches: asked for once a width and variant, and bound once a layer to what stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mono_runtime.errors import ArgumentMismatch, LaunchMissing
from mono_runtime.hooks.deepseek_v41.arguments import FFN, K1, K2, KEY_LIST, QK_SCALE, Run, bind
from mono_runtime.hooks.deepseek_v41.inputs import CacheNumbers
from mono_runtime.launching.launch import Launch

if TYPE_CHECKING:
    from mono_runtime.hooks.deepseek_v41.buffers import MakePeer, RunnerBuffers
    from mono_runtime.hooks.deepseek_v41.weights import LayerWeights
    from mono_runtime.launch_key import Scalar

# The profiling stamps' argument; builds without stamps do not read it.
_NO_TIMELINE = {"tl": 0}


class LaunchSource(Protocol):
    """Where launches come from: what a server prepared."""

    def launch(self, name: str, rows: int, /, **variant: Scalar) -> Callable[..., Any] | None:
        """The launch of this name at this width, or None where the policy declines it.

        A launch is a `mono_runtime.launching.launch.Launch`; a launcher that was compiled on demand has no
        plan to take arguments by name from, and is refused.
        """


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank of which deployment a runner is: ``arch`` is ``gfx950`` or ``gfx942``."""

    arch: str
    tp: int
    rank: int

    def __str__(self) -> str:
        return f"DeepSeek-V4.1 runner, rank {self.rank} of {self.tp} on {self.arch}"


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


@dataclass(slots=True)
class WholeLayer:
    """A layer's launches at one width.

    Attributes:
        weights: what they are bound to; kept, as the layer is known by the object.
        key_list: between the selection and K2, where it is a launch of its own.
        caches: the numbers of the caches that were met last.
    """

    weights: LayerWeights
    k1: Run
    key_list: Run | None
    k2: Run
    caches: CacheNumbers | None = None


@dataclass(frozen=True, slots=True)
class FfnLayer:
    """A layer's FFN launch at one width."""

    weights: LayerWeights
    ffn: Run


class Launches:
    """Binds launches to a runner's buffers and a layer's weights.

    Args:
        place: the rank.
        kind: what its layers have in common.
        key_list: whether an index source's keys are listed by a launch of their own.
        source: where launches come from.
        buffers: the runner's.
        make_peer: makes peer memory, on all ranks together.
    """

    def __init__(
        self,
        place: Place,
        kind: Kind,
        source: LaunchSource,
        buffers: RunnerBuffers,
        make_peer: MakePeer,
        *,
        key_list: bool,
    ) -> None:
        self._place, self._kind, self._key_list = place, kind, key_list
        self._source, self._buffers, self._make_peer = source, buffers, make_peer
        self._met: dict[tuple[object, ...], Launch] = {}

    def whole(self, weights: LayerWeights, rows: int, *, fold: bool, index: bool) -> WholeLayer:
        """A whole layer's launches; ``index`` for an index source.

        Raises:
            LaunchMissing: there is no such launch for this width.
            ArgumentMismatch: a launch takes other arguments than this release passes.
            CaptureActive: something would have to be loaded or allocated while the stream records a graph.
        """
        kind = self._kind
        variant: dict[str, Scalar] = {
            "ratio": weights.ratio,
            "fold": fold,
            "experts": kind.experts,
            "topk": kind.topk,
            "ug_groups": kind.ug_groups,
            "swa_width": kind.swa_width,
        }
        apart = index and self._key_list
        k1 = self._get(K1, rows, {**variant, "index": index})
        # All are met before the first is bound: none is launched before the others are known to be there.
        lister = self._get(KEY_LIST, rows, {}) if apart else None
        k2 = self._get(K2, rows, {**variant, "index": index and not apart})
        return WholeLayer(
            weights,
            k1=self._bound(k1, rows, {**weights.arguments(K1), **self._of_k1()}),
            key_list=lister and self._bound(lister, rows, self._of_key_list(weights.ratio)),
            k2=self._bound(k2, rows, {**weights.arguments(K2), **self._of_k2()}),
        )

    def ffn(self, weights: LayerWeights, rows: int, topk: int) -> FfnLayer:
        """The FFN launch of a layer; its routed experts are as many as the gate has rows. Errors as for `whole`."""
        variant: dict[str, Scalar] = {"experts": weights.gate_w.shape[0], "topk": topk}
        fixed = {**weights.arguments(FFN), "rank": self._place.rank, **_NO_TIMELINE}
        return FfnLayer(weights, self._bound(self._get(FFN, rows, variant), rows, fixed))

    def _get(self, name: str, rows: int, variant: Mapping[str, Scalar]) -> Launch:
        key = (name, rows, *variant.items())
        known = self._met.get(key)
        if known is not None:
            return known
        found = self._source.launch(name, rows, **variant)
        if found is None:
            told = ", ".join(f"{n}={v}" for n, v in variant.items())
            raise LaunchMissing(
                f"no launch {name} is prepared for steps of {rows} rows ({told})",
                where=self._place,
                fix="build a store for this deployment, and let steps of other widths run the "
                "engine's own path",
            )
        if not isinstance(found, Launch):
            raise ArgumentMismatch(
                f"what was prepared as {name} has no launch plan: {type(found).__name__}",
                where=self._place,
                fix="serve from a store (MONO_POLICY=strict or stock); where launches are compiled on "
                "demand, use the engine's own runner",
            )
        self._met[key] = found
        return found

    def _bound(self, launch: Launch, rows: int, fixed: Mapping[str, object]) -> Run:
        stated = {w.argument: w.size for w in launch.plan.workspace}
        kept = self._buffers.provide(rows, stated, self._make_peer)
        return bind(launch, {**fixed, **kept})

    def _between(self) -> dict[str, object]:
        b = self._buffers
        return {"q": b.q, "kt": b.kt, "klen": b.klen, **_NO_TIMELINE}

    def _of_k1(self) -> dict[str, object]:
        b = self._buffers
        return {
            **self._between(),
            "res_out": b.res_mid,
            "post_out": b.post_mid,
            "comb_out": b.comb_mid,
            "pre_out": b.pre_mid,
            "normed_out": b.normed,
            "qr_out": b.qr,
        }

    def _of_key_list(self, ratio: int) -> dict[str, object]:
        return {"kt": self._buffers.kt, "klen": self._buffers.klen, "ratio": ratio}

    def _of_k2(self) -> dict[str, object]:
        b = self._buffers
        return {
            **self._between(),
            "zrec": b.zero_record,
            "qk_scale": QK_SCALE,
            "res_in": b.res_mid,
            "post_in": b.post_mid,
            "comb_in": b.comb_mid,
            "pre_in": b.pre_mid,
            "rank": self._place.rank,
        }
