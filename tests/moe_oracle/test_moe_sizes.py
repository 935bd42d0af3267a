"""What expert weights are allocated with. The literals are AITER's and FlashInfer's tiles, by hand."""

from __future__ import annotations

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle import (
    Backend,
    aiter_intermediate_alignment,
    round_up_sizes,
)


@pytest.mark.parametrize(
    ("intermediate", "alignment"),
    [(1, 64), (64, 64), (191, 64), (192, 64), (193, 128), (256, 128), (4096, 128)],
)
def test_aiter_tiles_in_64_up_to_192_and_in_128_above(intermediate: int, alignment: int) -> None:
    assert aiter_intermediate_alignment(intermediate) == alignment


@pytest.mark.parametrize(
    ("backend", "intermediate", "allocated"),
    [
        (Backend.AITER, 1, 64),
        (Backend.AITER, 64, 64),
        (Backend.AITER, 65, 128),
        (Backend.AITER, 129, 192),
        (Backend.AITER, 192, 192),
        (Backend.AITER, 193, 256),
        (Backend.AITER, 256, 256),
        (Backend.AITER, 704, 768),
        (Backend.FLASHINFER_TRTLLM, 1, 128),
        (Backend.FLASHINFER_TRTLLM, 192, 256),
        (Backend.FLASHINFER_TRTLLM, 768, 768),
        (Backend.FLASHINFER_CUTLASS, 193, 193),
        (Backend.TRITON, 193, 193),
        (Backend.BATCHED_TRITON, 193, 193),
        (Backend.MONO, 193, 193),
        (Backend.MOONEP, 193, 193),
        (Backend.XPU, 193, 193),
        (Backend.CPU, 193, 193),
        (Backend.TPU, 193, 193),
        (Backend.OUT_OF_TREE, 193, 193),
    ],
)
def test_sizes_are_rounded_for_the_backend(
    backend: Backend, intermediate: int, allocated: int
) -> None:
    assert round_up_sizes(backend, 2880, intermediate) == (2880, allocated)


@pytest.mark.parametrize(("hidden", "intermediate"), [(0, 64), (4096, 0), (-1, 64), (4096, -128)])
def test_a_size_that_is_not_positive_is_refused(hidden: int, intermediate: int) -> None:
    with pytest.raises(InvalidValue, match="size of an expert is"):
        round_up_sizes(Backend.AITER, hidden, intermediate)
