"""Memory and the current stream of a rank's device, as torch gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

BF16, F32, I32, U8 = "bfloat16", "float32", "int32", "uint8"


class Tensors(Protocol):
    """Memory of the rank's device, as torch gives it; types go by torch's names."""

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """A new tensor of zeros, contiguous."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """A new tensor of anything, contiguous."""

    def addresses(self, values: Sequence[int]) -> torch.Tensor:
        """A new int64 tensor with these values, there when this returns."""

    def capturing(self) -> bool:
        """Whether the calling thread's current stream records a graph."""

    def stream(self) -> int:
        """The raw current stream of the calling thread."""


class TorchTensors:
    """torch's memory on ``device``, a GPU, and torch's current stream there."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._torch = torch
        # Streams are asked for by number; a device without one is the thread's current one.
        index = torch.cuda.current_device() if device.index is None else device.index
        self._index = index
        self._device = torch.device(device.type, index)
        self._types = {name: getattr(torch, name) for name in (BF16, F32, I32, U8)}
        self.stream = _raw_stream(torch, index)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """A new tensor of zeros."""
        return self._torch.zeros(shape, dtype=self._types[dtype], device=self._device)

    def empty(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        """A new tensor of anything."""
        return self._torch.empty(shape, dtype=self._types[dtype], device=self._device)

    def addresses(self, values: Sequence[int]) -> torch.Tensor:
        """A new int64 tensor with these values; copying it waits for the device."""
        return self._torch.tensor(list(values), dtype=self._torch.int64, device=self._device)

    def capturing(self) -> bool:
        """Whether the current stream records a graph."""
        return bool(self._torch.cuda.is_current_stream_capturing())


def _raw_stream(torch: Any, index: int) -> Callable[[], int]:
    """What gives the raw current stream; without an object for it where torch has such a function."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return lambda: raw(index)
    return lambda: torch.cuda.current_stream(index).cuda_stream
