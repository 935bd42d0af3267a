"""DeepSeek-V4-Pro in vLLM: K1 and K2 from a store, and steps without them declined."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mono_runtime.hooks.vllm_factories.deepseek import DeepseekHook, Step
from mono_runtime.launch_key import Scalar


class DeepseekV4Hook(DeepseekHook):
    """The keys are those of vLLM's ``MonoRunner.kernels``."""

    family = "deepseek_v4"
    package = "vllm.models.deepseek_v4.amd"
    needed = ("HCA",)
    _hca: int

    def patch_decode(self, module: ModuleType) -> None:
        self._hca = module.HCA

    def step(self, mono: Any, *args: Any, **kwargs: Any) -> Step:
        layer, rows, fold = _whole(*args, **kwargs)
        ratio = layer.attn.compress_ratio
        variant: dict[str, Scalar] = {
            "ratio": ratio,
            "fold": fold,
            "hash_route": layer.ffn.gate.tid2eid is not None,
        }
        if ratio == self._hca:
            variant |= {"topk": mono.hca_width, "global_keys": True}
        return Step(layer, rows, variant)


def _whole(
    layer: Any,
    x: Any,
    positions: Any,
    input_ids: Any,
    post_mix: Any,
    res_mix: Any,
    residual: Any,
) -> tuple[Any, int, bool]:
    """Layer, rows and fold, from the arguments of ``MonoDecodeLayer.__call__``."""
    return layer, x.shape[0], residual is not None
