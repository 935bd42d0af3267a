"""A family and its keys from a server's configuration, or every reason why there are none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from engine_kit import V4_MODEL, k3, m3, v4, v41

from mono_runtime.families import deepseek_v4, deepseek_v41, kimi_k3
from mono_runtime.hooks.deployments import NotServed, Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config


def plan(config: dict[str, Any], arch: str = "gfx950") -> Planned | NotServed:
    return plan_deployment(read_engine_config(config), arch)


def served(config: dict[str, Any], arch: str = "gfx950") -> Planned:
    found = plan(config, arch)
    assert isinstance(found, Planned), found
    return found


def refused(config: dict[str, Any], arch: str = "gfx950") -> NotServed:
    found = plan(config, arch)
    assert isinstance(found, NotServed), found
    return found


DSPARK = {"speculative_config": {"method": "dspark"}}
FIVE = [6, 12, 18, 24, 36, 42, 48]
EIGHTS = [8, 16, 24, 32, 40, 48]
# Configurations, architecture, widths, and how many launches of each kind. gfx942 has a key list a width.
SERVERS: list[tuple[dict[str, Any], str, list[int], dict[str, int]]] = [
    (v41(), "gfx950", FIVE, {"k1": 42, "k2": 42}),
    (v41(parallel_config={"tensor_parallel_size": 2}), "gfx950", FIVE, {"k1": 42, "k2": 42}),
    (v41(speculative_config=None), "gfx950", [1, 2, 4, *EIGHTS], {"k1": 54, "k2": 54}),
    # The draft has five rows a request: 5, 10, ..., 40.
    (
        v41(**DSPARK),
        "gfx950",
        [5, 6, 10, 12, 15, 18, 20, 24, 25, 35, 36, 40, 42, 48],
        {"k1": 42 + 14, "k2": 42 + 14},
    ),
    # Index sources take the FFN launch: three kinds of layers are left.
    (v41(attention_config=None), "gfx950", FIVE, {"k1": 21, "k2": 21, "ffn": 7}),
    (
        v41(attention_config=None),
        "gfx942",
        FIVE[:-1],
        {"k1": 36, "k2": 24, "keylist": 6},
    ),
    (
        v41(attention_config=None, scheduler_config={"max_num_seqs": 7}, **DSPARK),
        "gfx942",
        [5, 6, 10, 12, 15, 18, 20, 24, 25, 35, 36, 42],
        {"k1": 36, "k2": 24, "keylist": 6, "ffn": 6},
    ),
    # What a running server has computed is taken as it is.
    (
        v41(
            compilation_config={
                "cudagraph_capture_sizes": [6, 12, 24, 48],
                "max_cudagraph_capture_size": 48,
            }
        ),
        "gfx950",
        [6, 12, 24, 48],
        {"k1": 24, "k2": 24},
    ),
    (
        v41(model_config={"enforce_eager": True}, scheduler_config={"max_num_seqs": 1}),
        "gfx950",
        [1, 2, 3, 4, 5, 6],
        {"k1": 36, "k2": 36},
    ),
    (v4(), "gfx950", [7, 14, 21, 28, 35, 42, 49, 56], {"k1": 40, "k2": 40}),
    # vLLM finds no piecewise graphs, and steps of requests with fewer drafts are eager.
    (v4(environment=None), "gfx950", [*range(1, 65)], {"k1": 320, "k2": 320}),
    (
        v4(environment=None, speculative_config=None),
        "gfx950",
        [1, 2, 4, *EIGHTS, 56, 64],
        {"k1": 55, "k2": 55},
    ),
    (k3(), "gfx950", [8], {"k1": 15, "k2": 15}),
    (k3(speculative_config={"num_speculative_tokens": 3}), "gfx950", [4, 8], {"k1": 30, "k2": 30}),
    (
        k3(speculative_config={"num_speculative_tokens": 1}),
        "gfx950",
        [2, 4, 6, 8],
        {"k1": 60, "k2": 60},
    ),
    (m3(), "gfx950", [*range(1, 17)], {"ffn": 16}),
]


@pytest.mark.parametrize(("config", "arch", "widths", "launches"), SERVERS)
def test_a_server_asks_for_these_launches(
    config: dict[str, Any], arch: str, widths: list[int], launches: dict[str, int]
) -> None:
    found = served(config, arch)
    assert list(found.widths) == widths
    assert Counter(k.launch for k in found.keys) == launches
    assert len(set(found.keys)) == len(found.keys)


def test_the_published_configurations_give_the_published_layers() -> None:
    assert served(v41()).family.layers == deepseek_v41.LAYERS  # type: ignore[attr-defined]
    assert served(v4()).family.layers == deepseek_v4.LAYERS  # type: ignore[attr-defined]
    assert served(k3()).family.layers == kimi_k3.LAYERS  # type: ignore[attr-defined]


def bare(config: dict[str, Any]) -> dict[str, Any]:
    """The same without anything of the model but its type."""
    model = {"hf_config": {"model_type": config["model_config"]["hf_config"]["model_type"]}}
    return {**config, "model_config": model}


@pytest.mark.parametrize("made", [v41, k3, m3])
def test_a_description_need_not_repeat_the_published_model(made: Any) -> None:
    assert served(bare(made())).keys == served(made()).keys


def test_keys_follow_the_layers_of_the_checkpoint() -> None:
    model = {
        "num_hidden_layers": 4,
        "compress_ratios": [0, 2, 2],
        "index_source_layer_ids": [1],
        "kv_source_layer_ids": [1],
        "engram_layer_ids": [2],
    }
    found = served(v41(model_config={"hf_config": model}, scheduler_config={"max_num_seqs": 1}))
    names = ("ratio", "fold", "index")
    assert [tuple(k.values[n] for n in names) for k in found.keys if k.launch == "k1"] == [
        (0, False, False),
        (2, True, True),
        (2, False, False),
        # Not in the list: a window alone.
        (0, True, False),
    ]


def test_a_layer_that_writes_keys_and_does_not_index_them_takes_the_ffn_launch() -> None:
    model = {"kv_source_layer_ids": [2, 5, 20]}
    found = served(v41(model_config={"hf_config": model}, scheduler_config={"max_num_seqs": 1}))
    assert Counter(k.launch for k in found.keys) == {"k1": 6, "k2": 6, "ffn": 1}


def test_a_draft_of_one_layer_has_one_variant() -> None:
    model = {"num_nextn_predict_layers": 1}
    draft = {"draft_model_config": {"hf_config": model}, "method": "dspark"}
    found = served(v41(speculative_config=draft, scheduler_config={"max_num_seqs": 1}))
    folds = [k.values["fold"] for k in found.keys if k.values["experts"] == 128]
    assert folds == [False, False]


def test_v4_layers_of_other_ratios_run_the_engines_path() -> None:
    kinds = [*V4_MODEL["layer_types"][:60], "sliding"]
    model = {"layer_types": kinds, "mlp_layer_types": ["moe"] * 61}
    found = served(v4(model_config={"hf_config": model}))
    variants = {tuple(k.values[n] for n in ("ratio", "fold", "hash_route")) for k in found.keys}
    assert variants == {(128, False, False), (128, True, False), (4, True, False)}


def test_v4_key_tables_follow_the_longest_context() -> None:
    found = served(v4(model_config={"max_model_len": 20000}))
    assert {k.values["topk"] for k in found.keys} == {0, 256}


def test_k3_epsilons_and_gate_come_from_the_checkpoint() -> None:
    text = {"rms_norm_eps": 1e-6, "linear_attn_config": {"gate_lower_bound": -4.5}}
    found = served(k3(model_config={"hf_config": {"text_config": text}}))
    k1 = next(k for k in found.keys if k.launch == "k1").values
    assert (k1["eps"], k1["out_eps"], k1["onorm_eps"]) == (1e-6, 1e-6, 1e-5)
    assert k1["lower_bound"] == -4.5


def v41_model(**facts: object) -> dict[str, Any]:
    return v41(model_config={"hf_config": facts})


OFF = "mono kernels are off (kernel_config.monokernel; --monokernel turns them on)"
NOT_ASKED: list[tuple[dict[str, Any], str]] = [
    (v41(kernel_config=None), OFF),
    (v4(kernel_config={"monokernel": False}), OFF),
    (m3(kernel_config={"monokernel": False}), OFF),
    (
        k3(additional_config=None),
        "the specialized decode is off (additional_config.decode_backend is auto,"
        " latency_specialized turns it on)",
    ),
    (
        {"model_config": {"hf_config": {"model_type": "llama", "architectures": ["Llama"]}}},
        "no family has launches for this model (llama, Llama)",
    ),
]


@pytest.mark.parametrize(("config", "reason"), NOT_ASKED, ids=[r for _, r in NOT_ASKED])
def test_a_server_that_asks_for_none(config: dict[str, Any], reason: str) -> None:
    found = refused(config)
    assert (found.reasons, found.asked) == ((reason,), False)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (v41(parallel_config={"tensor_parallel_size": 8}), "gfx950", "built for TP 2 and 4 only, not 8"),
    (v41(attention_config=None, parallel_config={"tensor_parallel_size": 2}), "gfx942", "TP 4 only, not 2"),
    (v41(parallel_config={"enable_expert_parallel": True}), "gfx950", "expert parallelism"),
    (v41(parallel_config={"enable_eplb": True}), "gfx950", "expert parallelism"),
    (v41(parallel_config={"data_parallel_size": 2}), "gfx950", "data parallelism (2)"),
    (v41(environment={"VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4": "true"}), "gfx950", "A4W4_DSV4 is set"),
    (v41(cache_config={"cache_dtype": "bfloat16"}), "gfx950", "a KV cache of bfloat16"),
    (v41(), "gfx942", "an MXFP4 index cache"),
    (v41_model(n_routed_experts=256), "gfx950", "n_routed_experts 256: the kernels are written for 384"),
    (v41_model(num_experts_per_tok=8), "gfx950", "num_experts_per_tok 8"),
    (v41_model(routed_scaling_factor=2.5), "gfx950", "routed_scaling_factor 2.5"),
    (v41_model(swiglu_limit=7), "gfx950", "swiglu_limit 7.0"),
    (v41_model(scoring_func="sigmoid"), "gfx950", "scoring_func sigmoid"),
    (v41_model(norm_topk_prob=False), "gfx950", "norm_topk_prob False"),
    (v41_model(sliding_window=256), "gfx950", "sliding_window 256"),
    (v41_model(hidden_size=4096), "gfx950", "hidden_size 4096"),
    (
        v41_model(moe_intermediate_size=2048),
        "gfx950",
        "experts of 2048 columns, 512 on each of 4 ranks, which are allocated as 512: the kernels read 576 of 640",
    ),
    # Padded alike, and read otherwise.
    (v41_model(moe_intermediate_size=2400), "gfx950", "600 on each of 4 ranks, which are allocated as 640"),
    (v41_model(compress_ratios=[3] * 40), "gfx950", "ratio 3 is not legal"),
    (
        v41(model_config={"hf_config": {"dspark_n_routed_experts": 64}}, **DSPARK),
        "gfx950",
        "the draft routes to 3 of 64 experts: the kernels are built for 3 of 128",
    ),
    (
        v41(speculative_config={"method": "dspark", "draft_model_config": {"hf_config": {"sample_from_anchor": False}}}),
        "gfx950",
        "does not sample from its anchor",
    ),
    (v41(speculative_config={"num_speculative_tokens": 60}), "gfx950", "speculative_tokens 60 is too large (nearest: 47)"),
    (v41(performance_mode="fast"), "gfx950", "performance_mode 'fast' is not legal"),
    (v4(parallel_config={"tensor_parallel_size": 4}), "gfx950", "built for TP 8 only, not 4"),
    (v41(kernel_config={"moe_backend": "triton"}), "gfx950", "MoE backend triton"),
    (v4(kernel_config={"moe_backend": "aiter_mega_moe"}), "gfx950", "MoE backend aiter_mega_moe"),
    (v4(model_config={"hf_config": {"vision_n_layers": 24}}), "gfx950", "vision_n_layers 24"),
    (v4(), "gfx942", "not built for gfx942"),
    (v4(environment={"VLLM_ROCM_FP8_PADDING": "0"}), "gfx950", "VLLM_ROCM_FP8_PADDING is off"),
    (v4(model_config={"max_model_len": 1 << 21}), "gfx950", "max_model_len 2097152 is too large"),
    (v4(model_config={"hf_config": {"hidden_size": 4096}}), "gfx950", "hidden_size 4096"),
    (v4(model_config={"hf_config": {"compress_rates": {"hca": 8, "csa": 2}}}), "gfx950", "no layer has a compress ratio of 4 or 128"),
    (k3(speculative_config=None), "gfx950", "decoding without speculative tokens"),
    (k3(speculative_config={"num_speculative_tokens": 8}), "gfx950", "speculative_tokens 8 is too large (nearest: 7)"),
    (k3(speculative_config={"enable_adaptive_verification": True}), "gfx950", "adaptive verification"),
    (k3(speculative_config={"num_speculative_tokens_per_batch_size": [[1, 8, 3]]}), "gfx950", "dynamic speculative decoding"),
    (k3(parallel_config={"pipeline_parallel_size": 2}), "gfx950", "pipeline parallelism"),
    (k3(parallel_config={"decode_context_parallel_size": 2}), "gfx950", "decode context parallelism"),
    (k3(parallel_config={"use_ubatching": True}), "gfx950", "microbatching"),
    (k3(use_v2_model_runner=False), "gfx950", "the V1 model runner"),
    (k3(model_config={"hf_config": {"text_config": {"num_experts": 64}}}), "gfx950", "num_experts 64"),
    (k3(model_config={"hf_config": {"text_config": {"linear_attn_config": {"gate_lower_bound": None}}}}), "gfx950", "no lower bound"),
    (k3(model_config={"hf_config": {"text_config": {"attn_res_block_size": None}}}), "gfx950", "no AttnRes blocks"),
    (m3(cache_config={"cache_dtype": "auto"}), "gfx950", "a KV cache of auto"),
    (m3(cache_config={"block_size": 64}), "gfx950", "KV cache blocks of 64"),
    (m3(attention_config=None), "gfx950", "an index cache of auto"),
    (m3(kernel_config={"moe_backend": "auto"}), "gfx950", "MoE backend auto"),
    (m3(speculative_config={"num_speculative_tokens": 1, "method": "mtp"}), "gfx950", "speculative method mtp"),
    (m3(model_config={"hf_config": {"text_config": {"num_hidden_layers": 59, "sparse_attention_config": {"sparse_attention_freq": [1] * 59}}}}), "gfx950", "sparse attention has to be on layers 3"),
    (m3(), "gfx942", "not built for gfx942"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "arch", "reason"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_the_kernels_cannot_run_is_a_reason(
    config: dict[str, Any], arch: str, reason: str
) -> None:
    found = refused(config, arch)
    assert found.asked
    assert any(reason in why for why in found.reasons), found.reasons


def test_on_gfx942_the_backend_of_the_experts_does_not_matter() -> None:
    config = v41(attention_config=None, kernel_config={"moe_backend": "triton"})
    assert served(config, "gfx942").family.name == "deepseek_v41"


def test_every_reason_is_told_at_once() -> None:
    config = v41(
        parallel_config={"tensor_parallel_size": 8, "enable_expert_parallel": True},
        cache_config={"cache_dtype": "bfloat16"},
        model_config={"hf_config": {"n_routed_experts": 8, "sliding_window": 9}},
    )
    assert len(refused(config).reasons) == 5


def test_a_reason_is_told_of_one_launch_and_not_of_each() -> None:
    found = plan_deployment(read_engine_config(v41_model(compress_ratios=[3] * 40)), "gfx950")
    assert isinstance(found, NotServed)
    assert len([r for r in found.reasons if "ratio 3 is not legal" in r]) == 1


def test_eagle_of_m3_is_served() -> None:
    eagle = {"num_speculative_tokens": 3, "method": "eagle3"}
    assert served(m3(speculative_config=eagle)).keys == served(m3()).keys


GRAPHS = [
    # (runner, variable, mode, capture sizes, eager) -> what V4.1 and V4 end up with.
    (True, None, "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"),
    (True, "1", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE"),
    (True, "0", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
    (True, None, "PIECEWISE", "PIECEWISE", "NONE"),
    (True, None, "FULL_DECODE_ONLY", "FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
    (True, "1", "FULL", "FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
    (True, "1", "NONE", "NONE", "NONE"),
    (False, None, "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE"),
]


@pytest.mark.parametrize(("second", "variable", "mode", "of_v41", "of_v4"), GRAPHS)
def test_the_graphs_that_a_server_ends_up_with(
    second: bool, variable: str | None, mode: str, of_v41: str, of_v4: str
) -> None:
    environment = None if variable is None else {"VLLM_USE_BREAKABLE_CUDAGRAPH": variable}
    sections: dict[str, Any] = {
        "use_v2_model_runner": second,
        "environment": environment,
        "compilation_config": {"cudagraph_mode": mode},
    }
    found = [served(made(**sections)).deployment.settings for made in (v41, v4)]
    assert [s["cudagraph_mode"] for s in found] == [of_v41, of_v4]


def test_no_capture_sizes_are_no_graphs() -> None:
    config = v41(compilation_config={"cudagraph_capture_sizes": []})
    assert served(config).deployment.settings["cudagraph_mode"] == "NONE"


def test_dynamic_drafts_leave_every_width() -> None:
    dynamic = {"num_speculative_tokens_per_batch_size": [[1, 4, 5], [5, 64, 2]]}
    found = served(v41(speculative_config=dynamic))
    assert list(found.widths) == list(range(1, 49))
    assert "changes while the server runs" in found.notes[0]


def test_what_makes_many_widths_possible_is_told() -> None:
    assert "find no graph and can have any width" in served(v4(environment=None)).notes[0]
    assert "there are no graphs" in served(v41(model_config={"enforce_eager": True})).notes[0]
    assert served(v41()).notes == ()
    (note,) = served(v41(attention_config=None)).notes
    assert "take the FFN launch alone" in note


def test_the_model_is_told_by_its_type_and_then_by_its_architecture() -> None:
    renamed = v41(model_config={"hf_config": {"model_type": "deepseek_mine"}})
    assert served(renamed).family.name == "deepseek_v41"
    other = v41(model_config={"hf_config": {"architectures": None}, "architectures": ["Other"]})
    assert served(other).family.name == "deepseek_v41"
