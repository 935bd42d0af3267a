"""Every refusal of a deployment and of a layer, each alone and all together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mono_runtime.errors import InvalidValue, MonoError
from mono_runtime.hooks.deepseek_v41.eligibility import (
    DeploymentRefused,
    LayerDecision,
    Path,
    attention_refusals,
    check_deployment,
    decide_layer,
    deployment_refusals,
    layer_refusals,
)
from mono_runtime.hooks.deepseek_v41.facts import (
    AttentionFacts,
    DeploymentFacts,
    LayerFacts,
    Routing,
)

GFX950 = DeploymentFacts(arch="gfx950", compute_units=256, tp=4, moe_backend="AITER_MXFP4_BF16")
GFX942 = DeploymentFacts(
    arch="gfx942", compute_units=304, tp=4, moe_backend="AITER_TRITON_MXFP4_BF16"
)
TARGET = Routing(384, 6)
DRAFT = Routing(128, 3)
BACKBONE = LayerFacts(draft=False, routing=TARGET, attention=AttentionFacts())
DRAFTED = LayerFacts(
    draft=True,
    routing=DRAFT,
    attention=AttentionFacts(),
    trained_routing=(128, 3),
    swa_width=192,
)


@pytest.mark.parametrize(
    "deployment",
    [
        GFX950,
        replace(GFX950, tp=2),
        GFX942,
        replace(GFX950, moe_backend=None),  # a layer without routed experts is the layer's matter
        replace(GFX942, moe_backend="no backend of ours"),
    ],
)
def test_a_deployment_that_can_run_has_no_refusal(deployment: DeploymentFacts) -> None:
    assert deployment_refusals(deployment) == ()
    check_deployment(deployment)


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (replace(GFX950, arch="gfx90a"), ("gfx90a", "CDNA4", "CDNA3")),
        (replace(GFX950, arch="gfx1250"), ("gfx1250",)),
        (replace(GFX950, tp=1), ("size is 1", "2 or 4")),
        (replace(GFX950, tp=8), ("size is 8", "2 or 4")),
        (replace(GFX942, tp=2), ("size is 2", "has to be 4")),
        (replace(GFX942, tp=8), ("size is 8", "has to be 4")),
        (replace(GFX950, compute_units=255), ("255 compute units", "256")),
        (replace(GFX942, compute_units=38), ("38 compute units", "partitioned")),
        (replace(GFX950, expert_parallel=True), ("expert parallelism",)),
        (replace(GFX950, expert_balancing=True), ("EPLB",)),
        (replace(GFX950, data_parallel=2), ("data-parallel size is 2",)),
        (replace(GFX950, a4w4=True), ("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4",)),
        (replace(GFX950, moe_backend="TRITON"), ("TRITON", "AITER_MXFP4_BF16")),
    ],
)
def test_one_thing_amiss_is_one_refusal_that_names_it(
    deployment: DeploymentFacts, words: tuple[str, ...]
) -> None:
    (reason,) = deployment_refusals(deployment)
    assert [w for w in words if w not in reason] == []


def test_an_opt_in_that_cannot_run_is_one_error_with_all_reasons() -> None:
    deployment = DeploymentFacts(
        arch="gfx90a",
        compute_units=104,
        tp=8,
        expert_parallel=True,
        expert_balancing=True,
        data_parallel=4,
        a4w4=True,
    )
    with pytest.raises(DeploymentRefused) as caught:
        check_deployment(deployment)
    for words in (
        "gfx90a",
        "size is 8",
        "104",
        "expert parallelism",
        "EPLB",
        "data-parallel",
        "A4W4",
    ):
        assert words in caught.value.what
    assert isinstance(caught.value, MonoError)
    assert isinstance(caught.value, InvalidValue)
    assert "--monokernel" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        (replace(TARGET, shared=False), "shared expert"),
        (replace(TARGET, by_token=True), "tid2eid"),
        (replace(TARGET, experts=256), "6 of 256"),
        (replace(TARGET, topk=8), "8 of 384"),
        (replace(TARGET, scale=2.5), "2.5"),
        (replace(TARGET, limit=7.0), "7.0"),
        (replace(TARGET, limit=None), "None"),
        (replace(TARGET, scoring="sigmoid"), "sigmoid"),
        (replace(TARGET, renormalized=False), "renormalised"),
    ],
)
@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_another_routing_leaves_the_layer_to_the_engine(
    routing: Routing, words: str, arch: str
) -> None:
    layer = replace(BACKBONE, routing=routing)
    (reason,) = layer_refusals(layer, arch)
    assert words in reason
    assert decide_layer(layer, arch) == LayerDecision(Path.OFF, (reason,))


def test_sequence_parallel_rows_leave_the_layer_to_the_engine() -> None:
    decision = decide_layer(replace(BACKBONE, sequence_parallel=True), "gfx950")
    assert decision.path is Path.OFF
    assert "sequence parallel" in decision.reasons[0]


def test_the_fused_seam_matters_on_gfx950_alone() -> None:
    layer = replace(BACKBONE, fused_seam=False)
    assert decide_layer(layer, "gfx942") == LayerDecision(Path.WHOLE)
    off = decide_layer(layer, "gfx950")
    assert off.path is Path.OFF
    assert "mHC seam" in off.reasons[0]


def test_a_declined_layer_names_all_reasons() -> None:
    layer = replace(
        BACKBONE,
        sequence_parallel=True,
        fused_seam=False,
        routing=Routing(8, 2, 1.0, 1.0, "softmax", False, True, False),
    )
    assert len(decide_layer(layer, "gfx950").reasons) == 9


@pytest.mark.parametrize("ratio", [0, 1, 2])
@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_standard_backbone_layers_run_whole(ratio: int, arch: str) -> None:
    plain = AttentionFacts(ratio=ratio)
    source = AttentionFacts(ratio=ratio, compressor=True, indexer="DeepseekV4Indexer")
    for attention in (plain, source):
        decision = decide_layer(replace(BACKBONE, attention=attention), arch)
        assert decision == LayerDecision(Path.WHOLE, (), False, 384, 6, 128)


ATTENTION = [
    (AttentionFacts(ratio=2, compressor=True), "compressor without an indexer"),
    (AttentionFacts(ratio=2, indexer="Other", indexer_fits=False), "(Other)"),
    (AttentionFacts(ratio=4), "compress ratio 4"),
    (AttentionFacts(mxfp8=True), "MXFP8"),
    (AttentionFacts(cache_dtype="bfloat16"), "bfloat16"),
]


@pytest.mark.parametrize(("attention", "words"), ATTENTION)
@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_another_attention_leaves_the_ffn_launch(
    attention: AttentionFacts, words: str, arch: str
) -> None:
    layer = replace(BACKBONE, attention=attention)
    (reason,) = attention_refusals(layer)
    assert words in reason
    assert decide_layer(layer, arch) == LayerDecision(Path.FFN, (reason,), False, 384, 6, 128)


def test_all_that_keeps_the_attention_with_the_engine_is_named() -> None:
    attention = AttentionFacts(4, "nvfp4_ds_mla", True, True, "Other", False)
    reasons = attention_refusals(replace(DRAFTED, attention=attention))
    assert len(reasons) == 5
    assert (
        len(attention_refusals(replace(BACKBONE, attention=AttentionFacts(7, "x", True, True))))
        == 4
    )


def test_a_draft_layer_runs_whole_on_gfx950_with_its_own_routing_and_rows() -> None:
    assert decide_layer(DRAFTED, "gfx950") == LayerDecision(Path.WHOLE, (), True, 128, 3, 192)


def test_a_draft_layer_takes_the_ffn_launch_with_its_own_routing_on_gfx942() -> None:
    decision = decide_layer(DRAFTED, "gfx942")
    assert (decision.path, decision.draft) == (Path.FFN, False)
    assert (decision.experts, decision.topk) == (128, 3)
    # Its attention is the engine's there, so nothing of it can get in the way.
    odd = replace(DRAFTED, attention=AttentionFacts(mxfp8=True))
    assert decide_layer(odd, "gfx942") == decision


@pytest.mark.parametrize(
    "attention",
    [
        *[a for a, _ in ATTENTION],
        AttentionFacts(ratio=1),
        AttentionFacts(indexer="DeepseekV4Indexer"),
    ],
)
def test_a_draft_layer_that_cannot_run_whole_is_off_on_gfx950(attention: AttentionFacts) -> None:
    decision = decide_layer(replace(DRAFTED, attention=attention), "gfx950")
    assert decision.path is Path.OFF
    assert decision.reasons


def test_the_drafts_routing_is_judged_by_its_own_config() -> None:
    # A draft whose config names no experts of its own is trained with the backbone's.
    assert decide_layer(replace(DRAFTED, routing=TARGET), "gfx950").path is Path.OFF
    same = replace(DRAFTED, routing=TARGET, trained_routing=(384, 6))
    assert decide_layer(same, "gfx950").experts == 384
