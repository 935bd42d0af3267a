"""Why prebuilt mono launches do not run a layer's experts, beyond what the layer itself declines for."""

from __future__ import annotations

from mono_runtime.hooks.moe_oracle.backends import (
    AUTO,
    MONO,
    QUANTISED_ONLY,
    ActivationFormat,
    Backend,
    Platform,
)
from mono_runtime.hooks.moe_oracle.config import MoeConfig
from mono_runtime.hooks.moe_oracle.support import MonoOffer

_SHOWN = 3


def mono_refusals(
    config: MoeConfig, offer: MonoOffer | None, other: Backend, allocated: tuple[int, int]
) -> tuple[str, ...]:
    """Every reason against mono launches, none if they run the layer.

    Args:
        config: the layer.
        offer: the launches, None when no store is configured.
        other: the backend of the steps that the launches do not serve.
        allocated: hidden and intermediate size of the weights that ``other`` reads.
    """
    if offer is None:
        return ("no store is configured",)
    # AITER's switches are not asked: they are for AITER's own kernels.
    named = config.moe_backend not in (AUTO, MONO, *QUANTISED_ONLY)
    sizes = (config.hidden, config.intermediate)
    rules = (
        (config.platform is not Platform.ROCM, "mono launches are for ROCm"),
        (named, f"--moe-backend {config.moe_backend} asks for another backend"),
        (config.lora, "the launches apply no LoRA adapters"),
        (config.moonep, "MoonEP lays the experts' weights out its own way"),
        (
            config.format is not ActivationFormat.STANDARD,
            f"tokens arrive in the {config.format.value} format",
        ),
        (
            not offer.own_weights and allocated != sizes,
            f"{other.value} pads the weights from {_size(sizes)} to {_size(allocated)}",
        ),
        (bool(offer.missing), f"the store lacks {_listed(offer.missing)}"),
    )
    return (*(reason for applies, reason in rules if applies), *offer.declines)


def _size(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]} x {sizes[1]}"


def _listed(launches: tuple[str, ...]) -> str:
    more = f" and {len(launches) - _SHOWN} more" if len(launches) > _SHOWN else ""
    return ", ".join(launches[:_SHOWN]) + more
