"""Reading a server's configuration: from objects and from JSON, with one clear error for what is wrong."""

from __future__ import annotations

import enum
import json
from types import SimpleNamespace
from typing import Any

import pytest
from engine_kit import k3, m3, merged, v4, v41

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.engine_config import (
    EngineConfigError,
    describe,
    read_engine_config,
    unread,
)


class Mode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)


class Dtype(str, enum.Enum):
    FP8 = "fp8"


# Values that are dictionaries in a server too.
MAPPINGS = {"additional_config", "compress_rates", "linear_attn_config", "sparse_attention_config"}


def objects(value: Any) -> Any:
    """A description as the objects of a server: sections by attribute."""
    if isinstance(value, dict):
        found = {n: v if n in MAPPINGS else objects(v) for n, v in value.items()}
        return SimpleNamespace(**found)
    return value


def test_every_fact_is_found_where_the_engine_has_it() -> None:
    config = read_engine_config(
        {
            "model_config": {
                "hf_config": {"model_type": "deepseek_v41", "num_hidden_layers": 40},
                "architectures": ["A"],
                "max_model_len": 4096,
                "enforce_eager": True,
            },
            "kernel_config": {"monokernel": True, "moe_backend": "aiter"},
            "additional_config": {"decode_backend": "latency_specialized"},
            "parallel_config": {
                "tensor_parallel_size": 2,
                "pipeline_parallel_size": 3,
                "data_parallel_size": 4,
                "decode_context_parallel_size": 5,
                "prefill_context_parallel_size": 6,
                "enable_expert_parallel": True,
                "enable_eplb": True,
                "use_ubatching": True,
            },
            "scheduler_config": {"max_num_seqs": 7, "max_num_batched_tokens": 8},
            "speculative_config": {
                "num_speculative_tokens": 9,
                "method": "dspark",
                "enable_adaptive_verification": True,
                "num_speculative_tokens_per_batch_size": [[1, 2, 3]],
                "draft_model_config": {"hf_config": {"n_mtp_layers": 3}},
            },
            "compilation_config": {
                "cudagraph_mode": "FULL_DECODE_ONLY",
                "cudagraph_capture_sizes": [1, 2],
                "max_cudagraph_capture_size": 2,
            },
            "performance_mode": "throughput",
            "cache_config": {"cache_dtype": "fp8", "block_size": 128},
            "attention_config": {"indexer_kv_dtype": "mxfp4"},
            "use_v2_model_runner": False,
            "environment": {"VLLM_USE_BREAKABLE_CUDAGRAPH": "0", "HOME": "/nowhere"},
        }
    )
    facts = {n: getattr(config, n) for n in config.__slots__}
    assert facts.pop("model").values == {"num_hidden_layers": 40}
    assert facts.pop("draft_model").values == {"n_mtp_layers": 3}
    assert facts == {
        "model_type": "deepseek_v41",
        "architectures": ("A",),
        "max_model_len": 4096,
        "enforce_eager": True,
        "monokernel": True,
        "moe_backend": "aiter",
        "decode_backend": "latency_specialized",
        "tensor_parallel": 2,
        "pipeline_parallel": 3,
        "data_parallel": 4,
        "decode_context_parallel": 5,
        "prefill_context_parallel": 6,
        "expert_parallel": True,
        "expert_balancing": True,
        "microbatching": True,
        "max_num_seqs": 7,
        "max_num_batched_tokens": 8,
        "drafts": 9,
        "draft_method": "dspark",
        "adaptive_verification": True,
        "dynamic_drafts": True,
        "graphs": "FULL_DECODE_ONLY",
        "capture_sizes": (1, 2),
        "max_capture_size": 2,
        "performance_mode": "throughput",
        "cache_dtype": "fp8",
        "block_size": 128,
        "indexer_dtype": "mxfp4",
        "second_runner": False,
        "environment": {"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"},
    }


