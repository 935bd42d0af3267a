"""What the hook asks of the process it runs in: vLLM's functions, its device and its ranks.

vLLM is imported when it is first asked something, which happens in a server's worker alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol


class Engine(Protocol):
    """A vLLM worker, as far as the hook depends on it."""

    def arch(self) -> str:
        """Base name of the device's architecture, such as ``gfx950``."""

    def compute_units(self) -> int:
        """Compute units of the device."""

    def tp(self) -> int:
        """Ranks that share a layer."""

    def rank(self) -> int:
        """This one's number among them."""

    def group(self) -> object:
        """Their CPU process group."""

    def device(self) -> int:
        """Ordinal of the device."""

    def a4w4(self) -> bool:
        """Whether AITER's MoE is switched to FP4 activations."""

    def indexer_class(self, arch: str) -> type:
        """The class whose indexers take K1's normed input and bfloat16 query on ``arch``."""

    def draft_width(self, window: int, drafts: int) -> int:
        """Index slots that a draft row's window has in the step's metadata."""

    def forward_context(self) -> Any:
        """The running forward pass's context, or None outside of one."""

    def capturing(self) -> bool:
        """Whether the current stream records a graph."""

    def record_switch(self, vllm_config: Any) -> None:
        """Tell vLLM's gfx942 decode helpers whether mono kernels are on."""

    def build_topk(self) -> None:
        """Let vLLM have its gfx942 top-k ready; without it vLLM's usual one runs."""


class VllmEngine:
    """The process's own vLLM, version 0.33."""

    def arch(self) -> str:
        import torch

        name: str = torch.cuda.get_device_properties(self.device()).gcnArchName
        return name.partition(":")[0].lower()

    def compute_units(self) -> int:
        from vllm.platforms import current_platform

        units: int = current_platform.num_compute_units(self.device())
        return units

    def tp(self) -> int:
        from vllm.distributed import get_tensor_model_parallel_world_size

        size: int = get_tensor_model_parallel_world_size()
        return size

    def rank(self) -> int:
        from vllm.distributed import get_tensor_model_parallel_rank

        rank: int = get_tensor_model_parallel_rank()
        return rank

    def group(self) -> object:
        from vllm.distributed import get_tp_group

        group: object = get_tp_group().cpu_group
        return group

    def device(self) -> int:
        import torch

        index: int = torch.accelerator.current_device_index()
        return index

    def a4w4(self) -> bool:
        from vllm import envs

        return bool(envs.VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4)

    def indexer_class(self, arch: str) -> type:
        # The MXFP4 indexer's cache needs CDNA4; CDNA3 has the FP8 one, a subclass or itself.
        if arch == "gfx942":
            from vllm.models.deepseek_v41.attention import DeepseekV4Indexer as Indexer
        else:
            from vllm.models.deepseek_v41.amd.rocm import DeepseekV41RocmMxfp4Indexer as Indexer
        found: type = Indexer
        return found

    def draft_width(self, window: int, drafts: int) -> int:
        from vllm.v1.attention.backends.mla.compressor_utils import get_dspark_swa_index_width

        width: int = get_dspark_swa_index_width(window, drafts)
        return width

    @cached_property
    def _context(self) -> Any:
        # Asked by each layer of each step; an import statement there would be looked up each time.
        from vllm import forward_context

        return forward_context

    def forward_context(self) -> Any:
        context = self._context
        if not context.is_forward_context_available():
            return None
        return context.get_forward_context()

    def capturing(self) -> bool:
        import torch

        return bool(torch.cuda.is_current_stream_capturing())

    def record_switch(self, vllm_config: Any) -> None:
        from vllm.models.deepseek_v41.amd import ops

        ops.record_monokernel(vllm_config)

    def build_topk(self) -> None:
        from vllm.models.deepseek_v41.amd.ops import topk

        topk.build()
