"""The choice of the backend that runs a layer's experts, with everything that was passed over and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mono_runtime.errors import MonoError
from mono_runtime.hooks.moe_oracle.backends import (
    AUTO,
    MONO,
    ActivationFormat,
    Backend,
    Platform,
)
from mono_runtime.hooks.moe_oracle.config import USE_AITER_MOE, MoeConfig
from mono_runtime.hooks.moe_oracle.mono import mono_refusals
from mono_runtime.hooks.moe_oracle.priority import priority
from mono_runtime.hooks.moe_oracle.sizes import TRTLLM_BLOCK, round_up_sizes
from mono_runtime.hooks.moe_oracle.support import Experts, Support


class BackendUnsupported(MonoError):
    """A backend that was asked for by name, or that a setting leaves no choice about, cannot run the layer."""

    exit_code = 2


class NoBackend(MonoError):
    """No backend of the platform can run the layer."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one backend, or one implementation of it, is not the one."""

    backend: Backend
    reason: str
    experts: str | None = None

    def __str__(self) -> str:
        name = f"{self.backend.value} ({self.experts})" if self.experts else self.backend.value
        return f"{name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The backend of a layer's experts.

    Attributes:
        backend: the one to use.
        experts: its implementation; None for mono launches and for platforms that bring their own.
        format: how tokens reach the experts.
        order: the backends that came into question, best first.
        rejections: what was tried or ruled out before it, in that order.
        warning: what to tell the user when a switch asked for another backend and this is the fallback.
        other_steps: with mono launches, what runs the steps that they do not serve, such as a prefill.
            It also decides the sizes of the weights.
    """

    backend: Backend
    experts: Experts | None
    format: ActivationFormat
    order: tuple[Backend, ...]
    rejections: tuple[Rejection, ...] = ()
    warning: str | None = None
    other_steps: Selection | None = None

    @property
    def fallback(self) -> bool:
        """Whether a switch asked for another backend than this."""
        return self.warning is not None

    def sizes(self, hidden: int, intermediate: int) -> tuple[int, int]:
        """The sizes to allocate this layer's weights with; see `round_up_sizes`."""
        return round_up_sizes((self.other_steps or self).backend, hidden, intermediate)

    def __str__(self) -> str:
        name = f" ({self.experts.name})" if self.experts else ""
        lines = [f"MoE backend {self.backend.value}{name}, of {_names(self.order)}"]
        if self.other_steps:
            lines.append(f"  other steps: {self.other_steps.backend.value}")
        return "\n".join([*lines, *(f"  not {r}" for r in self.rejections)])


def select(config: MoeConfig, support: Support) -> Selection:
    """The best backend for a layer: mono launches if they are offered and fit, else the engine's best.

    Raises:
        InvalidValue: ``moe_backend`` is no name that an unquantised layer knows.
        BackendUnsupported: what was asked for by name, or is without alternative, cannot run the layer.
        NoBackend: nothing of the platform can run the layer; all reasons are given.
    """
    by_name = config.moe_backend == MONO
    stock = _engine(replace(config, moe_backend=AUTO) if by_name else config, support)
    if support.mono is None and not by_name:
        return stock
    allocated = stock.sizes(config.hidden, config.intermediate)
    reasons = mono_refusals(config, support.mono, stock.backend, allocated)
    if not reasons:
        order = (Backend.MONO, *stock.order)
        return replace(
            stock, backend=Backend.MONO, experts=None, order=order, rejections=(), other_steps=stock
        )
    rejected = tuple(Rejection(Backend.MONO, reason) for reason in reasons)
    if by_name:
        raise _unsupported("was asked for by --moe-backend", Backend.MONO, rejected)
    return replace(stock, rejections=(*rejected, *stock.rejections))


def _engine(config: MoeConfig, support: Support) -> Selection:
    """What the engine's own backends come to."""
    order = priority(config)
    if config.platform in (Platform.TPU, Platform.OUT_OF_TREE):
        return Selection(order[0], None, config.format, order)
    if config.lora:
        return _with_adapters(config, support)
    if config.moonep:
        return _only(
            Backend.MOONEP, "is the one that MoonEP's weight layout allows", config, support
        )
    requested = config.requested()
    if requested is not None:
        return _only(requested, "was asked for by --moe-backend", config, support)
    return _best(config, support, order)


