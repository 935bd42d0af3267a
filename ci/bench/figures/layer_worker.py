"""One decode layer's host cost, through vLLM's runner and through this project's; run as a script, never imported.

``python layer_worker.py TASK.json ANSWER.json``, in a Python that has torch and FlyDSL. vLLM's runner is the
one of the kernels' package, imported as an engine imports it. Everything happens in one process, over one HIP
library, with the same tensors and in turns:

``flydsl``    vLLM's runner with the launchers that FlyDSL made for it
``compiled``  the same with FlyDSL's compiled functions in the launchers' place, which vLLM does not use
``plugin``    vLLM's runner with launches from the store, as the plug-in gives it
``own``       this project's runner
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

RATIO = 2
RANK = 3
# A layer that takes longer, in seconds, is timed a few times alone: FlyDSL 0.5 traces in every call.
SLOW = 0.02
SLOW_TURNS = 2
# What vLLM's runner calls the weights that the launches name otherwise.
ATTENTION = {
    "wqkv": "wqkv",
    "wqkv_s": "wqkv_scale",
    "qn_w": "q_norm",
    "kvn_w": "kv_norm",
    "wqb": "wq_b",
    "wqb_s": "wq_b_scale",
    "woa": "wo_a",
    "woa_s": "wo_a_scale",
    "wob": "wo_b",
    "wob_s": "wo_b_scale",
    "sink": "attn_sink",
    "cos_sin": "cos_sin",
}
SEAM = {"hc_fn": "hc_attn_fn", "hc_scale": "hc_attn_scale", "hc_base": "hc_attn_base"}
FFN = {"hc_fn": "hc_ffn_fn", "hc_scale": "hc_ffn_scale", "hc_base": "hc_ffn_base"}
FFN |= {"ffn_w": "ffn_norm"}
FFN |= {
    n: n for n in ("gate_w", "bias", "w13", "w13_s", "w2", "w2_s", "sgu", "sgu_s", "sw2", "sw2_s")
}


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours to FlyDSL's imports.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    for name, directory in task["roots"].items():
        _module(name).__path__ = [directory]
    # torch has no GPU here; both sides ask it for the stream of the stand-in.
    stream = SimpleNamespace(cuda_stream=0)
    torch.cuda.current_stream = lambda *_: stream
    torch.cuda.is_current_stream_capturing = lambda: False
    import flydsl

    model = Model(task["rows"], task["tp"], task["layers"])
    theirs = Theirs(task, model)
    sys.path.insert(0, task["project"])
    import mono_runtime

    store = mono_runtime.open(task["store"])
    loader = store.on()
    stream.cuda_stream = store.driver.create_stream(loader.device.ordinal)
    ours = Ours(task, model, loader)
    made, launches = theirs.launchers(), ours.launches()
    steps: dict[str, Step] = {
        "flydsl": theirs.with_launches(*made),
        "compiled": theirs.with_launches(
            *(_compiled(m, len(ours_.arguments)) for m, ours_ in zip(made, launches, strict=True))
        ),
        "plugin": theirs.with_launches(*launches),
        "own": ours.step,
    }
    sides = {name: Side.of(step, model, task) for name, step in steps.items()}
    answer = {"flydsl": flydsl.__version__, "torch": torch.__version__}
    answer["launched"] = _launched(sides, model)
    answer["layers"] = {name: side.layers for name, side in sides.items()}
    answer["samples"] = _samples(sides, model, task["turns"])
    Path(answer_file).write_text(json.dumps(answer))


# Runs so many layers with a step's metadata.
Step = Callable[[dict[str, torch.Tensor], int], None]


@dataclass(frozen=True)
class Side:
    """How one side is timed: ``layers`` a step, ``steps`` a turn, ``turns``."""

    step: Step
    layers: int
    steps: int
    turns: int

    @staticmethod
    def of(step: Step, model: Model, task: dict[str, Any]) -> Side:
        """After a first layer, which compiles or binds, a second one tells how long layers take."""
        step(model.metadata(), 1)
        start = time.process_time()
        step(model.metadata(), 1)
        if time.process_time() - start > SLOW:
            return Side(step, 1, 1, min(SLOW_TURNS, task["turns"]))
        # Every layer's first step binds or looks at its tensors.
        step(model.metadata(), task["layers"])
        return Side(step, task["layers"], task["steps"], task["turns"])


class Model:
    """Layers of one kind with small tensors of their own, and what a step brings. Nothing reads them."""

    def __init__(self, rows: int, tp: int, layers: int) -> None:
        self.rows, self.tp = rows, tp
        names = {*ATTENTION, *SEAM, "attn_w"}
        self.attention = [{n: _bytes(16) for n in names} for _ in range(layers)]
        self.ffn = [{n: _bytes(16) for n in FFN} for _ in range(layers)]
        self.caches = [
            {"swa_cache": _bytes(2, 64, 584), "comp_cache": _bytes(2, 64, 584)}
            for _ in range(layers)
        ]
        self._buffers = {
            "positions": torch.zeros(64, dtype=torch.int64),
            "slot_mapping": torch.zeros(64, dtype=torch.int64),
            "swa_indices": torch.zeros(64, 1, 128, dtype=torch.int32),
            "swa_lens": torch.zeros(64, dtype=torch.int32),
            "token_to_req": torch.zeros(64, dtype=torch.int32),
            "topk_indices": torch.zeros(64, 512, dtype=torch.int32),
            "comp_block_table": torch.zeros(64, 128, dtype=torch.int32),
        }
        self.x = torch.zeros(rows, 5120, dtype=torch.bfloat16)
        self.streams = (
            torch.zeros(rows, 4, 5120, dtype=torch.bfloat16),
            torch.zeros(rows, 4, 1),
            torch.zeros(rows, 4, 4),
            torch.zeros(rows, 4),
        )

    def metadata(self) -> dict[str, torch.Tensor]:
        """A step's: views that are new in each step, the same for all of its layers."""
        return {name: buffer[: self.rows] for name, buffer in self._buffers.items()}


