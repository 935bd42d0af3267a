"""Which backend runs a layer's experts, what sizes its weights get, and what keeps their padding zero.

`select` is a pure function of a `MoeConfig` and a `Support`; `engine` reads both from vLLM's objects.
"""

from __future__ import annotations

from mono_runtime.hooks.moe_oracle.backends import ActivationFormat, Backend, Platform
from mono_runtime.hooks.moe_oracle.config import AiterSwitches, MoeConfig
from mono_runtime.hooks.moe_oracle.padding import zero_padding
from mono_runtime.hooks.moe_oracle.selection import (
    BackendUnsupported,
    NoBackend,
    Rejection,
    Selection,
    select,
)
from mono_runtime.hooks.moe_oracle.sizes import (
    aiter_intermediate_alignment,
    intermediate_alignment,
    round_up_sizes,
)
from mono_runtime.hooks.moe_oracle.support import Experts, MonoOffer, Support

__all__ = [
    "ActivationFormat",
    "AiterSwitches",
    "Backend",
    "BackendUnsupported",
    "Experts",
    "MoeConfig",
    "MonoOffer",
    "NoBackend",
    "Platform",
    "Rejection",
    "Selection",
    "Support",
    "aiter_intermediate_alignment",
    "intermediate_alignment",
    "round_up_sizes",
    "select",
    "zero_padding",
]