def _with_adapters(config: MoeConfig, support: Support) -> Selection:
    """Adapters are matched to tokens by their place, so only the standard format carries them."""
    order = (Backend.FLASHINFER_TRTLLM, Backend.TRITON)
    if config.format is not ActivationFormat.STANDARD:
        raise BackendUnsupported(
            f"experts with LoRA adapters need tokens in the standard format, not {config.format.value}",
            where=f"all-to-all backend {config.all2all}, --moe-backend {config.moe_backend}",
            fix="switch LoRA off, or choose backends that leave tokens in the standard format",
        )
    backend = Backend.FLASHINFER_TRTLLM
    chosen, rejected = _try(backend, support.lora(), config.format)
    if chosen and config.intermediate % TRTLLM_BLOCK:
        reason = f"an intermediate size of {config.intermediate} is no multiple of {TRTLLM_BLOCK}"
        rejected, chosen = (*rejected, Rejection(backend, reason, chosen.name)), None
    if chosen:
        return Selection(backend, chosen, config.format, order, rejected)
    found = _only(
        Backend.TRITON, "is the last one that applies LoRA adapters", config, support, rejected
    )
    return replace(found, order=order)


def _best(config: MoeConfig, support: Support, order: tuple[Backend, ...]) -> Selection:
    """The first backend that can, after what the environment says about AITER."""
    rejections: tuple[Rejection, ...] = ()
    warning = None
    candidates = order
    if config.switches.explicit:
        candidates = tuple(b for b in order if b is not Backend.AITER)
        off = config.switches.off
        if off is None and config.rdna_aiter:
            off = "AITER has no kernels for experts on RDNA"
        if off is not None:
            rejections = (Rejection(Backend.AITER, off),) if Backend.AITER in order else ()
        else:
            # The user wants AITER, so it is tried wherever it stands in the order, or does not.
            chosen, rejections = _try(Backend.AITER, support.engine(Backend.AITER), config.format)
            if chosen:
                return Selection(Backend.AITER, chosen, config.format, order, rejections)
            warning = (
                f"{USE_AITER_MOE} asks for AITER, which cannot run these experts "
                f"({_reasons(rejections)}). Falling back to the first that can of: {_names(candidates)}."
            )
    for backend in candidates:
        chosen, rejected = _try(backend, support.engine(backend), config.format)
        rejections = (*rejections, *rejected)
        if chosen:
            return Selection(backend, chosen, config.format, order, rejections, warning)
    raise NoBackend(
        "no MoE backend can run these unquantised experts:"
        + "".join(f"\n    {rejection}" for rejection in rejections),
        where=f"{config.platform.value}, {config.format.value} activation format",
        fix="change the settings that the reasons name, or use a checkpoint whose experts are quantised",
    )


def _only(
    backend: Backend,
    why: str,
    config: MoeConfig,
    support: Support,
    before: tuple[Rejection, ...] = (),
) -> Selection:
    """``backend`` or an error: something leaves no choice, and says why."""
    chosen, rejected = _try(backend, support.engine(backend), config.format)
    rejections = (*before, *rejected)
    if chosen is None:
        raise _unsupported(why, backend, rejections)
    return Selection(backend, chosen, config.format, (backend,), rejections)


def _try(
    backend: Backend, candidates: Iterable[Experts], layout: ActivationFormat
) -> tuple[Experts | None, tuple[Rejection, ...]]:
    """The first implementation that can run the layer, and what the ones before it said."""
    rejected: list[Rejection] = []
    for experts in candidates:
        reason = experts.refusal(layout)
        if reason is None:
            return experts, tuple(rejected)
        rejected.append(Rejection(backend, reason, experts.name))
    return None, tuple(rejected) or (Rejection(backend, "this engine has no such experts"),)


def _unsupported(why: str, backend: Backend, rejected: tuple[Rejection, ...]) -> BackendUnsupported:
    return BackendUnsupported(
        f"the MoE backend {backend.value} {why} and cannot run these experts:"
        + "".join(f"\n    {rejection}" for rejection in rejected),
        fix="ask for another backend, or for none, or change the settings that the reasons name",
    )


def _reasons(rejected: Iterable[Rejection]) -> str:
    return "; ".join(rejection.reason for rejection in rejected)


def _names(backends: Iterable[Backend]) -> str:
    return ", ".join(backend.value for backend in backends)
