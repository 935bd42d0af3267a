"""The ways to run the experts of an unquantised mixture-of-experts layer, and what users call them."""

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


class Platform(Enum):
    """What vLLM runs on; ``OUT_OF_TREE`` is a platform plug-in, which brings its own experts."""

    ROCM = "rocm"
    CUDA = "cuda"
    XPU = "xpu"
    CPU = "cpu"
    TPU = "tpu"
    OUT_OF_TREE = "oot"


class ActivationFormat(Enum):
    """How tokens reach the experts: one row a token, or one block of rows an expert."""

    STANDARD = "standard"
    BATCHED = "batched_experts"


AUTO = "auto"
# vLLM's option does not accept this one; it is for callers of this module who want prebuilt launches
# or an error.
MONO = "mono"

# vLLM's option takes these for every layer of a model. They run quantised weights only, so a layer
# that is not quantised (excluded by the checkpoint, or a draft's) is chosen for as if nothing was asked.
QUANTISED_ONLY = ("humming", "marlin")

# Values of vLLM's ``--moe-backend`` that name one of the engine's backends for an unquantised layer.
REQUESTS = {
    "aiter": Backend.AITER,
    "triton": Backend.TRITON,
    "batched_triton": Backend.BATCHED_TRITON,
    "flashinfer_trtllm": Backend.FLASHINFER_TRTLLM,
    "flashinfer_cutlass": Backend.FLASHINFER_CUTLASS,
}
