"""Which of vLLM's modules each family's hook changes; the hooks are imported when one of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mono_runtime.hooks.serving import Serving
    from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook

_MODELS = "vllm.models"
# In every family the module that defines something stands before those that import it.
MODULES: Mapping[str, tuple[str, ...]] = {
    "deepseek_v41": (
        f"{_MODELS}.deepseek_v41.amd.mono.layer",
        f"{_MODELS}.deepseek_v41.amd.mono.runner",
        f"{_MODELS}.deepseek_v41.amd.mono_decode",
    ),
    "deepseek_v4": (
        f"{_MODELS}.deepseek_v4.amd.mono.layer",
        f"{_MODELS}.deepseek_v4.amd.mono.runner",
        f"{_MODELS}.deepseek_v4.amd.mono_decode",
    ),
    "kimi_k3": (
        f"{_MODELS}.kimi_k3.amd.specialized_decode.mono.attention.kda",
        f"{_MODELS}.kimi_k3.amd.specialized_decode.mono.layer",
        f"{_MODELS}.kimi_k3.amd.specialized_decode.runtime",
        f"{_MODELS}.kimi_k3.amd.specialized_decode.runtime.layers",
        f"{_MODELS}.kimi_k3.amd.specialized_decode.runtime.decode",
        f"{_MODELS}.kimi_k3.amd.linear",
    ),
    "minimax_m3": (
        f"{_MODELS}.minimax_m3.amd.specialized_decode.mono.ffn",
        f"{_MODELS}.minimax_m3.amd.specialized_decode.mono.residency",
        f"{_MODELS}.minimax_m3.amd.specialized_decode.mono.runner",
        f"{_MODELS}.minimax_m3.amd.specialized_decode.runtime.spec",
        f"{_MODELS}.minimax_m3.amd.specialized_decode.runtime",
        f"{_MODELS}.minimax_m3.amd.specialized_decode",
        f"{_MODELS}.minimax_m3.amd.model",
    ),
}


def family_hook(family: str, serving: Serving) -> FamilyHook:
    """The hook of ``family``, which serves what ``serving`` has."""
    from mono_runtime.hooks.vllm_factories.deepseek_v4 import DeepseekV4Hook
    from mono_runtime.hooks.vllm_factories.deepseek_v41 import DeepseekV41Hook
    from mono_runtime.hooks.vllm_factories.kimi_k3 import KimiK3Hook
    from mono_runtime.hooks.vllm_factories.minimax_m3 import MinimaxM3Hook

    kinds = (DeepseekV41Hook, DeepseekV4Hook, KimiK3Hook, MinimaxM3Hook)
    return next(kind for kind in kinds if kind.family == family)(serving)
