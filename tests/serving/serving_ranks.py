"""What a rank of a server with the plug-in does in tests; one `Session` lives in each process."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import standin_hip
from serving_kit import K3, V41, change, config, rows, serving_of
from standin_hip import FakeDevice

from mono_runtime.hooks.serving import Serving
from mono_runtime.launch_key import LaunchKey


class Session:
    """A rank that is a process; the jobs of `rank_processes.Ranks`."""

    def __init__(self, rank: int) -> None:
        import torch.distributed as dist

        sys.path.insert(0, str(Path(__file__).with_name("engine")))
        self.rank = rank
        self.group = dist.group.WORLD
        self.serving: Serving | None = None

    def load_model(self, store: Path, policy: str) -> str:
        """Build one layer as vLLM does; ``mono`` or ``vLLM``, whichever path its steps can take."""
        decode = self._start("deepseek_v41", store, policy)[f"{V41}.mono_decode"]
        self.layer = decode.MonoDecodeLayer.create(SimpleNamespace(), config("deepseek_v41"))
        self.decode = decode
        return "vLLM" if self.layer is None else "mono"

    def make_executor(self, store: Path, policy: str, ln_eps: float) -> tuple[bool, int]:
        """Kimi-K3's executor with one launch of K2: whether a step of 8 rows is planned, and compiles."""
        modules = self._start("kimi_k3", store, policy)
        modules[f"{K3}.linear"].build_model(config("kimi_k3"))
        decode = f"{K3}.specialized_decode"
        build = modules[f"{decode}.mono.layer"].K2Build(8, nblocks=1, ln_eps=ln_eps)
        executor = modules[f"{decode}.runtime.decode"].SpecializedDecode([build], num_spec=3)
        planned = executor.plan(8, query=4) is not None
        return planned, len(modules[f"{decode}.mono.layer"].compiled)

    def load_unplanned(self, store: Path, policy: str, key: LaunchKey) -> tuple[bool, bool]:
        """Ask for a launch that the deployment's plan does not name: whether all ranks have it, and this one."""
        self._start("deepseek_v41", store, policy)
        assert self.serving is not None
        prepared = self.serving.prepare(config("deepseek_v41"), group=self.group)
        assert prepared is not None
        return prepared.load([key]), prepared.has(key)

    def _start(self, family: str, store: Path, policy: str) -> dict[str, ModuleType]:
        for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        self.hip = standin_hip.load()
        self.hip.reset(*[FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X")] * 4)
        self.serving = serving_of(store, MONO_POLICY=policy)
        modules = change(self.serving, family)
        importlib.import_module("vllm.distributed").here.group = self.group
        return modules

    def step(self, count: int) -> tuple[Any, list[str]]:
        """One layer of a decode step of ``count`` rows: what it gave, and the kernels that were launched."""
        attention = SimpleNamespace(compress_ratio=2, indexer=None)
        layer = SimpleNamespace(attn=attention, engram=None, tp=4)
        given = self.layer(layer, rows(count), None, object(), None, None, None)
        return given, [r.symbol for r in self.hip.launches()]

    def compiled(self) -> int:
        """How many launches the engine's factories compiled."""
        return len(importlib.import_module(f"{V41}.mono.layer").compiled)

    def process(self) -> int:
        return os.getpid()
