"""What a server is told once when its launches are ready: asked for, found, loaded, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError
from mono_runtime.launch_key import LaunchKey
from mono_runtime.preload import Summary

_NAMED = 5


@dataclass(frozen=True, slots=True)
class StartupSummary:
    """One family's launches in one server process.

    Attributes:
        widths: rows of the steps that the deployment can run.
        served: those of them for which every launch is loaded.
        missing: launches that no store holds, which a server without a store would compile.
        failed: launches that a store holds and that could not be loaded, and why.
        code_objects: how many were loaded; launches share them.
        bytes: of these.
        seconds: for opening the stores, loading, and agreeing with the other ranks.
        digest: identifies the store, or the stores together.
    """

    family: str
    arch: str
    tp: int
    policy: str
    digest: str
    widths: tuple[int, ...]
    served: tuple[int, ...]
    needed: int
    found: int
    loaded: int
    code_objects: int
    bytes: int
    seconds: float
    missing: tuple[LaunchKey, ...] = ()
    failed: tuple[tuple[LaunchKey, str], ...] = ()

    @staticmethod
    def of(
        preloaded: Summary,
        *,
        family: str,
        arch: str,
        tp: int,
        policy: str,
        digest: str,
        widths: tuple[int, ...],
        served: tuple[int, ...],
        missing: Sequence[LaunchKey],
        seconds: float,
    ) -> StartupSummary:
        """From what a preload of all launches of a deployment gave."""
        absent = frozenset(missing)
        failed = tuple((f.key, _why(f.error)) for f in preloaded.failed if f.key not in absent)
        loaded = preloaded.loaded + preloaded.shared
        needed = loaded + len(preloaded.failed)
        return StartupSummary(
            family,
            arch,
            tp,
            policy,
            digest,
            widths,
            served,
            needed,
            needed - len(absent),
            loaded,
            preloaded.code_objects,
            preloaded.bytes,
            seconds,
            tuple(missing),
            failed,
        )

    @property
    def complete(self) -> bool:
        """Whether every launch that the server can ask for is loaded."""
        return self.loaded == self.needed

    def __str__(self) -> str:
        lines = [
            f"{self.family} on {self.arch}, TP {self.tp}, steps of {ranges(self.widths)} rows:"
            f" {self.needed} launches needed, {self.found} found, {self.loaded} loaded"
            f" ({self.code_objects} code objects, {self.bytes / 1e6:.1f} MB) in {self.seconds:.2f} s;"
            f" policy {self.policy}, store {self.digest}; {self._compiled()}"
        ]
        if self.served != self.widths:
            lines.append(f"  steps served from the store: {ranges(self.served)} rows")
        lines += [f"  not in the store: {key}" for key in self.missing[:_NAMED]]
        lines += [f"  not loaded: {key}: {why}" for key, why in self.failed[:_NAMED]]
        more = max(len(self.missing) - _NAMED, 0) + max(len(self.failed) - _NAMED, 0)
        return "\n".join([*lines, f"  and {more} more"] if more else lines)

    def _compiled(self) -> str:
        short = self.needed - self.loaded
        if not short:
            return f"nothing is compiled; without the store {_launches(self.needed)} would be"
        if self.policy == "jit":
            return f"{_launches(short)} will be compiled in this process, when first used"
        return f"{_launches(short)} would have to be compiled, and will not be"

    def to_json(self) -> Json:
        return {
            "family": self.family,
            "arch": self.arch,
            "tp": self.tp,
            "policy": self.policy,
            "store": self.digest,
            "widths": list(self.widths),
            "served": list(self.served),
            "needed": self.needed,
            "found": self.found,
            "loaded": self.loaded,
            "code_objects": self.code_objects,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "missing": [str(key) for key in self.missing],
            "failed": [{"key": str(key), "error": why} for key, why in self.failed],
        }


def ranges(numbers: Sequence[int]) -> str:
    """``1-4, 8, 16`` for these ascending numbers; ``no`` for none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs) or "no"


def _launches(count: int) -> str:
    return f"{count} launch{'' if count == 1 else 'es'}"


def _why(error: Exception) -> str:
    text = error.what if isinstance(error, MonoError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0]
