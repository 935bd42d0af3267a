"""What a rank's runner launches for a layer: which launches in which order, and every argument of each."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from v41_runner_kit import STREAM, Bench, Given, Kind, given, weights

from mono_runtime.errors import ArgumentMismatch, InvalidValue
from mono_runtime.hooks.deepseek_v41.inputs import LayerOutputs

SEAM = {"res": "res_mid", "post": "post_mid", "comb": "comb_mid", "pre": "pre_mid"}
MODEL = {"experts": 384, "topk": 6, "ug_groups": 2, "swa_width": 128}
DRAFT = {"experts": 128, "topk": 3, "ug_groups": 1, "swa_width": 192}


def addresses(owner: object, *names: str) -> dict[str, int]:
    return {name: getattr(owner, name).data_ptr() for name in names}


def of_weights(of: Given, launch: str) -> dict[str, int]:
    """The weights' arguments of a launch."""
    seam = ("hc_fn", "hc_scale", "hc_base")
    attention = of.weights.attention
    front = ("attn_w", "wqkv", "wqkv_s", "qn_w", "kvn_w", "wqb", "wqb_s", "cos_sin")
    if launch == "k1":
        return addresses(attention, *seam, *front)
    back = ("cos_sin", "sink", "woa", "woa_s", "wob", "wob_s") if launch == "k2" else ()
    experts = ("gate_w", "bias", "w13", "w13_s", "w2", "w2_s", "sgu", "sgu_s", "sw2", "sw2_s")
    return {**addresses(attention, *back), **addresses(of.weights, *seam, "ffn_w", *experts)}


def of_step(of: Given) -> dict[str, int]:
    """The step's arguments, as the launches of a layer with compressed keys have them."""
    s: Any = of.step
    return {
        "pos": s.positions.data_ptr(),
        "slot": s.slot_mapping.data_ptr(),
        "swa_idx": s.swa_indices.data_ptr(),
        "swa_lens": s.swa_lens.data_ptr(),
        "t2r": s.token_to_req.data_ptr(),
        "topk": s.topk_indices.data_ptr(),
        "comp_bt": s.comp_block_table.data_ptr(),
        "bt_stride": 7,
        "comp_block": 32,
    }


def of_window(of: Given) -> dict[str, int]:
    return {"swa": of.step.swa_cache.data_ptr(), "swa_stride": 64 * 584 + 16, "swa_block": 64}


def of_runner(bench: Bench, rows: int) -> dict[str, int]:
    """What the launches of a width keep in the runner's memory."""
    b = bench.runner.buffers
    assert b.epoch is not None
    scratch = b.scratch[rows, 1000 * rows]
    return {"scratch": scratch.data_ptr(), "epoch": b.epoch.data_ptr(), "tl": 0}


def of_peers(bench: Bench, call: Any) -> dict[str, int]:
    """This rank's peer memory, and where the table of all ranks' is."""
    return {"sym": 0x7000, "rank": 1, "peers": call.arguments["peers"]}


def between(bench: Bench, ending: str) -> dict[str, int]:
    b = bench.runner.buffers
    found = {f"{name}_{ending}": getattr(b, mid).data_ptr() for name, mid in SEAM.items()}
    return {**found, **addresses(b, "q", "kt", "klen")}


def written(outputs: LayerOutputs) -> dict[str, int]:
    names = ("out", "res_out", "post_out", "comb_out", "pre_out")
    return {n: t.data_ptr() for n, t in zip(names, outputs, strict=True)}


def read(of: Given, first: str) -> dict[str, int]:
    names = (first, "res_in", "post_in", "comb_in", "pre_in")
    return {n: t.data_ptr() for n, t in zip(names, of.activations, strict=True)}


