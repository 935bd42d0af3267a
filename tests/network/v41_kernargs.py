"""vLLM's V4.1 runner and ours over the stand-in HIP, with the same tensors and launches; a script.

``python v41_kernargs.py TASK.json ANSWER.json``. The task names the import paths of FlyDSL's helpers and the
directories of vLLM's packages. vLLM's runner is the real one of the wheel; its factories give launches of
the store, as ours are, so that the kernargs of both are of one layout. The answer has, for each call,
every argument of every launch by its name: numbers as they are, and addresses as what lies there.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

ROWS, TP, RANK = 3, 2, 1
PACKAGE = "vllm.models.deepseek_v41.amd.mono"
OUTPUTS = ("out", "residual", "post_mix", "res_mix", "pre_mix")
# What each runner calls its own buffers: vLLM's attributes, then ours.
OWNED = {
    "q": "q",
    "kt": "kt",
    "klen": "klen",
    "normed": "normed",
    "qr": "qr",
    "res_mid": "res_mid",
    "post_a": "post_mid",
    "comb_a": "comb_mid",
    "pre_a": "pre_mid",
    "epoch": "epoch",
    "_dummy": "dummy",
    "_zero_rec": "zero_record",
}
# vLLM's names of weights, by the launches'.
ATTENTION = {
    "wqkv": "wqkv",
    "wqkv_s": "wqkv_scale",
    "qn_w": "q_norm",
    "kvn_w": "kv_norm",
    "wqb": "wq_b",
    "wqb_s": "wq_b_scale",
    "cos_sin": "cos_sin",
    "sink": "attn_sink",
    "woa": "wo_a",
    "woa_s": "wo_a_scale",
    "wob": "wo_b",
    "wob_s": "wo_b_scale",
}
SEAMS = {
    "attention": {
        "hc_fn": "hc_attn_fn",
        "hc_scale": "hc_attn_scale",
        "hc_base": "hc_attn_base",
        "attn_w": "attn_norm",
    },
    "ffn": {
        "hc_fn": "hc_ffn_fn",
        "hc_scale": "hc_ffn_scale",
        "hc_base": "hc_ffn_base",
        "ffn_w": "ffn_norm",
    },
}


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    sys.path += task["path"]
    for name, directory in task["packages"].items():
        module = types.ModuleType(name)
        module.__path__ = [directory]
        sys.modules[name] = module
    answer = {case: compared(*call) for case, call in CASES.items()}
    Path(answer_file).write_text(json.dumps(answer))


class Peer:
    """Peer memory of two ranks that are not there."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.table = torch.tensor([0x7000, 0x9000])
        self.local, self.addresses = 0x7000, (0x7000, 0x9000)
        self.bytes = torch.zeros(1)

    def close(self) -> None:
        pass


