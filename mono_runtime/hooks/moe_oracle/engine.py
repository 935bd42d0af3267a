"""vLLM's own objects as the oracle's config and support; the only module of it that knows vLLM."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle.backends import ActivationFormat, Backend, Platform
from mono_runtime.hooks.moe_oracle.config import AiterSwitches, MoeConfig
from mono_runtime.hooks.moe_oracle.support import Experts, MonoOffer, Support

_PLATFORMS = {
    # TPU and plug-ins first: a plug-in may also answer for the platform that it builds on.
    "is_tpu": Platform.TPU,
    "is_out_of_tree": Platform.OUT_OF_TREE,
    "is_rocm": Platform.ROCM,
    "is_cuda": Platform.CUDA,
    "is_xpu": Platform.XPU,
    "is_cpu": Platform.CPU,
}


def read_platform(platform: object) -> Platform:
    """What vLLM's ``current_platform`` is.

    Raises:
        InvalidValue: none that has backends for experts.
    """
    for method, found in _PLATFORMS.items():
        if getattr(platform, method)():
            return found
    raise InvalidValue(
        f"vLLM's platform {type(platform).__name__} has no MoE backends",
        fix="start on ROCm, CUDA, XPU, CPU or TPU, or with a platform plug-in",
    )


def read_moe_config(
    layer: Any, platform: Any, *, rdna_aiter: bool, environ: Mapping[str, str] = os.environ
) -> MoeConfig:
    """A `MoeConfig` from vLLM's ``FusedMoEConfig``.

    Args:
        layer: the layer's ``FusedMoEConfig``.
        platform: vLLM's ``current_platform``.
        rdna_aiter: vLLM's ``rocm_aiter_ops.is_rdna_aiter_enabled()``.
        environ: where AITER's switches are read.

    Raises:
        InvalidValue: see `read_platform`.
    """
    parallel = layer.moe_parallel_config
    kind = read_platform(platform)
    return MoeConfig(
        platform=kind,
        hidden=layer.hidden_dim_unpadded,
        intermediate=layer.intermediate_size_per_partition_unpadded,
        activation=layer.activation.value,
        moe_backend=layer.moe_backend,
        all2all=parallel.all2all_backend,
        batched=bool(parallel.use_batched_activation_format),
        moonep=bool(parallel.use_moonep_kernels),
        data_parallel=parallel.dp_size,
        lora=layer.is_lora_enabled,
        hopper=kind is Platform.CUDA and bool(platform.is_device_capability_family(90)),
        rdna_aiter=rdna_aiter,
        switches=AiterSwitches.read(environ),
    )


def read_support(layer: Any, oracle: Any, lora: Callable[[], type], formats: Any) -> Support:
    """Who can run a layer, by the support checks of vLLM's own classes.

    Args:
        layer: the layer's ``FusedMoEConfig``.
        oracle: vLLM's module ``fused_moe.oracle.unquantized``.
        lora: gives vLLM's ``TrtLlmBf16LoRAExperts``.
        formats: vLLM's ``FusedMoEActivationFormat``.
    """
    members = {member.value: member for member in oracle.UnquantizedMoeBackend}

    def experts(implementation: Any) -> Experts:
        def refusal(layout: ActivationFormat) -> str | None:
            layout = formats((layout.value,))
            able, reason = implementation.is_supported_config(
                implementation, layer, None, None, layout
            )
            return None if able else reason or "it does not support the deployment"

        return Experts(implementation.__name__, refusal, implementation)

    def engine(backend: Backend) -> tuple[Experts, ...]:
        member = members.get(backend.value)
        return tuple(map(experts, oracle.backend_to_kernel_cls(member))) if member else ()

    return Support(engine, lambda: (experts(lora()),))


def of_layer(layer: Any, mono: MonoOffer | None = None) -> tuple[MoeConfig, Support]:
    """The arguments of `select` for a layer, in a process of vLLM.

    Args:
        layer: the layer's ``FusedMoEConfig``.
        mono: prebuilt launches for it, None when no store is configured.
    """
    import vllm.model_executor.layers.fused_moe.modular_kernel as modular_kernel
    from vllm._aiter_ops import rocm_aiter_ops
    from vllm.model_executor.layers.fused_moe.oracle import unquantized
    from vllm.platforms import current_platform

    def lora() -> type:
        from vllm.model_executor.layers.fused_moe.experts import trtllm_lora_moe

        return cast(type, trtllm_lora_moe.TrtLlmBf16LoRAExperts)

    rdna = bool(rocm_aiter_ops.is_rdna_aiter_enabled())
    config = read_moe_config(layer, current_platform, rdna_aiter=rdna)
    support = read_support(layer, unquantized, lora, modular_kernel.FusedMoEActivationFormat)
    return config, replace(support, mono=mono)
