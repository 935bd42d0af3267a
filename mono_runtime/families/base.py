"""What a family's launches are: their build keys, and the keys that a deployment asks for."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mono_runtime.errors import LaunchMissing
from mono_runtime.families.fields import (
    Field,
    Setting,
    coerced,
    complete_settings,
    hint,
    problem_with,
    type_problem,
    with_defaults,
)
from mono_runtime.launch_key import LaunchKey, Scalar
from mono_runtime.nearest import BUILD, Miss


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
        settings: the family's deployment fields, complete and checked (`FamilyKeys.deployment`).
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


class FamilyKeys(ABC):
    """One model's launches: all that a server has to know to ask a store for them."""

    name: str
    title: str
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

    def key_of(self, launch: str, arch: str, build: object) -> LaunchKey:
        """The key of ``build``, an instance of the engine's own key dataclass.

        Members of enumerations become their values. Whatever this family does not describe, a field more
        or less or one of another type, raises `LaunchMissing` and names it: a key that ignored it could
        be found in a store and be the wrong launch.
        """
        values = _engine_values(build)
        spec = self.spec(launch)
        unlike = [f"{self.name} has no launch {launch}"]
        if spec is not None:
            unlike = _unlike(spec.fields, values)
        if spec is None or unlike:
            raise _unknown_build(self.name, launch, arch, build, values, unlike)
        known = {n: v for n, v in values.items() if isinstance(v, Scalar)}
        return LaunchKey.of(
            self.name, launch, arch, {f.name: coerced(f, known[f.name]) for f in spec.fields}
        )

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


def _listed(items: Iterable[object]) -> str:
    return " and ".join(str(i) for i in items)


def _engine_values(build: object) -> dict[str, object]:
    """The fields of a dataclass instance, members of enumerations as their values; else nothing."""
    if not dataclasses.is_dataclass(build) or isinstance(build, type):
        return {}
    values = {entry.name: getattr(build, entry.name) for entry in dataclasses.fields(build)}
    return {n: v.value if isinstance(v, Enum) else v for n, v in values.items()}


def _unlike(fields: Iterable[Field], values: Mapping[str, object]) -> list[str]:
    """Where ``values`` are not a build key of these fields."""
    known = {f.name: f for f in fields}
    found = [f"{n} (= {values[n]!r}) is not known here" for n in values if n not in known]
    found += [f"{n} is not among its fields" for n in known if n not in values]
    typed = [type_problem(f, values[n]) for n, f in known.items() if n in values]
    return found + [problem for problem in typed if problem]


def _unknown_build(
    family: str,
    launch: str,
    arch: str,
    build: object,
    values: Mapping[str, object],
    unlike: Iterable[str],
) -> LaunchMissing:
    kind = f"{type(build).__module__}.{type(build).__qualname__}"
    error = LaunchMissing(
        "\n".join(
            [
                f"the engine asks for {family}/{launch} with a build key that this release does not know",
                *[f"  {line}" for line in unlike],
            ]
        ),
        where=kind,
        fix="use the mono-build release that describes this engine's kernels, and a store built with it",
    )
    asked = {n: v if isinstance(v, Scalar) else repr(v) for n, v in values.items()}
    error.miss = Miss(LaunchKey(family, launch, arch, tuple(sorted(asked.items()))), BUILD)
    return error
