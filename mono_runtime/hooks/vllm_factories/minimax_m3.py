"""MiniMax-M3 in vLLM: the FFN launch from a store, which also knows how its grid fits on the device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from mono_runtime.errors import NotResident
from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook, Patch, is_prebuilt
from mono_runtime.hooks.vllm_factories.patching import (
    EngineDiffers,
    only,
    require_names,
    wrap,
    wrap_where_imported,
)

_DECODE = "vllm.models.minimax_m3.amd.specialized_decode"
_FFN, _RUNNER = f"{_DECODE}.mono.ffn", f"{_DECODE}.mono.runner"
_CONFIG, _CACHE = "specialized_decode_config", "_writable_flydsl_cache"
_RESIDENCY = "active_workgroups_per_cu"


class MinimaxM3Hook(FamilyHook):
    """vLLM builds a launch for each width of its settings when the executor is made."""

    family = "minimax_m3"

    def modules(self) -> Mapping[str, Patch]:
        importing = (f"{_DECODE}.runtime", _DECODE, "vllm.models.minimax_m3.amd.model")
        return {
            _FFN: self.patch_factories,
            f"{_DECODE}.mono.residency": self._residency,
            _RUNNER: self._runner,
            f"{_DECODE}.runtime.spec": self._config,
            **dict.fromkeys(importing, self._config_imported),
        }

    def _config(self, module: ModuleType) -> None:
        require_names(module, [_CONFIG])
        wrap(module, _CONFIG, self._chosen)

    def _config_imported(self, module: ModuleType) -> None:
        wrap_where_imported(module, _CONFIG, self._chosen)

    def _residency(self, module: ModuleType) -> None:
        require_names(module, [_RESIDENCY])
        wrap(module, _RESIDENCY, self._resident)

    def _runner(self, module: ModuleType) -> None:
        require_names(module, [_CACHE, _RESIDENCY])
        if not hasattr(sys.modules.get("flydsl.compiler"), "compile"):
            raise EngineDiffers("the runner of minimax_m3 has not imported flydsl.compiler.compile")
        self.patch_imported_factories(module, _FFN)
        self.patch_compile_cache(module, _CACHE)
        wrap(module, _RESIDENCY, self._resident)
        # The kernels have imported it, and the runner calls it by this name.
        compiler: Any = sys.modules["flydsl.compiler"]
        if not isinstance(compiler.compile, _CompileOrTake):
            compiler.compile = _CompileOrTake(compiler.compile)

    def _chosen(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        """vLLM's settings with the widths that can be served, or None for its other path."""
        settings = wrapped(*args, **kwargs)
        if settings is None:
            return None
        config = only(args, kwargs)
        if not self.prepare(config):
            return None
        prepared = self.ready
        if prepared is None or prepared.compiles:
            return settings
        widths = tuple(w for w in settings.widths if w in prepared.widths)
        return settings if widths == settings.widths else replace(settings, widths=widths)

    def _resident(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> int:
        """Workgroups of a compute unit: for a prebuilt launch what was proved when it was loaded."""
        launch, threads = _question(*args, **kwargs)
        if not is_prebuilt(launch):
            count: int = wrapped(*args, **kwargs)
            return count
        prepared = self.ready
        loader = prepared.loader if prepared is not None else self.serving.loader(launch.device)
        residency = loader.residency(launch.key)
        fits = residency.fits if residency is not None else ()
        if not fits or any(fit.threads != threads for fit in fits):
            raise NotResident(
                f"it was not proved how workgroups of {threads} work-items fit on a compute unit",
                where=launch.key,
                fix="build the store with the mono-build release that this runtime is of",
            )
        return min(fit.each for fit in fits)


class _CompileOrTake:
    """FlyDSL's ``compile``, which gives a prebuilt launch back as it is: there is nothing to compile."""

    def __init__(self, compiler: Any) -> None:
        self._compiler = compiler

    def __call__(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        return func if is_prebuilt(func) else self._compiler(func, *args, **kwargs)

    def __getitem__(self, hints: Any) -> Any:
        return self._compiler[hints]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)


def _question(compiled: Any, name: str, threads: int) -> tuple[Any, int]:
    """The arguments of ``active_workgroups_per_cu``."""
    return compiled, threads