@pytest.mark.parametrize("made", [v41, v4, k3, m3])
def test_objects_and_their_description_say_the_same(made: Any) -> None:
    config = objects(made())
    written = describe(config, {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"})
    again = json.loads(json.dumps(written))
    assert read_engine_config(again) == read_engine_config(
        config, {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
    )
    assert describe(again) == written


def test_an_object_is_read_with_the_environment_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_USE_BREAKABLE_CUDAGRAPH", "0")
    expected = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"}
    assert read_engine_config(objects(v41())).environment == expected
    assert read_engine_config(v41()).environment == {}


def test_what_a_description_leaves_out_is_the_engines_default() -> None:
    config = read_engine_config({"model_config": {"hf_config": {"model_type": "x"}}})
    assert (config.tensor_parallel, config.drafts, config.monokernel) == (1, 0, False)
    assert (config.graphs, config.capture_sizes) == ("FULL_AND_PIECEWISE", None)
    assert config.second_runner is True


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *[(m, m.name) for m in Mode],
        *[(m.name, m.name) for m in Mode],
        ("full_decode_only", "FULL_DECODE_ONLY"),
        ("CUDAGraphMode.FULL", "FULL"),
        (0, "NONE"),
        (2, "FULL"),
        ([2, 0], "FULL_DECODE_ONLY"),
        ((2, 1), "FULL_AND_PIECEWISE"),
    ],
)
def test_a_graph_mode_may_be_a_member_a_name_or_a_value(mode: object, name: str) -> None:
    config = v41(compilation_config={"cudagraph_mode": mode})
    assert read_engine_config(config).graphs == name


def test_members_of_text_enumerations_are_their_text() -> None:
    config = objects(m3(cache_config={"cache_dtype": Dtype.FP8}))
    assert read_engine_config(config, {}).cache_dtype == "fp8"


def test_a_text_model_comes_before_what_it_is_nested_in() -> None:
    config = k3(model_config={"hf_config": {"hidden_size": 1, "num_experts": 2}})
    model = read_engine_config(config).model
    assert (model.integer("hidden_size"), model.integer("num_experts")) == (7168, 896)
    own = read_engine_config(
        merged(config, {"model_config": {"hf_text_config": {"num_experts": 3}}})
    )
    assert own.model.integer("num_experts") == 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model_config": None}, "model_config.hf_config.model_type is missing"),
    ({"model_config": {"hf_config": {"model_type": 4}}}, "model_config.hf_config.model_type must be text, not 4"),
    ({"kernel_config": {"monokernel": "yes"}}, "kernel_config.monokernel must be true or false, not 'yes'"),
    ({"kernel_config": {"monokernel": 1}}, "kernel_config.monokernel must be true or false, not 1"),
    ({"parallel_config": {"tensor_parallel_size": "4"}}, "parallel_config.tensor_parallel_size must be an integer, not '4'"),
    ({"parallel_config": {"tensor_parallel_size": True}}, "parallel_config.tensor_parallel_size must be an integer, not True"),
    ({"scheduler_config": {"max_num_seqs": 2.5}}, "scheduler_config.max_num_seqs must be an integer, not 2.5"),
    (
        {"speculative_config": {"num_speculative_tokens": None}},
        "speculative_config.num_speculative_tokens is missing",
    ),
    # Whether there is a draft model, with launches of its own, follows from it.
    ({"speculative_config": {"method": None}}, "speculative_config.method is missing"),
    ({"kernel_config": True}, "kernel_config must be names with their values, not True"),
    ({"parallel_config": [4]}, "parallel_config must be names with their values, not [4]"),
    ({"model_config": {"hf_config": "m"}}, "model_config.hf_config must be names with their values, not 'm'"),
    (
        {"compilation_config": {"cudagraph_capture_sizes": [1, "2"]}},
        "compilation_config.cudagraph_capture_sizes[1] must be an integer, not '2'",
    ),
    (
        {"compilation_config": {"cudagraph_capture_sizes": 8}},
        "compilation_config.cudagraph_capture_sizes must be a list of integers, not 8",
    ),
    (
        {"compilation_config": {"cudagraph_mode": "SOMETIMES"}},
        "compilation_config.cudagraph_mode must be a graph mode"
        " (NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE), not 'SOMETIMES'",
    ),
    ({"compilation_config": {"cudagraph_mode": True}}, "compilation_config.cudagraph_mode must be a graph mode"),
    ({"environment": ["A=1"]}, "environment must be texts by name, not ['A=1']"),
    ({"environment": {"VLLM_USE_BREAKABLE_CUDAGRAPH": 1}}, "environment.VLLM_USE_BREAKABLE_CUDAGRAPH must be text, not 1"),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "message"), BAD, ids=[m for _, m in BAD])
def test_a_wrong_fact_is_one_error_that_names_its_path(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineConfigError) as caught:
        read_engine_config(v41(**sections))
    assert caught.value.what.startswith(message)
    assert caught.value.where == message.split()[0]
    assert isinstance(caught.value, InvalidValue)
    assert caught.value.exit_code == 2


def test_a_fact_of_the_model_is_checked_when_it_is_asked_for() -> None:
    model = read_engine_config(
        v41(model_config={"hf_config": {"compress_ratios": "2", "sliding_window": object()}})
    ).model
    with pytest.raises(EngineConfigError, match=r"hf_config.compress_ratios must be a list of int"):
        model.integers("compress_ratios")
    with pytest.raises(EngineConfigError, match=r"hf_config.sliding_window must be an integer"):
        model.integer("sliding_window")


@pytest.mark.parametrize("config", [None, "{}", b"{}", [], 3])
def test_what_is_no_configuration_is_refused(config: object) -> None:
    with pytest.raises(EngineConfigError, match="not a vLLM configuration"):
        read_engine_config(config)


def test_misspelt_names_are_told_and_names_of_the_engine_are_not() -> None:
    config = v41(
        scheduler_config={"max_num_seq": 4, "max_model_len": 9, "policy": "fcfs"},
        kernel_config={"mono_kernel": True, "enable_jit_warmup": True},
        model_config={"hf_config": {"num_hidden_layer": 3, "vocab_size": 9}},
        paralel_config={},
    )
    del config["kernel_config"]["monokernel"]
    del config["model_config"]["hf_config"]["num_hidden_layers"]
    del config["parallel_config"]
    assert set(unread(config)) == {
        "kernel_config.mono_kernel (did you mean monokernel?)",
        "scheduler_config.max_num_seq (did you mean max_num_seqs?)",
        "paralel_config (did you mean parallel_config?)",
        "model_config.hf_config.num_hidden_layer (did you mean num_hidden_layers?)",
    }
    assert unread(v41()) == ()
