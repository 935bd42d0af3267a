"""The hooks of all families that vLLM ships."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mono_runtime.hooks.vllm_factories.deepseek_v4 import DeepseekV4Hook
from mono_runtime.hooks.vllm_factories.deepseek_v41 import DeepseekV41Hook
from mono_runtime.hooks.vllm_factories.kimi_k3 import KimiK3Hook
from mono_runtime.hooks.vllm_factories.minimax_m3 import MinimaxM3Hook

if TYPE_CHECKING:
    from mono_runtime.hooks.serving import Serving
    from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook


def family_hooks(serving: Serving) -> tuple[FamilyHook, ...]:
    """One hook a family, all of the same process."""
    kinds = (DeepseekV41Hook, DeepseekV4Hook, KimiK3Hook, MinimaxM3Hook)
    return tuple(kind(serving) for kind in kinds)
