"""Puts this project's layers where vLLM's model takes its mono decode layers from."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from mono_runtime.hooks.deepseek_v41.engine import Engine, VllmEngine
from mono_runtime.hooks.deepseek_v41.factory import LayerFactory, RunnerMaker
from mono_runtime.hooks.deepseek_v41.health import Health
from mono_runtime.hooks.deepseek_v41.runner import Kind, MonoRunner, Place
from mono_runtime.hooks.deepseek_v41.watching import watched

if TYPE_CHECKING:
    from mono_runtime.hooks.prepared import Prepared
    from mono_runtime.hooks.serving import Serving
    from mono_runtime.ranks.peer_memory import PeerMemory

MODULE = "vllm.models.deepseek_v41.amd.mono_decode"
# Imports the name from `MODULE`, and asks it for a layer's launches while it builds the layer.
MODEL = "vllm.models.deepseek_v41.amd.model"
NAME = "MonoDecodeLayer"


def install(
    module: ModuleType,
    serving: Serving,
    *,
    engine: Engine | None = None,
    maker: RunnerMaker | None = None,
) -> LayerFactory:
    """Let vLLM's model take its decode layers from ``serving``'s launches; doing it again changes nothing.

    Args:
        module: `MODULE`, imported. `MODEL` is changed as well where it has been imported already.
        engine: the process, where it is not the one this runs in.
        maker: makes its runners, where that is not on its GPU.

    Returns:
        What is installed; of an earlier call, where there was one.
    """
    original = getattr(module, NAME)
    if isinstance(original, LayerFactory):
        return original
    factory = LayerFactory(serving, engine or VllmEngine(), maker or DeviceRunners())
    setattr(module, NAME, factory)
    model = sys.modules.get(MODEL)
    if model is not None and getattr(model, NAME, None) is original:
        setattr(model, NAME, factory)
    return factory


class DeviceRunners:
    """Makes runners on the process's GPU, and watches over their launches."""

    def __init__(self) -> None:
        self._health: Health | None = None

    def make(self, prepared: Prepared, engine: Engine, kind: Kind) -> MonoRunner:
        """A runner with peer memory among the tensor-parallel ranks."""
        import torch

        from mono_runtime.hooks.deepseek_v41.tensors import TorchTensors

        place = Place(engine.arch(), engine.tp(), engine.rank())
        runner = MonoRunner(
            place,
            prepared,
            TorchTensors(torch.device("cuda", engine.device())),
            partial(_peer_memory, prepared),
            kind=kind,
        )
        if self._health is None:
            store, device = prepared.store, prepared.loader.device.ordinal
            self._health = Health(
                store.driver, device, place.rank, place.tp, tell=store.counters.waited
            )
        whose = "the model's layers" if kind == Kind() else "the draft's layers"
        self._health.watch(whose, partial(watched, runner.buffers))
        return runner

    def close(self) -> None:
        """Stop watching."""
        health, self._health = self._health, None
        if health is not None:
            health.close()


def _peer_memory(prepared: Prepared, size: int) -> PeerMemory:
    from mono_runtime.hooks.prepared import AGREEMENT_SECONDS
    from mono_runtime.ranks.peer_memory import PeerMemory

    store, device = prepared.store, prepared.loader.device.ordinal
    # Ranks may come to their first step at different times: the engine compiles there what it lacks.
    return PeerMemory.allocate(
        store.driver, device, size, prepared.group, timeout=AGREEMENT_SECONDS
    )