def test_every_argument_of_a_whole_layer_is_what_its_name_says() -> None:
    bench, layer = Bench(), given()
    outputs = bench.forward(layer)
    k1, k2 = bench.calls()
    assert (k1.name, k2.name) == ("k1", "k2")
    assert k1.arguments == {
        **read(layer, "pend"),
        **of_weights(layer, "k1"),
        **of_step(layer),
        **of_window(layer),
        **between(bench, "out"),
        **of_runner(bench, 3),
        "normed_out": bench.runner.buffers.normed.data_ptr(),
        "qr_out": bench.runner.buffers.qr.data_ptr(),
    }
    far: Any = layer.step.comp_cache
    scale = struct.unpack("<f", struct.pack("<i", k2.arguments.pop("qk_scale")))[0]
    assert scale == pytest.approx(512**-0.5 * 1.4426950408889634, rel=1e-7)
    assert k2.arguments == {
        **of_weights(layer, "k2"),
        **of_step(layer),
        **of_window(layer),
        "comp": far.data_ptr(),
        "comp_stride": 32 * 584 + 8,
        **between(bench, "in"),
        "zrec": bench.runner.buffers.zero_record.data_ptr(),
        **written(outputs),
        **of_runner(bench, 3),
        **of_peers(bench, k2),
    }
    assert {c.stream for c in bench.calls()} == {STREAM}


def test_every_argument_of_an_ffn_is_what_its_name_says() -> None:
    bench, layer = Bench(), given(whole=False)
    outputs = bench.ffn(layer)
    (call,) = bench.calls()
    assert (call.name, call.rows, call.variant) == ("ffn", 3, {"experts": 384, "topk": 6})
    assert call.arguments == {
        **read(layer, "part"),
        **of_weights(layer, "ffn"),
        **written(outputs),
        **of_runner(bench, 3),
        **of_peers(bench, call),
    }
    assert call.stream == STREAM


def test_a_layer_without_compressed_keys_has_something_in_their_place() -> None:
    bench, layer = Bench(), given(ratio=0)
    bench.forward(layer)
    k1, k2 = bench.calls()
    dummy = bench.runner.buffers.dummy.data_ptr()
    nothing = {"topk": dummy, "comp_bt": dummy, "bt_stride": 0, "comp_block": 1}
    assert {n: k1.arguments[n] for n in nothing} == nothing
    nothing |= {"comp": dummy, "comp_stride": 0}
    assert {n: k2.arguments[n] for n in nothing} == nothing
    assert k1.variant == k2.variant == {"ratio": 0, "fold": True, "index": False, **MODEL}


def test_outputs_are_new_and_of_the_steps_width() -> None:
    bench, layer = Bench(), given(7)
    first, second = bench.forward(layer), bench.ffn(layer)
    for outputs in (first, second):
        assert [(tuple(t.shape), t.dtype) for t in outputs] == [
            ((7, 5120), torch.bfloat16),
            ((7, 4, 5120), torch.bfloat16),
            ((7, 4, 1), torch.float32),
            ((7, 4, 4), torch.float32),
            ((7, 4), torch.float32),
        ]
    assert {t.data_ptr() for t in first}.isdisjoint(t.data_ptr() for t in second)


