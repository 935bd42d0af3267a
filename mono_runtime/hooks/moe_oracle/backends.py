"""The ways to run the experts of an unquantised mixture-of-experts layer."""

from __future__ import annotations

from enum import Enum


class Backend(Enum):
    """A backend; the value is how messages and vLLM's own log lines name it (``MONO`` is ours)."""

    MONO = "mono launch"
    AITER = "ROCm AITER"
    TRITON = "TRITON"
    BATCHED_TRITON = "BATCHED_TRITON"
    FLASHINFER_TRTLLM = "FlashInfer TRTLLM"
    FLASHINFER_CUTLASS = "FlashInfer CUTLASS"
    MOONEP = "MOONEP"
    XPU = "XPU"
    CPU = "CPU"
    TPU = "TPU"
    OUT_OF_TREE = "OOT"
