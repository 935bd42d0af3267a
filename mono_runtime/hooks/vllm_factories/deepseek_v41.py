"""DeepSeek-V4.1 in vLLM: K1, K2 and the FFN launch from a store, and steps without them declined."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from mono_runtime.hooks.prepared import Prepared
from mono_runtime.hooks.vllm_factories.deepseek import DeepseekHook, Step
from mono_runtime.hooks.vllm_factories.patching import wrap
from mono_runtime.launch_key import LaunchKey, Scalar


class DeepseekV41Hook(DeepseekHook):
    """The keys are those of vLLM's ``DSV41MonoLayer.kernels`` and ``ffn_kernel``."""

    family = "deepseek_v41"
    package = "vllm.models.deepseek_v41.amd"
    needed = ("DRAFT_UG_GROUPS", "MonoDecodeLayer.ffn")
    _draft_groups: int

    def patch_decode(self, module: ModuleType) -> None:
        self._draft_groups = module.DRAFT_UG_GROUPS
        wrap(module, "MonoDecodeLayer.ffn", self._ffn)

    def step(self, mono: Any, *args: Any, **kwargs: Any) -> Step:
        layer, rows, fold = _whole(*args, **kwargs)
        if mono.ffn_only:
            return Step(layer, rows, None)
        attention = layer.attn
        variant: dict[str, Scalar] = {
            "ratio": attention.compress_ratio,
            "fold": fold,
            "index": attention.indexer is not None,
        }
        if mono.draft:
            variant |= {"experts": mono.experts, "topk": mono.topk}
            variant |= {"ug_groups": self._draft_groups, "swa_width": mono.swa_width}
        return Step(layer, rows, variant)

    def pair(self, prepared: Prepared, step: Step) -> Iterable[LaunchKey]:
        variant = dict(step.variant or {})
        yield prepared.key("k1", step.rows, **variant)
        # On gfx942 a separate kernel lists an index source's keys, so its K2 is the plain one.
        if prepared.planned.deployment.arch == "gfx942":
            variant["index"] = False
        yield prepared.key("k2", step.rows, **variant)

    def _ffn(self, wrapped: Any, mono: Any, args: Any, kwargs: Any) -> Any:
        """The FFN launch after vLLM's attention, unless it is not loaded for the step's rows."""
        prepared = self.ready
        if prepared is None or prepared.compiles:
            return wrapped(*args, **kwargs)
        layer, rows = _ffn_call(*args, **kwargs)
        if rows > self._most_rows:
            return wrapped(*args, **kwargs)
        variant = {"ratio": 0, "experts": layer.ffn.gate.weight.shape[0], "topk": mono.topk}
        why = prepared.lacking(
            ("ffn", rows, *variant.values()), lambda: [prepared.key("ffn", rows, **variant)]
        )
        return self.answer(prepared, Step(layer, rows, None), why, wrapped, mono, args, kwargs)


def _whole(
    layer: Any,
    x: Any,
    positions: Any,
    residual: Any,
    post_mix: Any,
    res_mix: Any,
    pre_mix: Any,
    engram_hashes: Any = None,
    engram_mask: Any = None,
) -> tuple[Any, int, bool]:
    """Layer, rows and fold, from the arguments of ``MonoDecodeLayer.__call__``.

    The residual arrives settled at the first layer and after an Engram; elsewhere K1 folds.
    """
    settled = residual is None or (layer.engram is not None and engram_hashes is not None)
    return layer, x.shape[0], not settled


def _ffn_call(
    layer: Any, part: Any, residual: Any, post_mix: Any, res_mix: Any, pre_mix: Any
) -> tuple[Any, int]:
    """Layer and rows, from the arguments of ``MonoDecodeLayer.ffn``."""
    return layer, part.shape[0]
