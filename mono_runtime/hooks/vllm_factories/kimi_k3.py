"""Kimi-K3 in vLLM: both launches of its specialized decode from a store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from mono_runtime.errors import MonoError, RanksDisagree
from mono_runtime.hooks.prepared import Declined
from mono_runtime.hooks.serving import Serving
from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook, Patch, is_prebuilt
from mono_runtime.hooks.vllm_factories.patching import (
    only,
    require_names,
    wrap,
    wrap_where_imported,
)
from mono_runtime.policy import Decision, Policy, decide

_DECODE = "vllm.models.kimi_k3.amd.specialized_decode"
_CONFIG, _COMPILE = "specialized_decode_config", "compile_build"
_EXECUTOR = "SpecializedDecode"
# Entries of the convolution's state before the drafts' (``kda.CONV_W`` less one).
_CONV_STATE = 3


class KimiK3Hook(FamilyHook):
    """vLLM builds all launches when its executor is made, after the weights were loaded.

    Their keys hold epsilons that are read from the model's norms, so the deployment's plan is not the
    last word: what the executor asks for beyond it is loaded then, and agreed on again.
    """

    family = "kimi_k3"

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        # What the executor asked for and did not get, by the engine's own key.
        self._misses: dict[Any, MonoError] = {}
        # What is wrong with the KV cache that is bound now, or None.
        self._state: str | None = None

    def modules(self) -> Mapping[str, Patch]:
        defining = dict.fromkeys(self.factories(), self.patch_factories)
        return {
            **defining,
            f"{_DECODE}.runtime": self._config,
            "vllm.models.kimi_k3.amd.linear": self._config_imported,
            f"{_DECODE}.runtime.layers": self._layers,
            f"{_DECODE}.runtime.decode": self._executor,
        }

    def _config(self, module: ModuleType) -> None:
        require_names(module, [_CONFIG])
        wrap(module, _CONFIG, self._chosen)

    def _config_imported(self, module: ModuleType) -> None:
        wrap_where_imported(module, _CONFIG, self._chosen)

    def _layers(self, module: ModuleType) -> None:
        require_names(module, [_COMPILE, "WholeLayer._k1_key", "WholeLayer.caches"])
        wrap(module, _COMPILE, self._built)

    def _executor(self, module: ModuleType) -> None:
        require_names(
            module, [f"{_EXECUTOR}.{name}" for name in ("__init__", "prepare_kv", "plan")]
        )
        wrap_where_imported(module, _COMPILE, self._built)
        wrap(module, f"{_EXECUTOR}.__init__", self._made)
        wrap(module, f"{_EXECUTOR}.prepare_kv", self._bound)
        wrap(module, f"{_EXECUTOR}.plan", self._planned)

    def _chosen(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        """vLLM's settings of the specialized decode, or None for its other path."""
        settings = wrapped(*args, **kwargs)
        if settings is None:
            return None
        config = only(args, kwargs)
        return settings if self.prepare(config) else None

    def _built(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> None:
        """``compile_build``: a prebuilt launch is loaded, and not launched with zeros as FlyDSL's is."""
        if self.serving.leaves_alone(self.family):
            wrapped(*args, **kwargs)
            return
        build = only(args, kwargs)
        try:
            if is_prebuilt(self._launch(build)):
                return
        except MonoError as error:
            # On every rank alike or on one: the executor goes on to what it does with all ranks, and
            # they agree when it is made.
            self._misses[build] = error
            return
        wrapped(*args, **kwargs)

    def _launch(self, build: Any) -> Any:
        """What the family's factory for the type of ``build`` returns."""
        kind = f"{type(build).__module__}:{type(build).__qualname__}"
        for spec in self.keys.launches:
            if spec.key_class == kind:
                module, _, function = spec.factory.partition(":")
                return getattr(sys.modules[module], function)(build)
        raise MonoError(
            f"the engine asks for a launch of {self.family} with a key of the type {kind}",
            fix="use the mono-build release that describes this engine's kernels",
        )

    def _made(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> None:
        """The executor's constructor; afterwards the ranks agree on what it asked for."""
        self._misses.clear()
        wrapped(*args, **kwargs)
        prepared = self.ready
        if prepared is None:
            self._raise_unexcused(Policy.STRICT)
            return
        try:
            prepared.agree(map(str, self._misses))
        except RanksDisagree:
            self._raise_unexcused(prepared.policy)
            if prepared.policy is not Policy.STOCK:
                raise
            # Every rank is here, so every step runs vLLM's own path on all of them.
            self.serving.decline(self.family, "the ranks do not have the same launches")
            return
        self._raise_unexcused(prepared.policy)
        for build, error in self._misses.items():
            prepared.decline(f"steps of {build.tokens} rows lack a launch: {error.what}")

    def _raise_unexcused(self, policy: Policy) -> None:
        for error in self._misses.values():
            if decide(policy, error, can_compile=False) is not Decision.DECLINE:
                raise error

    def _bound(self, wrapped: Any, executor: Any, args: Any, kwargs: Any) -> None:
        """``prepare_kv``; K1's key also holds the length of the convolution's state, which is known now."""
        wrapped(*args, **kwargs)
        self._state = None
        if executor._kv is None:
            return
        planned = _CONV_STATE + executor.runner.num_spec
        for kernel in executor.kda:
            entries = kernel.caches()[0].size(-1)
            if entries != planned:
                self._state = f"a convolution state of {entries} entries, where launches are loaded for {planned}"

    def _planned(self, wrapped: Any, executor: Any, args: Any, kwargs: Any) -> Any:
        """vLLM's plan of a step, or None for its other path when the step would lack a launch."""
        step, state = wrapped(*args, **kwargs), self.serving.state(self.family)
        if isinstance(state, Declined):
            return None if state.by_policy else step
        if step is None or state is None or state.compiles:
            return step
        why = self._lacking(executor, step)
        if why is None:
            return step
        state.decline(why)
        return None

    def _lacking(self, executor: Any, step: Any) -> str | None:
        if self._state is not None:
            return self._state
        runner, width = executor.runner, step.width
        if any(build.tokens == width for build in self._misses):
            return f"steps of {width} rows lack a launch"
        query = step.attn_metadata[runner.kda_prefix].spec_state_indices_tensor.size(-1)
        if query != runner.num_spec + 1:
            return f"a step of {query} rows a request, where launches are loaded for {runner.num_spec + 1}"
        if min(step.kernels, default=1) <= executor.backbone.start_layer:
            return "a first layer with nothing pending (delta false), for which no launch is loaded"
        return None