class Tensors:
    """Host memory, and a stream of the stand-in."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self.tables: list[torch.Tensor] = []

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    empty = zeros

    def addresses(self, values: Any) -> torch.Tensor:
        self.tables.append(torch.tensor(list(values)))
        return self.tables[-1]

    def capturing(self) -> bool:
        return False

    def stream(self) -> int:
        return self._stream


class Desk:
    """The store's launches, and both runners with the same weights, made for each call anew."""

    def __init__(self, ratio: int) -> None:
        import mono_runtime
        from mono_runtime.hip.driver import open_hip
        from mono_runtime.hooks.deepseek_v41.runner import MonoRunner, Place

        self.loader = mono_runtime.open().on(0)
        self.stream = open_hip().create_stream(0)
        self.peers: list[Peer] = []
        self.theirs = self._vllms()
        source = SimpleNamespace(launch=lambda name, rows, **variant: self.launch(name))
        place = Place("gfx950", TP, RANK)
        self.tensors = Tensors(self.stream)
        self.ours = MonoRunner(place, source, self.tensors, self._peer)
        self.their_weights, self.our_weights = self._weights(ratio)

    def launch(self, name: str) -> Any:
        """The store's launch of this name: whatever the build, its arguments are the same."""
        held = self.loader.keys()
        (key,) = [k for k in held if k.launch == name]
        return self.loader.load(key)

    def _peer(self, size: int) -> Peer:
        self.peers.append(Peer(size))
        return self.peers[-1]

    def _vllms(self) -> Any:
        runner = importlib.import_module(f"{PACKAGE}.runner")
        # The module of vLLM's own peer memory needs more of AITER than there is here.
        peers = types.ModuleType(f"{PACKAGE}.common.peer_memory")
        vars(peers)["PeerBuffer"] = lambda nbytes, *_: _vllms_peer(self._peer(nbytes))
        sys.modules[peers.__name__] = peers
        for name in ("k1", "k2", "ffn"):
            setattr(runner, f"build_mono_{name}", lambda key, name=name: self.launch(name))
        torch.cuda.current_stream = lambda *_: SimpleNamespace(cuda_stream=self.stream)
        torch.cuda.is_current_stream_capturing = lambda: False
        return runner.DSV41MonoLayer(TP, RANK, None, "cpu")

    def _weights(self, ratio: int) -> tuple[Any, Any]:
        from mono_runtime.hooks.deepseek_v41.weights import AttentionWeights, LayerWeights

        runner = importlib.import_module(f"{PACKAGE}.runner")
        kinds = (runner.AttnWeights, runner.MonoLayerWeights)
        attn, rest = ({f.name: torch.zeros(384, 1) for f in fields(kind)} for kind in kinds)
        attn |= {"layer_id": 5, "ratio": ratio}
        names = {**{n: n for n in rest}, **SEAMS["ffn"]}
        attention = AttentionWeights(
            **{n: attn[v] for n, v in ATTENTION.items()},
            **{n: rest[v] for n, v in SEAMS["attention"].items()},
        )
        ours = {
            f.name: rest[names[f.name]]
            for f in fields(LayerWeights)
            if f.name not in ("layer", "ratio", "attention")
        }
        theirs = runner.MonoLayerWeights(**{**rest, "attn": kinds[0](**attn)})
        return theirs, LayerWeights(layer=5, ratio=ratio, attention=attention, **ours)


def _vllms_peer(peer: Peer) -> Any:
    return SimpleNamespace(local=peer.local, addresses=peer.table, bytes=peer.bytes)


def _ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _records(blocks: int, rows: int, gap: int) -> torch.Tensor:
    flat = torch.zeros(blocks, rows * 584 + gap, dtype=torch.uint8)
    return torch.as_strided(flat, (blocks, rows, 584), (flat.stride(0), 584, 1))


def step(ratio: int) -> dict[str, torch.Tensor]:
    """A step's tensors by vLLM's names."""
    found = {
        "positions": _ints(ROWS, dtype=torch.int64),
        "slot_mapping": _ints(ROWS, dtype=torch.int64),
        "swa_cache": _records(4, 64, 24),
        "swa_indices": _ints(48, 1, 128),
        "swa_lens": _ints(48),
        "token_to_req": _ints(48),
    }
    if ratio:
        found |= {
            "topk_indices": _ints(48, 512),
            "comp_cache": _records(6, 32, 8),
            "comp_block_table": _ints(2, 9),
        }
    return found


def activations() -> list[torch.Tensor]:
    """Output, streams, post, comb, pre."""
    return [
        torch.zeros(ROWS, 5120, dtype=torch.bfloat16),
        torch.zeros(ROWS, 4, 5120, dtype=torch.bfloat16),
        torch.zeros(ROWS, 4, 1),
        torch.zeros(ROWS, 4, 4),
        torch.zeros(ROWS, 4),
    ]


def whole(desk: Desk, ratio: int, options: dict[str, Any]) -> Iterator[dict[str, torch.Tensor]]:
    """A whole layer by vLLM's runner, then by ours; what each gave."""
    from mono_runtime.hooks.deepseek_v41.inputs import LayerStep

    given, tensors = activations(), step(ratio)
    shared = dict(zip(("x", *OUTPUTS[1:]), given, strict=True)) | tensors
    outs = desk.theirs.forward(desk.their_weights, *given, **tensors, **options)
    yield shared | {f"new {n}": t for n, t in zip(OUTPUTS, outs, strict=True)}
    outs = desk.ours.forward(desk.our_weights, LayerStep(**tensors), *given, **options)
    yield shared | {f"new {n}": t for n, t in zip(OUTPUTS, outs, strict=True)}


