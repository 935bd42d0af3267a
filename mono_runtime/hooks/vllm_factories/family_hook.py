"""What the hooks of all families have in common: which modules they change, and their launch factories."""

from __future__ import annotations

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mono_runtime.errors import LaunchMissing
from mono_runtime.families.base import FamilyKeys
from mono_runtime.families.registry import family_keys
from mono_runtime.hooks.prepared import Declined, Prepared
from mono_runtime.hooks.serving import Serving
from mono_runtime.hooks.vllm_factories.patching import (
    Wrapper,
    only,
    original,
    require_names,
    wrap,
    wrap_where_imported,
)

if TYPE_CHECKING:
    from mono_runtime.hooks.deployments import Planned
    from mono_runtime.launch_key import LaunchKey

Patch = Callable[[ModuleType], None]


class FamilyHook(ABC):
    """Serves one family's launches to vLLM's own runner.

    Args:
        serving: the process's launches.

    Attributes:
        family: its name.
        keys: its launches.
    """

    family: str

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.keys: FamilyKeys = family_keys(self.family)
        self._compile_cache: Callable[[], None] | None = None

    @abstractmethod
    def modules(self) -> Mapping[str, Patch]:
        """The engine's modules to change, each with what changes it; called after the module's import.

        A change of a module that does not have what it should raises
        `mono_runtime.hooks.vllm_factories.patching.EngineDiffers`, before anything of it was changed.
        """

    @property
    def most_rows(self) -> int:
        """Rows of the widest step that a launch can serve."""
        fields = (f for spec in self.keys.launches for f in spec.fields)
        limits = (f.maximum for f in fields if f.name == self.keys.rows_field)
        return max(int(limit) for limit in limits if limit is not None)

    @property
    def ready(self) -> Prepared | None:
        """The family's launches, once they are loaded."""
        return self.serving.ready(self.family)

    def factories(self) -> dict[str, dict[str, str]]:
        """The engine's launch factories: module -> function -> launch."""
        found: dict[str, dict[str, str]] = {}
        for spec in self.keys.launches:
            module, _, function = spec.factory.partition(":")
            if module.startswith("vllm."):
                found.setdefault(module, {})[function] = spec.name
        return found

    def patch_factories(self, module: ModuleType) -> None:
        """Let the factories that ``module`` defines return prebuilt launches."""
        functions = self.factories()[module.__name__]
        require_names(module, functions)
        for function, launch in functions.items():
            wrap(module, function, self._factory(launch))

    def patch_imported_factories(self, module: ModuleType, defined_in: str) -> None:
        """The same for those that ``module`` imported by name from ``defined_in``."""
        for function, launch in self.factories()[defined_in].items():
            wrap_where_imported(module, function, self._factory(launch))

    def patch_compile_cache(self, module: ModuleType, function: str) -> None:
        """Let ``function``, which makes FlyDSL's cache writable, do so only when something is compiled."""

        def made_ready(wrapped: Any, _: Any, args: Any, kwargs: Any) -> None:
            if self.serving.leaves_alone(self.family):
                wrapped(*args, **kwargs)

        wrap(module, function, made_ready)
        self._compile_cache = original(getattr(module, function))

    def prepare(self, vllm_config: object) -> bool:
        """Make the launches ready; whether vLLM is to build its mono layers.

        False means that every rank runs vLLM's other path. Errors: as for `Serving.prepare`.
        """
        # vLLM's own, which are there when a model is built.
        from vllm.distributed import get_tp_group

        self.serving.prepare(
            vllm_config,
            group=get_tp_group().cpu_group,
            family=self.family,
            check=check_key_classes,
        )
        state = self.serving.state(self.family)
        return not (isinstance(state, Declined) and state.by_policy)

    def _factory(self, launch: str) -> Wrapper:
        def prebuilt(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
            if self.serving.leaves_alone(self.family):
                return wrapped(*args, **kwargs)

            def compiled() -> Any:
                if self._compile_cache is not None:
                    self._compile_cache()
                return wrapped(*args, **kwargs)

            build = only(args, kwargs)
            return self.serving.resolve(self.family, launch, build, compiled)

        return prebuilt


def is_prebuilt(launcher: object) -> bool:
    """Whether ``launcher`` is a launch from a store, and not one that FlyDSL compiles."""
    from mono_runtime.launching.launch import Launch

    return isinstance(launcher, Launch)


def check_key_classes(planned: Planned) -> None:
    """Prove that the engine's key classes have the fields that the planned launches were described with.

    A field that this release does not know would otherwise be met at a first step and not when the model
    is built.

    Raises:
        LaunchMissing: a class has a field more or less, or of another type; the error names it.
    """
    firsts: dict[str, LaunchKey] = {}
    for key in planned.keys:
        firsts.setdefault(key.launch, key)
    for name, key in firsts.items():
        spec = planned.family.spec(name)
        if spec is None or not spec.key_class.startswith("vllm."):
            continue
        module, _, kind = spec.key_class.partition(":")
        try:
            key_class = getattr(importlib.import_module(module), kind, None)
        except ImportError:
            # The engine says what is missing in its own words, when it needs it.
            return
        if not dataclasses.is_dataclass(key_class) or not isinstance(key_class, type):
            raise _unlike(spec.key_class, "it is no dataclass")
        found = planned.family.key_of(name, key.arch, _built(key_class, key, spec.key_class))
        if found != key:
            raise _unlike(spec.key_class, f"it makes {found} of {key}")


def _built(key_class: type[Any], key: LaunchKey, reference: str) -> object:
    """An instance of the engine's ``key_class`` for ``key``, without the fields that it does not have."""
    values: dict[str, object] = {}
    for entry in dataclasses.fields(key_class):
        if entry.name in key.values:
            value = key.values[entry.name]
            default = entry.default
            values[entry.name] = type(default)(value) if isinstance(default, Enum) else value
    try:
        built: object = key_class(**values)
    except (TypeError, ValueError) as error:
        raise _unlike(reference, str(error)) from error
    return built


def _unlike(reference: str, why: str) -> LaunchMissing:
    return LaunchMissing(
        f"the engine's build key is not what this release describes: {why}",
        where=reference,
        fix="use the mono-build release that describes this engine's kernels, and a store built with it",
    )