class Theirs:
    """vLLM's runner."""

    def __init__(self, task: dict[str, Any], model: Model) -> None:
        package = task["package"]
        # Its peer memory asks the GPU's driver; what the launches get is two addresses.
        _module(f"{package}.common.peer_memory").PeerBuffer = _PeerBuffer
        for module in task["modules"]:
            importlib.import_module(module)
        runner = importlib.import_module(f"{package}.runner")
        self._model = model
        self._runner = runner.DSV41MonoLayer(model.tp, RANK, None, "cpu")
        self._weights = [
            _their_weights(runner, number, attention, ffn)
            for number, (attention, ffn) in enumerate(zip(model.attention, model.ffn, strict=True))
        ]

    def launchers(self) -> tuple[Any, Any]:
        """FlyDSL's, as vLLM's factories make them."""
        made = self._runner.kernels(self._model.rows, RATIO)
        if any(type(launcher).__module__.partition(".")[0] != "flydsl" for launcher in made):
            raise RuntimeError("vLLM's factories gave something else than FlyDSL's launchers")
        return (made[0], made[1])

    def with_launches(self, k1: Any, k2: Any) -> Step:
        """Steps with these launches."""

        def step(metadata: dict[str, torch.Tensor], layers: int) -> None:
            self._runner._kernels = {(self._model.rows, RATIO, True, False): (k1, k2)}
            forward, found = self._runner.forward, (self._model.x, *self._model.streams)
            for weights, caches in islice(
                zip(self._weights, self._model.caches, strict=True), layers
            ):
                found = forward(weights, *found, **metadata, **caches)

        return step


