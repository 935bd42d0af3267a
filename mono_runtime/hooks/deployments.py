"""Which launches a server asks for, from its configuration: a family and a deployment, or every reason why none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from mono_runtime.families.base import Deployment, FamilyKeys
from mono_runtime.families.fields import Field, Setting, problem_with
from mono_runtime.hooks.engine_config import EngineConfig
from mono_runtime.hooks.planning import deepseek_v4, deepseek_v41, kimi_k3, minimax_m3
from mono_runtime.hooks.planning.wanted import Wanted
from mono_runtime.launch_key import LaunchKey


@dataclass(frozen=True, slots=True)
class Planned:
    """A server whose mono kernels are on and can run.

    Attributes:
        family: with the layers of the server's checkpoint.
        keys: every launch that the server can ask for.
        notes: what an operator should know, such as settings that make many widths possible.
    """

    family: FamilyKeys
    deployment: Deployment
    keys: tuple[LaunchKey, ...]
    notes: tuple[str, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """Rows of the steps that run the launches, ascending."""
        return self.family.widths(self.deployment)


@dataclass(frozen=True, slots=True)
class NotServed:
    """A server that runs no launch of this project's families.

    Attributes:
        reasons: every one.
        family: whose model the server runs, or None when it is none of ours.
        asked: whether mono kernels were asked for; if not, that is the only reason.
    """

    reasons: tuple[str, ...]
    family: str | None = None
    asked: bool = False


class _Planner(Protocol):
    @property
    def ARCHITECTURES(self) -> tuple[str, ...]: ...

    @property
    def MODEL_TYPES(self) -> tuple[str, ...]: ...

    def switched_off(self, config: EngineConfig) -> str | None: ...

    def wanted(self, config: EngineConfig, arch: str) -> Wanted: ...


_PLANNERS: dict[str, _Planner] = {
    "deepseek_v41": deepseek_v41,
    "deepseek_v4": deepseek_v4,
    "kimi_k3": kimi_k3,
    "minimax_m3": minimax_m3,
}


def plan_deployment(config: EngineConfig, arch: str) -> Planned | NotServed:
    """The launches of a server of this configuration on ``arch`` (a base name such as ``gfx950``).

    Raises:
        EngineConfigError: a fact of the model's configuration is of another type than it has to be.
    """
    name = family_of(config)
    if name is None:
        model = ", ".join((config.model_type, *config.architectures))
        return NotServed((f"no family has launches for this model ({model})",))
    planner = _PLANNERS[name]
    off = planner.switched_off(config)
    if off:
        return NotServed((off,), name)
    found = planner.wanted(config, arch)
    refusal = found.family.refusal(arch, config.tensor_parallel)
    reasons = [*([refusal] if refusal else []), *found.reasons, *_illegal(found)]
    if reasons:
        return NotServed(tuple(dict.fromkeys(reasons)), name, asked=True)
    deployment = found.family.deployment(arch, config.tensor_parallel, found.settings)
    reasons += found.family.deployment_conflicts(deployment)
    keys = [] if reasons else found.family.deployment_keys(deployment)
    illegal: dict[str, LaunchKey] = {}
    for key in keys:
        for why in found.family.problems(key):
            # One wrong fact makes many launches illegal; one of them is enough to tell it.
            illegal.setdefault(why, key)
    reasons += [f"{key}: {why}" for why, key in illegal.items()]
    if reasons:
        return NotServed(tuple(dict.fromkeys(reasons)), name, asked=True)
    return Planned(found.family, deployment, tuple(keys), tuple(found.notes))


def family_of(config: EngineConfig) -> str | None:
    """The family of the model that a server runs, or None when there is none."""
    for name, planner in _PLANNERS.items():
        if config.model_type in planner.MODEL_TYPES:
            return name
    for name, planner in _PLANNERS.items():
        if set(config.architectures) & set(planner.ARCHITECTURES):
            return name
    return None


def _illegal(found: Wanted) -> Iterator[str]:
    known: Mapping[str, Field] = {f.name: f for f in found.family.deployment_fields}
    for name, value in found.settings.items():
        values: tuple[Setting, ...] = value if isinstance(value, tuple) else (value,)
        problems = (problem_with(known[name], v) for v in values)
        yield from (p for p in problems if p)
