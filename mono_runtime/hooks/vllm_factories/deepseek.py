"""What DeepSeek-V4.1 and V4 have in common: layers decline steps whose launches are not loaded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mono_runtime.hooks.prepared import Prepared
from mono_runtime.hooks.serving import Serving
from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook, Patch
from mono_runtime.hooks.vllm_factories.patching import require_names, wrap
from mono_runtime.launch_key import LaunchKey, Scalar

_LAYER = "MonoDecodeLayer"
_CACHE = "_ensure_writable_flydsl_cache"


@dataclass(frozen=True, slots=True)
class Step:
    """One layer of a step, as it asks for launches.

    Attributes:
        layer: vLLM's decoder layer.
        variant: the build fields of its two launches that differ from the defaults, without the rows;
            None when the layer never takes them.
    """

    layer: Any
    rows: int
    variant: Mapping[str, Scalar] | None


class DeepseekHook(FamilyHook):
    """The hook of a model whose decoder layers ask ``MonoDecodeLayer`` at every step.

    Attributes:
        package: vLLM's package of the model.
        needed: what ``mono_decode`` has to have besides what is common.
    """

    package: str
    needed: tuple[str, ...] = ()

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        self._most_rows = self.most_rows

    def modules(self) -> Mapping[str, Patch]:
        return {
            f"{self.package}.mono.layer": self.patch_factories,
            f"{self.package}.mono.runner": self._runner,
            f"{self.package}.mono_decode": self._decode,
        }

    def _runner(self, module: ModuleType) -> None:
        require_names(module, [_CACHE])
        self.patch_imported_factories(module, f"{self.package}.mono.layer")
        self.patch_compile_cache(module, _CACHE)

    def _decode(self, module: ModuleType) -> None:
        names = ("create", "__call__", "_decode_step", "_skip")
        require_names(module, [*(f"{_LAYER}.{name}" for name in names), *self.needed])
        wrap(module, f"{_LAYER}.create", self._create)
        wrap(module, f"{_LAYER}.__call__", self._layer)
        self.patch_decode(module)

    @abstractmethod
    def patch_decode(self, module: ModuleType) -> None:
        """Change what else ``mono_decode`` has."""

    @abstractmethod
    def step(self, mono: Any, *args: Any, **kwargs: Any) -> Step:
        """What a call of ``MonoDecodeLayer`` asks for, from the call's arguments."""

    def _create(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        config = _config(*args, **kwargs)
        if config.kernel_config.monokernel and not self.prepare(config):
            return None
        return wrapped(*args, **kwargs)

    def _layer(self, wrapped: Any, mono: Any, args: Any, kwargs: Any) -> Any:
        prepared = self.ready
        if prepared is None or prepared.compiles:
            return wrapped(*args, **kwargs)
        step = self.step(mono, *args, **kwargs)
        why = None
        # Larger steps are prefills, of any number of rows, and vLLM's own in any case.
        if step.variant is not None and step.rows <= self._most_rows:
            asked = (step.rows, *step.variant.items())
            why = prepared.lacking(asked, lambda: self.pair(prepared, step))
        return self.answer(prepared, step, why, wrapped, mono, args, kwargs)

    def pair(self, prepared: Prepared, step: Step) -> Iterable[LaunchKey]:
        """The keys of a whole layer's two launches."""
        variant = step.variant or {}
        return (prepared.key(launch, step.rows, **variant) for launch in ("k1", "k2"))

    def answer(
        self,
        prepared: Prepared,
        step: Step,
        why: str | None,
        wrapped: Any,
        mono: Any,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """What the engine's function gives, or None, for vLLM's own path, when the step lacks a launch.

        A step that would take that path anyway says so in vLLM's words, and is not counted.
        """
        if why is None or mono._decode_step(step.layer, step.rows)[0] is not None:
            return wrapped(*args, **kwargs)
        return mono._skip(prepared.decline(why))


def _config(layer: Any, vllm_config: Any) -> Any:
    """The arguments of ``MonoDecodeLayer.create``."""
    return vllm_config
