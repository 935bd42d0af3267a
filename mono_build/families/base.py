"""What a family is: the launches of one model (`mono_runtime.families`), and how they are compiled."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mono_build.own_kernels import is_own
from mono_runtime.families.base import Deployment, FamilyKeys, LaunchSpec
from mono_runtime.families.fields import Field, Setting
from mono_runtime.launch_key import LaunchKey

# Families from outside take what they need from here.
__all__ = ["Deployment", "Family", "Field", "LaunchSpec", "Setting", "load_reference"]


class Family(FamilyKeys):
    """One model's launches. A family from outside registers an instance as a ``mono_build.families`` entry point."""

    # The distribution that the kernels come from, and the packages of it whose code may run: their
    # parents are imported as bare namespaces, so no engine is started.
    source: str
    packages: tuple[str, ...]
    # Environment variables that change this family's code; all others are hidden from the kernels.
    environment: tuple[str, ...] = ()
    # Whether the kernels import AITER's FlyDSL helper modules.
    needs_aiter: bool = True
    # The module that turns a launcher into a `LoweredLaunch`, with the interface of this one.
    compiler: str = "mono_build.compile.flydsl_api"
    # ``module:function`` that makes the emulator's case of a launch key and a seed
    # (`mono_build.emulator.cases`), or None when there is no reference for any launch.
    cases: str | None = None

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

    def workspace(self, key: LaunchKey) -> Mapping[str, int]:
        """Bytes that the kernel needs behind pointer arguments which the caller allocates, and zeroes, once.

        By argument name; runs in a worker, where the kernels' own layout functions can be asked.
        """
        return {}

    def modules(self) -> tuple[str, ...]:
        """The modules that hold key classes and factories, to import before the first launch."""
        return _modules(self.launches)

    def own_modules(self, launch: str) -> tuple[str, ...]:
        """A launch's modules when they are this project's own kernels, else none; then `source` is needed."""
        modules = _modules(s for s in self.launches if s.name == launch)
        return modules if all(map(is_own, modules)) else ()

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


def _modules(specs: Iterable[LaunchSpec]) -> tuple[str, ...]:
    references = [r for s in specs for r in (s.key_class, s.factory)]
    return tuple(dict.fromkeys(r.partition(":")[0] for r in references))


def linear_cost(table: Mapping[tuple[str, str], tuple[float, float]], key: LaunchKey) -> float:
    """CPU seconds from ``(arch, launch) -> (seconds, seconds a row)``; 10 s when it is not listed."""
    base, slope = table.get((key.arch, key.launch), (10.0, 0.0))
    rows = key.values.get("tokens", 0)
    return base + slope * rows if isinstance(rows, (int, float)) else base