class Selecting:
    """A selection that notes what had been launched, and what it was given."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.before: list[list[str]] = []
        self.given: list[torch.Tensor] = []

    def __call__(self, normed: torch.Tensor, qr: torch.Tensor) -> None:
        self.before.append(self._bench.order())
        self.given = [normed, qr]


def test_an_index_source_selects_between_the_launches_and_k2_lists_the_keys() -> None:
    bench, layer = Bench(), given()
    select = Selecting(bench)
    bench.forward(layer, select=select)
    assert select.before == [["k1"]]
    assert bench.order() == ["k1", "k2"]
    k1, k2 = bench.calls()
    assert k1.variant == k2.variant == {"ratio": 2, "fold": True, "index": True, **MODEL}
    normed, qr = select.given
    assert (tuple(normed.shape), tuple(qr.shape)) == ((3, 5120), (3, 1280))
    assert (normed.data_ptr(), qr.data_ptr()) == (
        k1.arguments["normed_out"],
        k1.arguments["qr_out"],
    )


@pytest.mark.parametrize(("arch", "options"), [("gfx942", {}), ("gfx950", {"key_list": True})])
def test_keys_are_listed_between_the_selection_and_a_plain_k2(
    arch: str, options: dict[str, bool]
) -> None:
    bench, layer = Bench(arch, **options), given(ratio=1)
    select = Selecting(bench)
    bench.forward(layer, select=select)
    assert select.before == [["k1"]]
    assert bench.order() == ["k1", "keylist", "k2"]
    k1, keys, k2 = bench.calls()
    assert k1.variant == {"ratio": 1, "fold": True, "index": True, **MODEL}
    assert k2.variant == {"ratio": 1, "fold": True, "index": False, **MODEL}
    assert (keys.rows, keys.variant, keys.stream) == (3, {}, STREAM)
    buffers = bench.runner.buffers
    assert keys.arguments == {**of_step(layer), **addresses(buffers, "kt", "klen"), "ratio": 1}


def test_a_layer_that_selects_nothing_lists_no_keys_on_gfx942() -> None:
    bench = Bench("gfx942")
    bench.forward(given())
    assert bench.order() == ["k1", "k2"]


def test_a_model_is_entered_without_a_fold() -> None:
    bench, layer = Bench(), given(2, ratio=0)
    pre = bench.runner.first_pre_mix(2)
    assert torch.equal(pre, torch.tensor([[1.0, 0, 0, 0]] * 2))
    # The mixes that nothing reads may be any tensor.
    layer.activations[2:] = [pre, pre, pre]
    bench.forward(layer, fold=False)
    k1, k2 = bench.calls()
    assert k1.variant == k2.variant == {"ratio": 0, "fold": False, "index": False, **MODEL}
    with pytest.raises(ArgumentMismatch, match="res_mix is"):
        bench.forward(layer)


def test_the_drafts_runner_asks_for_its_own_launches() -> None:
    bench, layer = Bench(kind=Kind(**DRAFT)), given(ratio=0, width=192)
    bench.forward(layer)
    assert [c.variant for c in bench.calls()] == [
        {"ratio": 0, "fold": True, "index": False, **DRAFT}
    ] * 2
    with pytest.raises(ArgumentMismatch, match=r"swa_indices is \[48, 1, 128\]"):
        bench.forward(given(ratio=0))


def test_a_drafts_ffn_on_the_models_runner_has_the_drafts_routing() -> None:
    bench = Bench("gfx942")
    bench.ffn(given(whole=False, experts=128), topk=3)
    bench.ffn(given(whole=False))
    assert [c.variant for c in bench.calls()] == [
        {"experts": 128, "topk": 3},
        {"experts": 384, "topk": 6},
    ]


def test_launches_are_asked_for_once_and_layers_differ_in_their_weights() -> None:
    bench, layer, other = Bench(), given(), given()
    for of in (layer, other, layer, other):
        bench.forward(of)
    assert [name for name, _, _ in bench.source.asked] == ["k1", "k2"]
    assert [c.arguments["attn_w"] for c in bench.calls()[::2]] == [
        of_weights(of, "k1")["attn_w"] for of in (layer, other, layer, other)
    ]


def test_weights_that_are_replaced_are_bound_anew_and_the_old_ones_let_go() -> None:
    bench, layer = Bench(), given()
    bench.forward(layer)
    bench.ffn(layer)
    old = layer.weights
    bench.runner.forget(old)
    layer.weights = weights()
    bench.forward(layer)
    bench.ffn(layer)
    assert [c.arguments["ffn_w"] for c in bench.calls() if "ffn_w" in c.arguments] == [
        w.ffn_w.data_ptr() for w in (old, old, layer.weights, layer.weights)
    ]
    assert [name for name, _, _ in bench.source.asked] == ["k1", "k2", "ffn"]


def test_what_moves_between_steps_is_seen() -> None:
    bench, layer = Bench(), given()
    bench.forward(layer)
    later = layer.changed(
        slot_mapping=torch.ones(3, dtype=torch.int64),
        comp_block_table=torch.zeros(2, 9, dtype=torch.int32),
    )
    later.activations = [t.clone() for t in layer.activations]
    bench.forward(later)
    *_, k1, k2 = bench.calls()
    assert k1.arguments["slot"] == k2.arguments["slot"] == later.step.slot_mapping.data_ptr()
    assert (k1.arguments["bt_stride"], k2.arguments["bt_stride"]) == (9, 9)
    assert k1.arguments["pend"] == later.activations[0].data_ptr()
    # A narrower step over the same metadata tensors is looked at again.
    narrow = later.changed()
    narrow.activations = [t[:2] for t in later.activations]
    bench.forward(narrow)
    assert [c.rows for c in bench.calls()] == [3, 3, 3, 3, 2, 2]
    # And a wider one than they have rows for is not taken for what was looked at.
    wide = given(5)
    narrow.activations = wide.activations
    with pytest.raises(ArgumentMismatch, match=r"positions is \[3\] int64 .* wanted \[5 or more\]"):
        bench.forward(narrow)
    assert len(bench.calls()) == 6


def bad(name: str, tensor: torch.Tensor | None) -> Any:
    return pytest.param(name, tensor, id=name)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        bad("positions", torch.zeros(3, dtype=torch.int32)),
        bad("slot_mapping", torch.zeros(2, dtype=torch.int64)),
        bad("swa_indices", torch.zeros(3, 1, 256, dtype=torch.int32)[..., :128]),
        bad("swa_lens", torch.zeros(6, dtype=torch.int32)[::2]),
        bad("token_to_req", torch.zeros(3, dtype=torch.int64)),
        bad("topk_indices", torch.zeros(3, 256, dtype=torch.int32)),
        bad("comp_cache", torch.zeros(2, 32, 600, dtype=torch.uint8)),
        bad("comp_block_table", None),
        bad("swa_cache", torch.zeros(2, 64, 584, dtype=torch.int8)),
    ],
)
def test_a_steps_tensor_that_the_kernels_would_misread_is_named(
    name: str, tensor: torch.Tensor | None
) -> None:
    bench, layer = Bench(), given()
    bench.forward(layer)
    with pytest.raises(ArgumentMismatch, match=f"^the step's tensors .*\n    {name} is "):
        bench.forward(layer.changed(**{name: tensor}))
    assert bench.order() == ["k1", "k2"]
    bench.forward(layer)
    assert bench.order() == ["k1", "k2", "k1", "k2"]


def test_all_tensors_of_a_step_that_do_not_fit_are_named_together() -> None:
    bench, layer = Bench(), given()
    wrong = layer.changed(
        positions=torch.zeros(3, dtype=torch.int32), swa_lens=torch.zeros(1, dtype=torch.int32)
    )
    with pytest.raises(ArgumentMismatch) as refused:
        bench.forward(wrong)
    assert "positions is [3] int32 with strides [1]; wanted [3 or more]" in str(refused.value)
    assert "swa_lens is [1] int32" in str(refused.value)


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("whole", [True, False])
def test_activations_that_the_kernels_would_misread_are_named(position: int, whole: bool) -> None:
    bench, layer = Bench(), given(whole=whole)
    run = bench.forward if whole else bench.ffn
    run(layer)
    name = ("x", "residual", "post_mix", "res_mix", "pre_mix")[position]
    right = layer.activations[position]
    for wrong in (right.to(torch.float64), torch.stack([right] * 2, -1)[..., 0], right[:, :1]):
        layer.activations[position] = wrong
        with pytest.raises(ArgumentMismatch, match=f"    {name} is "):
            run(layer)
    assert len(bench.calls()) == (2 if whole else 1)


@pytest.mark.parametrize("rows", [0, 49])
def test_a_step_that_no_kernel_takes_is_refused(rows: int) -> None:
    bench = Bench()
    for run in (bench.forward, bench.ffn):
        with pytest.raises(InvalidValue, match=f"a step of {rows} rows"):
            run(given(rows))
    assert bench.source.asked == []


def test_a_selection_without_compressed_keys_is_refused() -> None:
    with pytest.raises(InvalidValue, match="layer 5 selects keys and its compress ratio is 0"):
        Bench().forward(given(ratio=0), select=lambda normed, qr: None)
