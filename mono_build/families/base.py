"""What a family is: its launches with their build keys, and the keys that a deployment asks for."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mono_runtime.launch_key import LaunchKey, Scalar


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of a build key or of a deployment, with what it may be.

    Attributes:
        type: ``int``, ``bool``, ``float`` or ``str``.
        default: its value when left out; None makes it required.
        choices: the legal values, when they can be listed.
        minimum, maximum: inclusive bounds of a number.
    """

    name: str
    type: type
    doc: str
    default: Scalar | None = None
    choices: tuple[Scalar, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch of a family.

    Attributes:
        fields: the build key, every field.
        key_class: ``module:Class`` of the kernels' own key dataclass, built from the fields.
        factory: ``module:function`` that takes that key and returns the FlyDSL launcher.
        persistent: whether its workgroups wait for each other, so that all must be resident.
    """

    name: str
    doc: str
    fields: tuple[Field, ...]
    key_class: str
    factory: str
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a server is started with, for one architecture and TP size.

    Attributes:
        arch: base architecture name.
        tp: tensor-parallel size.
        settings: the family's deployment fields, complete and checked.
        rows: explicit widths that replace the computed ones, or empty.
    """

    arch: str
    tp: int
    settings: Mapping[str, Scalar | tuple[int, ...]] = field(default_factory=dict)
    rows: tuple[int, ...] = ()


class Family(ABC):
    """One model's launches. A family from outside registers an instance as a ``mono_build.families`` entry point."""

    name: str
    title: str
    # The distribution that the kernels come from, and the packages of it whose code may run: their
    # parents are imported as bare namespaces, so no engine is started.
    source: str
    packages: tuple[str, ...]
    # Legal TP sizes of each architecture; an architecture that is absent is refused with a reason.
    targets: Mapping[str, tuple[int, ...]]
    # Why an architecture is absent, by name.
    refusals: Mapping[str, str] = {}
    launches: tuple[LaunchSpec, ...]
    # What a manifest's ``deployment`` section may set.
    deployment_fields: tuple[Field, ...]
    # Environment variables that change this family's code; all others are hidden from the kernels.
    environment: tuple[str, ...] = ()
    # Whether the kernels import AITER's FlyDSL helper modules.
    needs_aiter: bool = True

    @abstractmethod
    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        """Every launch key that a server of this deployment can ask for."""

    @abstractmethod
    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        """The step widths (rows) of this deployment, ascending."""

    def conflicts(self, key: LaunchKey) -> list[str]:
        """Reasons why a key with legal single values is illegal as a whole."""
        return []

    def cost(self, key: LaunchKey) -> float:
        """A rough compile time in CPU seconds, to start the longest first."""
        return 1.0

    def spec(self, launch: str) -> LaunchSpec | None:
        """The launch of this name, or None."""
        return next((s for s in self.launches if s.name == launch), None)

    def launcher(self, key: LaunchKey) -> Callable[..., object]:
        """The FlyDSL launcher of ``key``; imports the kernels, so it runs in a worker only."""
        spec = self.spec(key.launch)
        if spec is None:
            raise KeyError(key.launch)
        build = _load(spec.key_class)(**key.values)
        launcher: Callable[..., object] = _load(spec.factory)(build)
        return launcher


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def with_defaults(fields: Sequence[Field], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """``values`` completed with the defaults of ``fields``."""
    filled = {f.name: f.default for f in fields if f.default is not None}
    return {**filled, **values}