def ffn(desk: Desk, ratio: int, options: dict[str, Any]) -> Iterator[dict[str, torch.Tensor]]:
    """The FFN launch by vLLM's runner, then by ours."""
    given = activations()
    shared = dict(zip(("part", *OUTPUTS[1:]), given, strict=True))
    outs = desk.theirs.ffn(desk.their_weights, *given, **options)
    yield shared | {f"new {n}": t for n, t in zip(OUTPUTS, outs, strict=True)}
    outs = desk.ours.ffn(desk.our_weights, *given, **options)
    yield shared | {f"new {n}": t for n, t in zip(OUTPUTS, outs, strict=True)}


Calls = Callable[[Desk, int, dict[str, Any]], Iterator[dict[str, torch.Tensor]]]
CASES: dict[str, tuple[Calls, int, dict[str, Any]]] = {
    "a window alone, entering": (whole, 0, {"fold": False}),
    "compressed keys": (whole, 2, {}),
    "an index source": (whole, 1, {"select": lambda normed, qr: None}),
    "ffn": (ffn, 0, {}),
}


def compared(calls: Calls, ratio: int, options: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's runner launched, and what ours did."""
    desk = Desk(ratio)
    both = calls(desk, ratio, options)
    with recorded(desk) as theirs:
        given = next(both)
        names = {t.data_ptr(): n for n, t in given.items()}
        names |= {getattr(desk.theirs, n).data_ptr(): own for n, own in OWNED.items()}
        names[desk.theirs.scratch(ROWS).data_ptr()] = "scratch"
        names[desk.theirs.peer.addresses.data_ptr()] = "table of peers"
        theirs.append(names)
    with recorded(desk) as ours:
        given = next(both)
        buffers = desk.ours.buffers
        names = {t.data_ptr(): n for n, t in given.items()}
        names |= {getattr(buffers, own).data_ptr(): own for own in OWNED.values()}
        ((rows, _), scratch), *_ = buffers.scratch.items()
        assert rows == ROWS
        names[scratch.data_ptr()] = "scratch"
        (table,) = desk.tensors.tables
        names[table.data_ptr()] = "table of peers"
        ours.append(names)
    weights = {t.data_ptr(): f"weight {n}" for n, t in _weights_of(desk.our_weights).items()}
    return {"theirs": told(theirs, weights), "ours": told(ours, weights)}


def _weights_of(weights: Any) -> dict[str, torch.Tensor]:
    attention = {
        f"attention {f.name}": getattr(weights.attention, f.name) for f in fields(weights.attention)
    }
    rest = {f.name: getattr(weights, f.name) for f in fields(weights)}
    return attention | {n: t for n, t in rest.items() if isinstance(t, torch.Tensor)}


@contextmanager
def recorded(desk: Desk) -> Iterator[list[Any]]:
    """The launches of the body, after what the body appends to the list."""
    import standin_hip

    hip = standin_hip.load()
    hip.forget_launches()
    found: list[Any] = []
    yield found
    loaded = {
        d.symbol: launch for launch in desk.loader.launches.values() for d in launch.plan.dispatches
    }
    for record in hip.launches():
        launch = loaded[record.symbol]
        assert record.stream == desk.stream
        (dispatch,) = launch.plan.dispatches
        found.append(
            [
                launch.key.launch,
                {
                    a.name: int.from_bytes(
                        record.kernargs[a.offset : a.offset + a.size], "little", signed=True
                    )
                    for a in dispatch.arguments
                },
            ]
        )


def told(found: list[Any], weights: dict[int, str]) -> list[Any]:
    """Launches with addresses as what lies there."""
    names, *launches = found
    known = {**weights, **names}
    return [
        [launch, {n: known.get(v, v) for n, v in values.items()}] for launch, values in launches
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
