"""What a family is: its launches with their build keys, and the keys that a deployment asks for."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mono_build.families.fields import (
    Field,
    Setting,
    complete_settings,
    hint,
    problem_with,
    with_defaults,
)
from mono_runtime.launch_key import LaunchKey, Scalar

__all__ = ["Deployment", "Family", "Field", "LaunchSpec", "Setting", "load_reference"]


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
        settings: the family's deployment fields, complete and checked (`Family.deployment`).
        rows: explicit widths that replace the computed ones, or empty.
    """

    arch: str
    tp: int
    settings: Mapping[str, Setting] = field(default_factory=dict)
    rows: tuple[int, ...] = ()

    def integer(self, name: str) -> int:
        """The integer setting of this name."""
        value = self.settings[name]
        if isinstance(value, int):
            return value
        raise TypeError(f"deployment setting {name} is {value!r}, not an integer")

    def number(self, name: str) -> float:
        """The numeric setting of this name."""
        value = self.settings[name]
        if isinstance(value, (int, float)):
            return float(value)
        raise TypeError(f"deployment setting {name} is {value!r}, not a number")

    def integers(self, name: str) -> tuple[int, ...]:
        """The list setting of this name."""
        value = self.settings[name]
        return value if isinstance(value, tuple) else ()


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
    # Why other TP sizes of a supported architecture are refused, by its name.
    tp_reasons: Mapping[str, str] = {}
    launches: tuple[LaunchSpec, ...]
    # The build field that holds the step width. A build key without a ``tp`` field serves every
    # legal TP size.
    rows_field: str = "tokens"
    # What a manifest's ``deployment`` section may set.
    deployment_fields: tuple[Field, ...]
    # Environment variables that change this family's code; all others are hidden from the kernels.
    environment: tuple[str, ...] = ()
    # Whether the kernels import AITER's FlyDSL helper modules.
    needs_aiter: bool = True
    # The module that turns a launcher into a `LoweredLaunch`, with the interface of this one.
    compiler: str = "mono_build.compile.flydsl_api"
    # ``module:function`` that makes the emulator's case of a launch key and a seed
    # (`mono_build.emulator.cases`), or None when there is no reference for any launch.
    cases: str | None = None

    @abstractmethod
    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        """Every launch key that a server of this deployment can ask for."""

    @abstractmethod
    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        """The step widths (rows) of this deployment, ascending."""

    def conflicts(self, key: LaunchKey) -> list[str]:
        """Reasons why a key with legal single values is illegal as a whole."""
        return []

    def deployment_conflicts(self, deployment: Deployment) -> list[str]:
        """Reasons why a deployment with legal single settings is illegal as a whole."""
        return []

    def derived(
        self, deployment: Deployment, launch: str, build: Mapping[str, Scalar]
    ) -> dict[str, Scalar]:
        """The fields that follow from the deployment or from ``build``'s, where it leaves them out."""
        return {}

    def arguments(self, key: LaunchKey) -> dict[str, object]:
        """What the kernels' key class is called with; runs in a worker only."""
        return dict(key.values)

    def cost(self, key: LaunchKey) -> float:
        """A rough compile time in CPU seconds, to start the longest first."""
        return 1.0

    def twin(self, key: LaunchKey) -> str:
        """A name that launches share when they probably give equal IR (a scheduling hint only)."""
        return key.digest

    def placeholders(self, key: LaunchKey, parameters: Sequence[str]) -> dict[str, object]:
        """A value for every launcher parameter but the stream, to trace with; runs in a worker."""
        return dict.fromkeys(parameters, 0)

    def modules(self) -> tuple[str, ...]:
        """The modules that hold key classes and factories, to import before the first launch."""
        references = [r for s in self.launches for r in (s.key_class, s.factory)]
        return tuple(dict.fromkeys(r.partition(":")[0] for r in references))

    def spec(self, launch: str) -> LaunchSpec | None:
        """The launch of this name, or None."""
        return next((s for s in self.launches if s.name == launch), None)

    def refusal(self, arch: str, tp: int | None = None) -> str | None:
        """Why this family is not built for ``arch`` (at ``tp``), or None when it is."""
        if arch not in self.targets:
            why = self.refusals.get(arch, f"it is built for {_listed(self.targets)} only")
            return f"{self.name} is not built for {arch}: {why}"
        sizes = self.targets[arch]
        if tp is None or tp in sizes:
            return None
        why = self.tp_reasons.get(arch, "its kernels are written for no other size")
        return f"{self.name} on {arch} is built for TP {_listed(sizes)} only, not {tp}: {why}"

    def deployment(
        self, arch: str, tp: int, settings: Mapping[str, Setting], rows: Iterable[int] = ()
    ) -> Deployment:
        """A deployment whose ``settings``, already checked, are completed with the defaults."""
        complete = complete_settings(self.deployment_fields, settings)
        return Deployment(arch, tp, complete, tuple(sorted(set(rows))))

    def key(
        self, deployment: Deployment, launch: str, rows: int, variant: Mapping[str, Scalar]
    ) -> LaunchKey:
        """The key of one launch at one width; ``variant`` holds what differs from the defaults."""
        spec = self.spec(launch)
        if spec is None:
            raise KeyError(launch)
        build: dict[str, Scalar] = {self.rows_field: rows, **variant}
        if any(f.name == "tp" for f in spec.fields):
            build["tp"] = deployment.tp
        build = {**self.derived(deployment, launch, build), **build}
        return LaunchKey.of(self.name, launch, deployment.arch, with_defaults(spec.fields, build))

    def problems(self, key: LaunchKey) -> list[str]:
        """Everything that is illegal about ``key``, empty when it can be built."""
        spec = self.spec(key.launch)
        if spec is None:
            names = [s.name for s in self.launches]
            return [f"{self.name} has no launch {key.launch!r} ({hint(key.launch, names)})"]
        values = key.values
        tp = values.get("tp")
        refusal = self.refusal(key.arch, tp if isinstance(tp, int) else None)
        found = [refusal] if refusal else []
        names = [f.name for f in spec.fields]
        found += [f"{n} is missing from the build key" for n in names if n not in values]
        found += [f"unknown build field {n!r} ({hint(n, names)})" for n in values if n not in names]
        checked = [problem_with(f, values[f.name]) for f in spec.fields if f.name in values]
        found += [problem for problem in checked if problem]
        return found or self.conflicts(key)

    def launcher(self, key: LaunchKey) -> Callable[..., object]:
        """The FlyDSL launcher of ``key``; imports the kernels, so it runs in a worker only."""
        spec = self.spec(key.launch)
        if spec is None:
            raise KeyError(key.launch)
        build = load_reference(spec.key_class)(**self.arguments(key))
        launcher: Callable[..., object] = load_reference(spec.factory)(build)
        return launcher


def load_reference(reference: str) -> Any:
    """The object that ``module:name`` stands for."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def linear_cost(table: Mapping[tuple[str, str], tuple[float, float]], key: LaunchKey) -> float:
    """CPU seconds from ``(arch, launch) -> (seconds, seconds a row)``; 10 s when it is not listed."""
    base, slope = table.get((key.arch, key.launch), (10.0, 0.0))
    rows = key.values.get("tokens", 0)
    return base + slope * rows if isinstance(rows, (int, float)) else base


def _listed(items: Iterable[object]) -> str:
    return " and ".join(str(i) for i in items)
