"""Which backends a platform has for unquantised experts, best first."""

from __future__ import annotations

from mono_runtime.hooks.moe_oracle.backends import Backend, Platform
from mono_runtime.hooks.moe_oracle.config import MoeConfig

_FLASHINFER = (Backend.FLASHINFER_TRTLLM, Backend.FLASHINFER_CUTLASS)
_TRITON = (Backend.TRITON, Backend.BATCHED_TRITON)

_PLATFORM = {
    Platform.ROCM: (Backend.AITER, *_TRITON),
    Platform.CUDA: (*_FLASHINFER, *_TRITON),
    # Triton is what remains where results must not depend on the batch.
    Platform.XPU: (Backend.XPU, Backend.TRITON),
    Platform.CPU: (Backend.CPU,),
    Platform.TPU: (Backend.TPU,),
    Platform.OUT_OF_TREE: (Backend.OUT_OF_TREE,),
}


def demotions(config: MoeConfig) -> tuple[Backend, ...]:
    """Backends that go behind all others although the platform has them, in that order."""
    if config.platform is not Platform.CUDA:
        return ()
    # Triton is faster on Hopper. FlashInfer computes plain SwiGLU where gpt-oss's variant was asked for.
    if config.hopper or config.activation == "swigluoai":
        return _FLASHINFER
    # CUTLASS has crashed with data-parallel experts.
    return (Backend.FLASHINFER_CUTLASS,) if config.data_parallel > 1 else ()


def priority(config: MoeConfig) -> tuple[Backend, ...]:
    """The engine's own backends of the platform, best first. Mono launches are in front of them."""
    last = demotions(config)
    return (*(b for b in _PLATFORM[config.platform] if b not in last), *last)
