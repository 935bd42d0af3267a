"""vLLM's own runners of mono kernels over the stand-in HIP, first from a store and then with FlyDSL; a script.

``python vllm_runners.py TASK.json ANSWER.json``. The task names a family and the directories of vLLM's and
of AITER's packages. vLLM's modules are the real ones of the wheel, imported as a server imports them,
with bodies without code for the packages above them and for what they need of the rest of the engine.
Every call is made twice with the same tensors: with the plug-in's launches, and with those that the
wrapped factories of vLLM make.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

# torch's current stream, of the stand-in.
STREAM = SimpleNamespace(cuda_stream=0)
# What FlyDSL does when it serves a launch itself, and how often.
_counted = {"launchers": 0, "calls": 0}


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    sys.path += task["path"]
    for name, directory in task["packages"].items():
        module = types.ModuleType(name)
        module.__path__ = [directory]
        sys.modules[name] = module
    sys.modules["vllm"].__version__ = "0.33.0"
    importlib.import_module("aiter.ops.flydsl")
    _stub("vllm.config", CompilationMode=None, CUDAGraphMode=None, VllmConfig=None)
    _stub("regex", **vars(importlib.import_module("re")))
    _stub("aiter.ops.flydsl.quick_allreduce_int4_ipc", UncachedIpcHeap=object)
    from mono_runtime.hip.driver import open_hip
    from mono_runtime.hooks import plugin

    STREAM.cuda_stream = open_hip().create_stream(0)
    torch.cuda.current_stream = lambda *_: STREAM
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.is_initialized = lambda: True
    torch.version.hip = "7.0"
    plugin.register()
    plugin.register()
    _count_flydsl()
    serving = plugin.serving()
    assert serving is not None
    changed = _changed(task["family"])
    answer = {**FAMILIES[task["family"]](), "changed": changed}
    answer["left_alone"] = serving.leaves_alone(task["family"])
    loader = serving.loader()
    answer["launches"] = {str(k): launch.calls for k, launch in loader.launches.items()}
    Path(answer_file).write_text(json.dumps(answer))


def _stub(name: str, **attributes: Any) -> ModuleType:
    """A module of this name with nothing but these attributes."""
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            _stub(parent).__path__ = []  # type: ignore[attr-defined]
        setattr(sys.modules[parent], last, module)
    return module


def _count_flydsl() -> None:
    """Count launchers that FlyDSL makes and calls that it serves, each of which traces."""
    from flydsl.compiler import jit_function

    made, served = jit_function.JitFunction.__init__, jit_function.JitFunction._compile_or_execute

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        _counted["launchers"] += 1
        made(self, *args, **kwargs)

    def serve(self: Any, *args: Any, **kwargs: Any) -> Any:
        _counted["calls"] += 1
        return served(self, *args, **kwargs)

    jit_function.JitFunction.__init__ = init
    jit_function.JitFunction._compile_or_execute = serve


class _Rest(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the engine that are not here: each has a class for every name it is asked for."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] != "vllm":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__class_getitem__": classmethod(lambda cls, item: cls)})

        vars(module)["__getattr__"] = get


def _changed(family: str) -> dict[str, list[str]]:
    """The functions of the family's modules that have been changed, with their own parameters."""
    from mono_runtime.hooks.vllm_factories.families import MODULES

    sys.meta_path.append(_Rest())
    _stub("vllm.logger", init_logger=lambda name: SimpleNamespace())
    found: dict[str, list[str]] = {}
    for name in MODULES[family]:
        # The models themselves only import a name from the others.
        if name.rpartition(".")[2] in ("linear", "model"):
            continue
        module = importlib.import_module(name)
        for owner in (module, *(v for v in vars(module).values() if isinstance(v, type))):
            for attribute, value in list(vars(owner).items()):
                function = getattr(value, "__func__", value)
                if isinstance(function, types.FunctionType) and hasattr(function, "_mono_runtime"):
                    shown = f"{owner.__name__.rpartition('.')[2]}.{attribute}"
                    found[shown] = list(inspect.signature(function).parameters)
    return found


def _records() -> list[list[Any]]:
    """What reached the stand-in since the last call, each launch as plain values."""
    import standin_hip

    hip = standin_hip.load()
    found = [
        [r.symbol, list(r.grid), list(r.block), r.dynamic_lds, r.stream, r.kernargs.hex()]
        for r in hip.launches()
    ]
    hip.forget_launches()
    return found


def _both(call: Callable[[], Any], with_flydsl: Callable[[], Any]) -> dict[str, Any]:
    """The records of ``call`` as it is, and after ``with_flydsl`` has put FlyDSL's launchers in place."""
    _records()
    before = dict(_counted)
    call()
    ours, home = _records(), [str(path) for path in Path.home().rglob("*")]
    counted = {name: _counted[name] - before[name] for name in before}
    launchers = with_flydsl()
    call()
    theirs = _records()
    return {
        "ours": ours,
        "theirs": theirs,
        "flydsl_meanwhile": counted,
        "written": home,
        "cache_variable": os.environ.get("FLYDSL_RUNTIME_CACHE_DIR"),
        "flydsl_afterwards": {name: _counted[name] - before[name] for name in before},
        "code": [_code(launcher) for launcher in launchers],
    }


