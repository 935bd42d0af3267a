"""vLLM's own decoder layer calls ours: its ``__init__``'s last lines and its ``forward``, from the wheel."""

from __future__ import annotations

import ast
import os
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import (
    HC,
    HIDDEN,
    FakeEngine,
    FakeMaker,
    FakePrepared,
    FakeServing,
    context,
    decoder_layer,
    vllm_config,
    window,
)

from mono_build.sources import resolve_kernels
from mono_runtime.hooks.deepseek_v41.factory import LayerFactory

pytestmark = pytest.mark.network

ROWS = 12


@pytest.fixture(scope="module")
def decoder_class() -> ast.ClassDef:
    """``DeepseekV4DecoderLayer`` of vLLM's model, as text: the module itself imports the whole engine."""
    kernels = resolve_kernels(os.environ.get("MONO_TEST_KERNELS", "vllm==0.33.0"), os.environ)
    tree = ast.parse((kernels.root / "vllm/models/deepseek_v41/amd/model.py").read_text())
    return next(
        n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "DeepseekV4DecoderLayer"
    )


def function(decoder: ast.ClassDef, name: str, keep: Any, space: dict[str, Any]) -> Any:
    """A method with those of its statements that ``keep`` names, over the names in ``space``."""
    found = next(n for n in decoder.body if isinstance(n, ast.FunctionDef) and n.name == name)
    found = ast.FunctionDef(
        name=name,
        args=found.args,
        body=[n for n in found.body if keep(n)],
        decorator_list=[],
        lineno=1,
        col_offset=0,
    )
    module = ast.Module([ast.ImportFrom("__future__", [ast.alias("annotations")], 0), found], [])
    exec(compile(ast.fix_missing_locations(module), "model.py", "exec"), space)
    return space[name]


