"""The policy on a miss: what to do when a launch that was asked for cannot be had from a store.

``strict``
    The error is raised at load time, before the server is ready. The default.
``stock``
    The hook declines and the engine runs its own path. Logged once per fact, and counted.
``jit``
    What the caller gave to compile with is called, if it gave something; else as ``strict``. Logged
    once per fact, and counted. Nothing is written into a store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum

from mono_runtime.errors import (
    ArgumentMismatch,
    CaptureActive,
    DriverError,
    InvalidValue,
    KernelSourcesDiffer,
    LaunchMissing,
    MonoError,
    NotResident,
    RankLost,
    RanksDisagree,
    Released,
    StoreDamaged,
    StoreError,
    StoreFormat,
    StoreMissing,
    StorePermission,
    StoreUnsafe,
    WrongDevice,
)

VARIABLE = "MONO_POLICY"


class Policy(Enum):
    """What a miss leads to; see the module."""

    STRICT = "strict"
    STOCK = "stock"
    JIT = "jit"

    @staticmethod
    def of(value: Policy | str, *, where: str | None = None) -> Policy:
        """The policy of this name; another name raises `InvalidValue` with the nearest one."""
        if isinstance(value, Policy):
            return value
        names = [p.value for p in Policy]
        text = value.strip().lower()
        if text in names:
            return Policy(text)
        import difflib

        near = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InvalidValue(
            f"unknown policy {value!r}", where=where, fix=f"{hint}known: {', '.join(names)}"
        )


def policy_from(environ: Mapping[str, str] | None = None) -> Policy:
    """What ``MONO_POLICY`` says, ``strict`` when it is unset or empty; `InvalidValue` for other names."""
    text = (os.environ if environ is None else environ).get(VARIABLE, "")
    return Policy.of(text, where=VARIABLE) if text.strip() else Policy.STRICT


class Decision(Enum):
    """The answer to one error."""

    RAISE = "raise"
    DECLINE = "decline"
    COMPILE = "compile"


def decide(policy: Policy, error: MonoError, can_compile: bool) -> Decision:
    """What ``policy`` makes of ``error``, which kept a launch from being loaded.

    Only what is wrong with a store, or with its fit to the device, has a way around. Mistakes of the
    caller, a running capture, ranks that disagree and failures of the driver are raised under every
    policy: the engine's own path would hide the first and meet the last.

    Args:
        can_compile: whether the caller gave something to compile with.
    """
    if not isinstance(error, (StoreError, WrongDevice)):
        return Decision.RAISE
    if policy is Policy.STOCK:
        return Decision.DECLINE
    # A grid that does not fit would not fit when compiled here, and would never end.
    if policy is Policy.JIT and can_compile and not isinstance(error, NotResident):
        return Decision.COMPILE
    return Decision.RAISE


# The first class that fits gives the word.
_REASONS: tuple[tuple[type[MonoError], str], ...] = (
    (LaunchMissing, "missing"),
    (StoreMissing, "absent"),
    (StorePermission, "permission"),
    (StoreDamaged, "damaged"),
    (StoreFormat, "format"),
    (StoreUnsafe, "unsafe"),
    (KernelSourcesDiffer, "sources"),
    (StoreError, "store"),
    (NotResident, "residency"),
    (WrongDevice, "device"),
    (ArgumentMismatch, "arguments"),
    (InvalidValue, "invalid"),
    (CaptureActive, "capture"),
    (Released, "released"),
    (RankLost, "ranks"),
    (RanksDisagree, "ranks"),
    (DriverError, "driver"),
)


def reason_of(error: Exception) -> str:
    """One word for ``error``'s kind, for counters: one of a small, fixed set; ``other`` for the rest."""
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "other")
