"""What the oracle is told from outside: who can run this layer, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mono_runtime.hooks.moe_oracle.backends import ActivationFormat, Backend

Check = Callable[[ActivationFormat], "str | None"]


@dataclass(frozen=True, slots=True)
class Experts:
    """One implementation of a backend.

    Attributes:
        name: what messages call it; for an engine's own the name of its class.
        refusal: why it cannot run the layer when tokens arrive in this format, or None if it can.
        implementation: what the caller wants back when it is chosen; the oracle does not look at it.
    """

    name: str
    refusal: Check
    implementation: object = None


@dataclass(frozen=True, slots=True)
class MonoOffer:
    """The prebuilt mono launches of a deployment, offered for one layer.

    Attributes:
        missing: the launches that the deployment asks for and the store lacks, as text.
        declines: why the layer or the deployment does not qualify for them.
        own_weights: the launches read copies of the weights that are made for them. If not, they read
            the engine's weights, which then must have no padding.
    """

    missing: tuple[str, ...] = ()
    declines: tuple[str, ...] = ()
    own_weights: bool = False


@dataclass(frozen=True, slots=True)
class Support:
    """All that can run a layer's experts.

    The two functions are called only for backends that come into question, because an engine may not
    be able to import what belongs to another platform.

    Attributes:
        engine: the engine's implementations of a backend, in the order to try; none if it has none.
        lora: FlashInfer TRTLLM's implementations that apply adapters, in the order to try.
        mono: prebuilt launches for this layer, or None when no store is configured.
    """

    engine: Callable[[Backend], tuple[Experts, ...]]
    lora: Callable[[], tuple[Experts, ...]] = tuple
    mono: MonoOffer | None = None