def _code(launcher: Any) -> str:
    """sha256 of the code object that FlyDSL made for a launcher, as vLLM takes it out of an artefact."""
    text = getattr(launcher, "_ir_text", None) or launcher._last_compiled[1]._ir_text
    residency = importlib.import_module(
        "vllm.models.minimax_m3.amd.specialized_decode.mono.residency"
    )
    return "sha256:" + hashlib.sha256(residency.code_object(text)).hexdigest()


class _Peers:
    """vLLM's peer buffer, without other ranks and without a device."""

    def __init__(self, nbytes: int, group: Any, rank: int, npes: int, device: Any) -> None:
        self.bytes = torch.zeros(256, dtype=torch.uint8)
        self.local = self.bytes.data_ptr()
        self.addresses = torch.arange(npes, dtype=torch.int64)


def _zeros(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def _weights(kind: Any, **others: Any) -> Any:
    """vLLM's weights of a layer, a small tensor for each name: nothing reads them."""
    names = [name for name in kind.__dataclass_fields__ if name not in others]
    return kind(**{name: _zeros(16) for name in names}, **others)


def _step(rows: int, hidden: int) -> dict[str, torch.Tensor]:
    return {
        "x": _zeros(rows, hidden, dtype=torch.bfloat16),
        "residual": _zeros(rows, 4, hidden, dtype=torch.bfloat16),
        "post_mix": _zeros(rows, 4, 1, dtype=torch.float32),
        "res_mix": _zeros(rows, 4, 4, dtype=torch.float32),
        "positions": _zeros(rows, dtype=torch.int64),
        "slot_mapping": _zeros(rows, dtype=torch.int64),
        "swa_cache": _zeros(2, 64, 584),
        "swa_indices": _zeros(rows, 1, 128, dtype=torch.int32),
        "swa_lens": _zeros(rows, dtype=torch.int32),
        "token_to_req": _zeros(rows, dtype=torch.int32),
    }


def deepseek_v41() -> dict[str, Any]:
    package = "vllm.models.deepseek_v41.amd.mono"
    runner = importlib.import_module(f"{package}.runner")
    layer = importlib.import_module(f"{package}.layer")
    importlib.import_module(f"{package}.common.peer_memory").PeerBuffer = _Peers
    mono = runner.DSV41MonoLayer(4, 3, None, "cpu")
    attention = _weights(runner.AttnWeights, layer_id=0, ratio=0)
    weights = _weights(runner.MonoLayerWeights, attn=attention, gate_w=_zeros(384, 16))
    step = {**_step(1, 5120), "pre_mix": _zeros(1, 4, dtype=torch.float32)}
    step["outs"] = mono._outs(1, step["residual"])
    part = _zeros(1, 5120, dtype=torch.bfloat16)
    mixes = [step[n] for n in ("residual", "post_mix", "res_mix", "pre_mix")]

    def call() -> None:
        mono.forward(weights, **step, fold=False)
        mono.ffn(weights, part, *mixes, outs=step["outs"])

    def with_flydsl() -> list[Any]:
        build = layer.MonoBuild(1, 4, 0, fold=False)
        k1 = layer.build_mono_k1.__wrapped__(build)
        k2 = layer.build_mono_k2.__wrapped__(build)
        ffn = layer.build_mono_ffn.__wrapped__(layer.MonoBuild(1, 4, 0))
        assert set(mono._kernels) == {(1, 0, False, False), (1, "ffn", 384, 6)}
        mono._kernels = {(1, 0, False, False): (k1, k2), (1, "ffn", 384, 6): ffn}
        return [k1, k2, ffn]

    capture = _refused(lambda: _captured(lambda: layer.build_mono_ffn(layer.MonoBuild(1, 4, 0))))
    answer = _both(call, with_flydsl)
    answer["capture"] = capture
    answer["absent"] = _refused(lambda: mono.kernels(1, 2))
    answer["imported"] = [runner.build_mono_k1 is layer.build_mono_k1]
    answer["refused"] = _refused(
        lambda: layer.build_mono_k1(_with_a_field(layer.MonoBuild)(1, 4, 0))
    )
    return answer


def deepseek_v4() -> dict[str, Any]:
    package = "vllm.models.deepseek_v4.amd.mono"
    runner = importlib.import_module(f"{package}.runner")
    layer = importlib.import_module(f"{package}.layer")
    importlib.import_module(f"{package}.common.peer_memory").PeerBuffer = _Peers
    mono = runner.MonoRunner(8, 5, None, "cpu", max_topk=8192)
    attention = _weights(runner.AttnWeights, layer_id=3, ratio=4)
    weights = _weights(runner.MonoLayerWeights, attn=attention)
    step = _step(1, 7168)
    step["topk_indices"] = _zeros(1, mono.d.topk_width, dtype=torch.int32)
    step["comp_cache"] = _zeros(2, 16, 584)
    step["comp_block_table"] = _zeros(1, 8, dtype=torch.int32)
    step["outs"] = mono._outs(1, step["residual"])

    def call() -> None:
        mono.forward(weights, **step, select=lambda normed, qr: None)

    def with_flydsl() -> list[Any]:
        build = layer.MonoBuild(1, 8, 4)
        made = [f.__wrapped__(build) for f in (layer.build_mono_k1, layer.build_mono_k2)]
        (name,) = mono._kernels
        mono._kernels = {name: tuple(made)}
        return made

    return _both(call, with_flydsl)


def kimi_k3() -> dict[str, Any]:
    decode = "vllm.models.kimi_k3.amd.specialized_decode"
    layers = importlib.import_module(f"{decode}.runtime.layers")
    k2 = importlib.import_module(f"{decode}.mono.layer")
    kda = importlib.import_module(f"{decode}.mono.attention.kda")
    front = kda.KdaPreBuild(tokens=2, qlen=2, nblocks=1, delta=True, state_len=4)
    back = k2.K2Build(tokens=2, nblocks=1)
    _records()
    layers.compile_build(front)
    layers.compile_build(back)
    at_load = _records()
    tensors = _named(kda.kda_pre, layer=7, alarm=0x1230, key=front)
    tensors["blocks"] = _zeros(4, 3, 2)
    tensors["conv_state"], tensors["st_idx"] = _zeros(2, 8, 4), _zeros(1, 2)
    others = _named(k2.k2_launch, rank=6, layer=135, alarm=0x1230, key=back)
    others["blocks"] = tensors["blocks"]

    def call() -> None:
        kda.kda_pre(**tensors)
        k2.k2_launch(**others)

    def with_flydsl() -> list[Any]:
        made = [kda.build.__wrapped__(front), k2.build.__wrapped__(back)]
        kda.build, k2.build = (lambda launcher: lambda key: launcher)(made[0]), lambda key: made[1]
        return made

    answer = _both(call, with_flydsl)
    answer["at_load"] = at_load
    return answer


def minimax_m3() -> dict[str, Any]:
    package = "vllm.models.minimax_m3.amd.specialized_decode.mono"
    runner = importlib.import_module(f"{package}.runner")
    ffn = importlib.import_module(f"{package}.ffn")
    names = ["post_norm", "router", "router_bias", "w13", "s13", "w2", "s2"]
    weights = SimpleNamespace(**{name: _zeros(16) for name in names})
    mono = runner.FfnRunner(4, 2, 0x7F00, torch.arange(4), torch.device("cpu"), widths=(1,))
    _records()
    mono.warm(weights, compute_units=256)
    at_load = _records()
    part, residual = (_zeros(1, ffn.HIDDEN, dtype=torch.bfloat16) for _ in range(2))
    # Outputs at the same addresses in both calls.
    outputs = {part.data_ptr(): _zeros(1, ffn.HIDDEN), residual.data_ptr(): _zeros(1, ffn.HIDDEN)}
    runner.torch = SimpleNamespace(**{**vars(torch), "empty_like": lambda t: outputs[t.data_ptr()]})
    slots = _zeros(1, dtype=torch.int64)

    def call() -> None:
        mono(part, residual, weights, slots, final=True)

    def with_flydsl() -> list[Any]:
        import flydsl.compiler as flyc

        launcher = ffn.build_ffn.__wrapped__(ffn.FfnBuild(tokens=1))
        arguments = mono._args(1, part, part, part, part, slots, weights, 0)
        mono._compiled[1] = flyc.compile(launcher, *arguments)
        _records()
        return [mono._compiled[1]._keepalive]

    answer = _both(call, with_flydsl)
    answer["at_load"] = at_load
    answer["residency"] = mono.residency
    return answer


def _named(function: Callable[..., Any], **fixed: Any) -> dict[str, Any]:
    """Keyword arguments for ``function``: a small tensor for each that is not ``fixed``."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: fixed[name] if name in fixed else _zeros(2, 2) for name in names}


def _with_a_field(kind: type) -> type:
    """vLLM's key class as a later release might have it: with one field more."""
    from dataclasses import make_dataclass

    return make_dataclass(kind.__name__, [("wide", bool, False)], bases=(kind,), frozen=True)


def _refused(call: Callable[[], Any]) -> list[str]:
    from mono_runtime.errors import MonoError

    try:
        call()
    except MonoError as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def _captured(call: Callable[[], Any]) -> None:
    """``call`` while torch's current stream records a graph."""
    import standin_hip

    hip = standin_hip.load()
    hip.begin_capture(STREAM.cuda_stream)
    try:
        call()
    finally:
        hip.destroy_graph(hip.end_capture(STREAM.cuda_stream))


FAMILIES = {f.__name__: f for f in (deepseek_v41, deepseek_v4, kimi_k3, minimax_m3)}

if __name__ == "__main__":
    main(*sys.argv[1:])