class Setting:
    """A decoder layer of vLLM's, its steps' calls in order, and the launches behind it."""

    def __init__(self, decoder: ast.ClassDef, arch: str, number: int = 5, **changed: Any) -> None:
        self.engine, self.maker = FakeEngine(arch), FakeMaker()
        serving: Any = FakeServing(FakePrepared({ROWS}))
        factory = LayerFactory(serving, self.engine, self.maker)
        self.calls: list[str] = []
        self.layer = layer = decoder_layer(number, **changed)
        layer.attn = Attention(self.calls, layer.attn)
        layer.attn.wo_b = Object(reduce_results=True, quant_method=layer.attn.wo_a.quant_method)
        space = {"torch": torch, "MonoDecodeLayer": factory}
        space["tensor_model_parallel_all_reduce"] = self.reduce
        init = function(decoder, "__init__", lambda n: "self.mono" in ast.unparse(n), space)
        init(layer, vllm_config(), "model.layers.5")
        self._forward = function(decoder, "forward", lambda n: True, space)
        for name in ("hc_attn_scale", "hc_attn_base", "hc_ffn_fn", "hc_ffn_scale", "hc_ffn_base"):
            setattr(layer, name, None)
        layer.rms_norm_eps = layer.hc_eps = layer.hc_post_alpha = layer.hc_sinkhorn_iters = 0
        layer.hc_attn_fn, layer.hc_attn_fn_broadcast = "unfolded", "folded"
        layer.attn_norm = layer.ffn_norm = Norm()
        layer.mhc_pre_delayed = self.seam
        layer.ffn = lambda x, ids: self.calls.append("ffn") or x

    def reduce(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append("reduce")
        return x

    def seam(self, residual: Any, fn: Any, *_: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        self.calls.append(f"seam {fn}" if isinstance(fn, str) else "seam")
        x = torch.zeros(ROWS, HIDDEN)
        return (
            residual,
            torch.zeros(ROWS, HC, 1),
            torch.zeros(ROWS, HC, HC),
            x,
            torch.zeros(ROWS, HC),
        )

    def step(self, swa: Any, *, first: bool = False) -> Any:
        """One step of the layer; what vLLM's forward gives back."""
        self.engine.current = context(self.layer, swa)
        self.calls.clear()
        given = (None,) * 4
        if not first:
            given = (
                torch.zeros(ROWS, HC),
                torch.zeros(ROWS, HC, 1),
                torch.zeros(ROWS, HC, HC),
                torch.zeros(ROWS, HC, HIDDEN),
            )
        return self._forward(
            self.layer, torch.zeros(ROWS, HIDDEN), torch.arange(ROWS), None, *given
        )


class Attention:
    """The layer's attention, which notes that it ran."""

    def __init__(self, calls: list[str], facts: Any) -> None:
        vars(self).update(vars(facts))
        self._calls = calls

    def __call__(self, positions: Any, x: torch.Tensor, _: Any) -> torch.Tensor:
        self._calls.append("attention")
        return x


class Norm:
    weight, variance_epsilon = None, 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture(autouse=True)
def _weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mono_runtime.hooks.deepseek_v41.factory.weights_of", lambda layer, layout: layout
    )


def test_a_whole_layers_outputs_are_the_runners(decoder_class: ast.ClassDef) -> None:
    setting = Setting(decoder_class, "gfx950")
    assert setting.layer.attn.wo_b.reduce_results is True
    assert setting.step(window(ROWS)) == "outputs of call 1"
    assert setting.calls == []
    # A prefill in between runs vLLM's path to its end, and the next decode step is taken again.
    assert len(setting.step(window(ROWS, num_prefills=1))) == 5
    assert setting.calls == ["seam unfolded", "attention", "seam", "ffn"]
    assert setting.step(window(ROWS)) == "outputs of call 2"


def test_the_first_layers_embedding_enters(decoder_class: ast.ClassDef) -> None:
    setting = Setting(decoder_class, "gfx950", 0)
    assert setting.step(window(ROWS), first=True) == "outputs of call 1"
    assert setting.maker.made[0].calls[0].fold is False


@pytest.mark.parametrize(("arch", "seam"), [("gfx950", "seam folded"), ("gfx942", "seam unfolded")])
def test_vllms_own_entry_is_unfolded_on_gfx942(
    decoder_class: ast.ClassDef, arch: str, seam: str
) -> None:
    setting = Setting(decoder_class, arch, 0)
    setting.step(window(ROWS, num_decodes=0), first=True)
    assert setting.calls[0] == seam


def test_the_ffn_launch_takes_the_unreduced_attention(decoder_class: ast.ClassDef) -> None:
    setting = Setting(decoder_class, "gfx950", attn__kv_mxfp8=True)
    assert setting.layer.attn.wo_b.reduce_results is False
    assert setting.step(window(ROWS)) == "outputs of call 1"
    assert setting.calls == ["seam unfolded", "attention"]
    (call,) = setting.maker.made[0].calls
    assert [tuple(t.shape) for t in call.tensors] == [
        (ROWS, HIDDEN),
        (ROWS, HC, HIDDEN),
        (ROWS, HC, 1),
        (ROWS, HC, HC),
        (ROWS, HC),
    ]


def test_a_step_that_the_ffn_launch_does_not_take_is_reduced_by_vllm(
    decoder_class: ast.ClassDef,
) -> None:
    setting = Setting(decoder_class, "gfx950", attn__kv_mxfp8=True)
    assert len(setting.step(window(ROWS, num_prefills=2))) == 5
    assert setting.calls == ["seam unfolded", "attention", "reduce", "seam", "ffn"]


def test_a_layer_that_is_off_is_vllms_altogether(decoder_class: ast.ClassDef) -> None:
    setting = Setting(decoder_class, "gfx950", ffn__scoring_func="sigmoid")
    assert setting.layer.mono is None
    setting.step(window(ROWS))
    assert setting.calls == ["seam unfolded", "attention", "seam", "ffn"]
