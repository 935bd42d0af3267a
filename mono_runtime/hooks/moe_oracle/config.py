"""What decides which backend runs a layer's experts: facts about the layer, the deployment, the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle.backends import (
    AUTO,
    MONO,
    QUANTISED_ONLY,
    REQUESTS,
    ActivationFormat,
    Backend,
    Platform,
)

USE_AITER = "VLLM_ROCM_USE_AITER"
USE_AITER_MOE = "VLLM_ROCM_USE_AITER_MOE"


@dataclass(frozen=True, slots=True)
class AiterSwitches:
    """vLLM's two switches for AITER; None where a variable is not set, which is not the same as off."""

    aiter: bool | None = None
    experts: bool | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> AiterSwitches:
        """The switches of an environment. As in vLLM, ``1`` and ``true`` are on and all else is off."""

        def switch(name: str) -> bool | None:
            text = environ.get(name)
            return None if text is None else text.lower() in ("1", "true")

        return cls(switch(USE_AITER), switch(USE_AITER_MOE))

    @property
    def explicit(self) -> bool:
        """Whether the user said anything about AITER at all."""
        return self.aiter is not None or self.experts is not None

    @property
    def off(self) -> str | None:
        """Which variable keeps AITER's experts off, or None. Unset: AITER is off, its experts are on."""
        if not self.aiter:
            return f"{USE_AITER} is {'not set' if self.aiter is None else 'off'}"
        return f"{USE_AITER_MOE} is off" if self.experts is False else None


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """One unquantised layer with experts, as the oracle sees it.

    Attributes:
        platform: what the process runs on.
        hidden, intermediate: sizes in elements; the intermediate size is one rank's, without padding.
        activation: vLLM's name of it, such as ``silu``, ``swigluoai``, ``relu2_no_mul``.
        moe_backend: the user's ``--moe-backend``.
        all2all: the all-to-all backend, for messages.
        batched: the all-to-all hands tokens over in the batched format.
        moonep: MoonEP's all-to-all is in use, which lays the experts' weights out its own way.
        data_parallel: data-parallel size.
        lora: adapters can be applied to the experts.
        hopper: CUDA compute capability 9.x.
        rdna_aiter: AITER is on, on an RDNA GPU, where it has no kernels for experts.
        switches: AITER's environment variables.
    """

    platform: Platform
    hidden: int
    intermediate: int
    activation: str = "silu"
    moe_backend: str = AUTO
    all2all: str | None = None
    batched: bool = False
    moonep: bool = False
    data_parallel: int = 1
    lora: bool = False
    hopper: bool = False
    rdna_aiter: bool = False
    switches: AiterSwitches = field(default_factory=AiterSwitches)

    @property
    def format(self) -> ActivationFormat:
        """The format in which tokens reach the experts. ``batched_triton`` asks for the batched one."""
        if self.batched or self.moe_backend == "batched_triton":
            return ActivationFormat.BATCHED
        return ActivationFormat.STANDARD

    def requested(self) -> Backend | None:
        """The engine's backend that the user asked for by name, or None for the best one.

        Raises:
            InvalidValue: the name is none that an unquantised layer knows.
        """
        if self.moe_backend == AUTO or self.moe_backend in QUANTISED_ONLY:
            return None
        backend = REQUESTS.get(self.moe_backend)
        if backend is None:
            names = ", ".join([AUTO, MONO, *REQUESTS, *QUANTISED_ONLY])
            raise InvalidValue(
                f"the MoE backend {self.moe_backend!r} runs no unquantised experts",
                where="--moe-backend",
                fix=f"use one of: {names}",
            )
        if backend is Backend.TRITON and self.format is ActivationFormat.BATCHED:
            return Backend.BATCHED_TRITON
        return backend