class Ours:
    """This project's runner; as a source of launches it takes them from the store."""

    def __init__(self, task: dict[str, Any], model: Model, loader: Any) -> None:
        from mono_runtime.hooks.deepseek_v41.launches import Place
        from mono_runtime.hooks.deepseek_v41.runner import LayerStep, MonoRunner
        from mono_runtime.hooks.deepseek_v41.tensors import TorchTensors
        from mono_runtime.hooks.deepseek_v41.weights import AttentionWeights, LayerWeights

        self._model, self._loader = model, loader
        self._kind = LayerStep
        tensors = TorchTensors(torch.device("cpu", 0))
        # torch's own way to the raw stream needs a GPU; this is what stands for it on the other side too.
        tensors.stream = lambda: torch.cuda.current_stream(0).cuda_stream
        place = Place(loader.device.architecture.name, model.tp, RANK)
        self._runner = MonoRunner(place, self, tensors, _Peer)
        self._weights = [
            LayerWeights(number, RATIO, AttentionWeights(**attention), **ffn)
            for number, (attention, ffn) in enumerate(zip(model.attention, model.ffn, strict=True))
        ]

    def launch(self, name: str, rows: int, /, **variant: Any) -> Any:
        """A launch of the store, as a server's prepared ones are asked for."""
        fixed = {"tokens": rows, "tp": self._model.tp, "timeline": False}
        return self._loader.launch("deepseek_v41", name, **fixed, **variant)

    def launches(self) -> tuple[Any, Any]:
        """The two launches of these layers."""
        variant = {"ratio": RATIO, "fold": True, "index": False, "experts": 384, "topk": 6}
        variant |= {"ug_groups": 2, "swa_width": 128}
        return (
            self.launch("k1", self._model.rows, **variant),
            self.launch("k2", self._model.rows, **variant),
        )

    def step(self, metadata: dict[str, torch.Tensor], layers: int) -> None:
        """A step of so many layers."""
        forward, kind = self._runner.forward, self._kind
        found = (self._model.x, *self._model.streams)
        for weights, caches in islice(zip(self._weights, self._model.caches, strict=True), layers):
            found = forward(weights, kind(**metadata, **caches), *found)


def _samples(sides: dict[str, Side], model: Model, turns: int) -> dict[str, list[float]]:
    """Seconds of a layer, a value a turn: each side's turn comes right after the other's."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            if turn >= side.turns:
                continue
            given = [model.metadata() for _ in range(side.steps)]
            start = time.process_time()
            for metadata in given:
                side.step(metadata, side.layers)
            seconds = time.process_time() - start
            samples[name].append(seconds / side.steps / side.layers)
    return samples


def _launched(sides: dict[str, Side], model: Model) -> dict[str, int]:
    """Launches that reach the HIP library in a layer of each side."""
    import ctypes

    from mono_runtime.hip.library import mapped_copies

    (copy,) = mapped_copies()
    library: Any = ctypes.CDLL(copy.path)
    library.standin_launched.restype = ctypes.c_ulonglong
    found = {}
    for name, side in sides.items():
        before = library.standin_launched()
        side.step(model.metadata(), 1)
        found[name] = library.standin_launched() - before
    return found


def _compiled(launcher: Any, arguments: int) -> Callable[..., None]:
    """FlyDSL's compiled function of a launcher, called as the launcher is."""
    import flydsl.compiler as flyc

    function = flyc.compile(launcher, *[0] * arguments, 0)

    def call(*values: int, stream: Any) -> None:
        function(*values, stream.cuda_stream)

    return call


def _their_weights(runner: Any, number: int, attention: dict[str, Any], ffn: dict[str, Any]) -> Any:
    half = runner.AttnWeights(
        layer_id=number, ratio=RATIO, **{ATTENTION[n]: attention[n] for n in ATTENTION}
    )
    return runner.MonoLayerWeights(
        attn=half,
        attn_norm=attention["attn_w"],
        **{SEAM[n]: attention[n] for n in SEAM},
        **{FFN[n]: ffn[n] for n in FFN},
    )


class _PeerBuffer:
    """vLLM's peer memory without other ranks."""

    def __init__(self, nbytes: int, group: Any, rank: int, npes: int, device: Any) -> None:
        self.bytes = _bytes(16)
        self.local = self.bytes.data_ptr()
        self.addresses = torch.arange(npes, dtype=torch.int64)


class _Peer:
    """The same for this project's runner."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = _bytes(16)
        self.local = self._bytes.data_ptr()
        self.addresses: Sequence[int] = (0, 1, 2, self.local)

    def close(self) -> None:
        """Nothing to release."""


def _module(name: str) -> Any:
    """An empty module of this name."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module


def _bytes(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


if __name__ == "__main__":
    main(*sys.argv[1:])
