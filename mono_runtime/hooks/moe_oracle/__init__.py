"""Which backend runs a layer's experts, what sizes its weights get, and what keeps their padding zero."""

from __future__ import annotations

from mono_runtime.hooks.moe_oracle.backends import Backend
from mono_runtime.hooks.moe_oracle.sizes import (
    aiter_intermediate_alignment,
    intermediate_alignment,
    round_up_sizes,
)

__all__ = [
    "Backend",
    "aiter_intermediate_alignment",
    "intermediate_alignment",
    "round_up_sizes",
]
