"""vLLM 0.33.0's own runners with the plug-in: what they launch is what FlyDSL would have, and nothing is compiled.

The runners and factories are those of the wheel. They run over the stand-in HIP in a process of their own,
with tensors on the CPU; see `vllm_runners`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm_process import answer_of, built, packages

from mono_runtime.oci import StoreReader

pytestmark = [pytest.mark.network, pytest.mark.slow]

MANIFEST = """\
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    rows: [1]
    variants:
      - {launch: k1, ratio: 0, fold: false, index: false}
      - {launch: k2, ratio: 0, fold: false, index: false}
      - {launch: ffn}
  - family: deepseek_v4
    arch: gfx950
    tp: 8
    rows: [1]
    variants:
      - {launch: k1, ratio: 4, fold: true}
      - {launch: k2, ratio: 4, fold: true}
  - family: kimi_k3
    arch: gfx950
    tp: 8
    rows: [2]
    deployment: {speculative_tokens: 1}
    variants:
      - {launch: k1, nblocks: 1}
      - {launch: k2, nblocks: 1}
  - family: minimax_m3
    arch: gfx950
    tp: 4
    rows: [1]
"""
# The launches of a family's calls in their order, each with its kernargs' bytes
# (the table of call conventions in the project's reference; alignment makes 156 of minimax_m3 160).
CALLS = {
    "deepseek_v41": [("k1", 320), ("k2", 432), ("ffn", 240)],
    "deepseek_v4": [("k1", 320), ("k2", 432)],
    "kimi_k3": [("k1", 216), ("k2", 216)],
    "minimax_m3": [("ffn", 156)],
}
Answer = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]) -> Path:
    """A store with the eight launches that the calls need."""
    return built(tmp_path_factory.mktemp("plugin"), MANIFEST, cache, kernels)


@pytest.fixture(scope="module")
def answer(
    store: Path, tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> Answer:
    """What the script found for a family, once each."""
    found: dict[str, dict[str, Any]] = {}
    there = packages(cache, kernels, CALLS)

    def of(family: str) -> dict[str, Any]:
        if family not in found:
            found[family] = answer_of(
                "vllm_runners.py",
                tmp_path_factory.mktemp(family),
                {"family": family, "packages": there},
                flydsl_launches=True,
                MONO_STORE=str(store),
                MONO_V41_RUNNER="vllm",
            )
        return found[family]

    return of


@pytest.mark.parametrize("family", CALLS)
def test_launches_come_from_the_store_and_reach_hip_as_flydsls_do(
    answer: Answer, family: str
) -> None:
    found = answer(family)
    assert found["ours"] == found["theirs"]
    assert [(len(r[5]) // 2, r[1], r[2]) for r in found["ours"]] == [
        (size, [256, 1, 1], [512, 1, 1]) for _, size in CALLS[family]
    ]
    # Each of the store's launches was called once, and so was each of FlyDSL's.
    assert sorted(found["launches"].values()) == [1] * len(CALLS[family])
    assert found["flydsl_afterwards"]["calls"] == len(CALLS[family])


_RUNNER_OF_V4 = ["runner.build_mono_k1", "runner.build_mono_k2"]
CHANGED = {
    "deepseek_v41": {
        "layer.build_mono_k1",
        "layer.build_mono_k2",
        "layer.build_mono_ffn",
        *_RUNNER_OF_V4,
        "runner.build_mono_ffn",
        "runner._ensure_writable_flydsl_cache",
        "MonoDecodeLayer.create",
        "MonoDecodeLayer.__call__",
        "MonoDecodeLayer.ffn",
    },
    "deepseek_v4": {
        "layer.build_mono_k1",
        "layer.build_mono_k2",
        *_RUNNER_OF_V4,
        "runner._ensure_writable_flydsl_cache",
        "MonoDecodeLayer.create",
        "MonoDecodeLayer.__call__",
    },
    "kimi_k3": {
        "kda.build",
        "layer.build",
        "runtime.specialized_decode_config",
        "layers.compile_build",
        "decode.compile_build",
        "SpecializedDecode.__init__",
        "SpecializedDecode.prepare_kv",
        "SpecializedDecode.plan",
    },
    "minimax_m3": {
        "ffn.build_ffn",
        "runner.build_ffn",
        "residency.active_workgroups_per_cu",
        "runner.active_workgroups_per_cu",
        "runner._writable_flydsl_cache",
        "spec.specialized_decode_config",
        "runtime.specialized_decode_config",
        "specialized_decode.specialized_decode_config",
    },
}


@pytest.mark.parametrize("family", CALLS)
def test_what_is_changed_is_there_in_this_release(answer: Answer, family: str) -> None:
    assert set(answer(family)["changed"]) == CHANGED[family]
    assert answer(family)["left_alone"] is False


def test_calls_of_the_layers_are_taken_apart_by_the_releases_own_parameters(answer: Answer) -> None:
    from mono_runtime.hooks.vllm_factories import deepseek, deepseek_v4, deepseek_v41, minimax_m3

    def ours(function: Callable[..., Any]) -> list[str]:
        return list(inspect.signature(function).parameters)

    v41, v4 = answer("deepseek_v41")["changed"], answer("deepseek_v4")["changed"]
    assert v41["MonoDecodeLayer.__call__"] == ["self", *ours(deepseek_v41._whole)]
    assert v41["MonoDecodeLayer.ffn"] == ["self", *ours(deepseek_v41._ffn_call)]
    assert v41["MonoDecodeLayer.create"] == ours(deepseek._config)
    assert v4["MonoDecodeLayer.__call__"] == ["self", *ours(deepseek_v4._whole)]
    assert v4["MonoDecodeLayer.create"] == ["cls", *ours(deepseek._config)]
    question = answer("minimax_m3")["changed"]["residency.active_workgroups_per_cu"]
    assert question == ours(minimax_m3._question)


@pytest.mark.parametrize("family", CALLS)
def test_nothing_is_traced_compiled_or_written_meanwhile(answer: Answer, family: str) -> None:
    found = answer(family)
    assert found["flydsl_meanwhile"] == {"launchers": 0, "calls": 0}
    assert (found["written"], found["cache_variable"]) == ([], None)


@pytest.mark.parametrize("family", CALLS)
def test_code_objects_are_those_that_flydsl_compiles(
    store: Path, answer: Answer, family: str
) -> None:
    reader = StoreReader.open(store)
    held = {
        entry.key.launch: [c.digest for c in reader.artefact(entry.artefact).code_objects]
        for entry in reader.index.entries
        if entry.key.family == family
    }
    names = [name for name, _ in CALLS[family]]
    assert {name: [code] for name, code in zip(names, answer(family)["code"], strict=True)} == held


@pytest.mark.parametrize("family", ["kimi_k3", "minimax_m3"])
def test_building_ahead_of_the_first_step_launches_nothing(answer: Answer, family: str) -> None:
    assert answer(family)["at_load"] == []


def test_minimax_m3_is_told_how_its_grid_fits(answer: Answer) -> None:
    # Its 174 vector registers leave room for two waves a SIMD: one workgroup of eight waves.
    assert answer("minimax_m3")["residency"] == {"1": 1}


def test_the_runner_has_the_factories_that_its_module_imported_by_name(answer: Answer) -> None:
    assert answer("deepseek_v41")["imported"] == [True]


def test_a_launch_that_is_first_met_inside_a_capture_is_refused(answer: Answer) -> None:
    kind, text = answer("deepseek_v41")["capture"]
    assert kind == "CaptureActive"
    assert "deepseek_v41/ffn gfx950" in text


def test_a_launch_that_the_store_lacks_is_named_with_its_nearest(answer: Answer) -> None:
    kind, text = answer("deepseek_v41")["absent"]
    assert kind == "LaunchMissing"
    assert "nearest: fold is false, not true; ratio is 0, not 2" in text


def test_a_new_field_of_vllms_key_is_a_named_miss(answer: Answer) -> None:
    kind, text = answer("deepseek_v41")["refused"]
    assert kind == "LaunchMissing"
    assert "wide (= False) is not known here" in text
