"""The sizes that a layer's expert weights are allocated with, as the backend that reads them needs them."""

from __future__ import annotations

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle.backends import Backend

# AITER's two-stage kernels tile the intermediate size in 64 up to 192 and in 128 above; they refuse
# a size that is no multiple of the tile.
_SMALL_TILE, _SMALL_TILE_UP_TO, _LARGE_TILE = 64, 192, 128
# FlashInfer's block-major weights have blocks of 128 along the intermediate size.
TRTLLM_BLOCK = 128


def aiter_intermediate_alignment(intermediate: int) -> int:
    """What AITER needs the intermediate size of one rank to be a multiple of: 64 up to 192, else 128."""
    return _SMALL_TILE if intermediate <= _SMALL_TILE_UP_TO else _LARGE_TILE


def intermediate_alignment(backend: Backend, intermediate: int) -> int:
    """What ``backend`` needs the intermediate size of one rank to be a multiple of."""
    if backend is Backend.AITER:
        return aiter_intermediate_alignment(intermediate)
    return TRTLLM_BLOCK if backend is Backend.FLASHINFER_TRTLLM else 1


def round_up_sizes(backend: Backend, hidden: int, intermediate: int) -> tuple[int, int]:
    """The sizes to allocate expert weights with, in elements.

    Args:
        backend: what will read the weights.
        hidden: the hidden size. No backend here needs it rounded.
        intermediate: the intermediate size of one rank, which is what the checkpoint fills.

    Returns:
        ``(hidden, intermediate)``, the latter rounded up. A mono launch is compiled for the sizes of
        its model, so it rounds nothing.

    Raises:
        InvalidValue: a size that is not positive.
    """
    for name, size in (("hidden", hidden), ("intermediate", intermediate)):
        if size < 1:
            raise InvalidValue(
                f"the {name} size of an expert is {size}",
                fix="sizes are positive; the intermediate size is that of one rank",
            )
    step = intermediate_alignment(backend, intermediate)
    return hidden, -(-intermediate // step) * step
