"""Build keys that the kernels, or the engine, have no use for are refused with the reason."""

from __future__ import annotations

import json
import sys
import types
from enum import Enum

import pytest

from mono_build.families.registry import family
from mono_runtime.launch_key import LaunchKey, Scalar

V41 = {
    "tokens": 6,
    "tp": 4,
    "ratio": 2,
    "timeline": False,
    "fold": True,
    "index": False,
    "experts": 384,
    "topk": 6,
    "ug_groups": 2,
    "swa_width": 128,
}
DRAFT = {**V41, "ratio": 0, "experts": 128, "topk": 3, "ug_groups": 1, "swa_width": 192}
V4 = {
    "tokens": 8,
    "tp": 8,
    "ratio": 4,
    "timeline": False,
    "fold": True,
    "hash_route": False,
    "topk": 0,
    "two_hop": False,
    "global_keys": False,
}
K1 = {
    "tokens": 8,
    "qlen": 8,
    "nblocks": 4,
    "delta": True,
    "state_len": 10,
    "eps": 1e-5,
    "out_eps": 1e-5,
    "onorm_eps": 1e-5,
    "lower_bound": -5.0,
    "write_idx": -1,
    "kda0": 0,
}
K2 = {
    "tokens": 8,
    "nblocks": 4,
    "eps": 1e-5,
    "out_eps": 1e-5,
    "ln_eps": 1e-5,
    "reduce": True,
    "reset": False,
    "fault_rank": -1,
    "fault_epoch": 0,
    "fault_layer": 0,
    "fault_ticks": 0,
}
M3 = {
    "tokens": 1,
    "tp": 4,
    "experts": "all",
    "timeline": False,
    "drop_mark": -1,
    "wait_ticks": 1_000_000_000,
}


def problems(name: str, launch: str, arch: str, build: dict[str, Scalar]) -> list[str]:
    return family(name).problems(LaunchKey.of(name, launch, arch, build))


@pytest.mark.parametrize(
    ("name", "launch", "arch", "build"),
    [
        ("deepseek_v41", "k1", "gfx950", V41),
        ("deepseek_v41", "k2", "gfx950", DRAFT),
        ("deepseek_v41", "k2", "gfx950", {**V41, "index": True, "tokens": 48, "tp": 2}),
        ("deepseek_v41", "k1", "gfx942", {**V41, "index": True, "tokens": 42}),
        ("deepseek_v41", "ffn", "gfx950", {**V41, "ratio": 0}),
        ("deepseek_v41", "ffn", "gfx942", {**V41, "ratio": 0, "experts": 128, "topk": 3}),
        ("deepseek_v4", "k1", "gfx950", V4),
        ("deepseek_v4", "k2", "gfx950", {**V4, "tokens": 64, "two_hop": True, "hash_route": True}),
        ("deepseek_v4", "k2", "gfx950", {**V4, "ratio": 128, "topk": 1024, "global_keys": True}),
        ("kimi_k3", "k1", "gfx950", K1),
        ("kimi_k3", "k1", "gfx950", {**K1, "write_idx": 4}),
        ("kimi_k3", "k2", "gfx950", {**K2, "reset": True, "fault_rank": 3, "fault_ticks": 9}),
        ("minimax_m3", "ffn", "gfx950", {**M3, "experts": "routed", "drop_mark": 255}),
    ],
)
def test_keys_that_the_engine_or_its_tests_ask_for_are_legal(
    name: str, launch: str, arch: str, build: dict[str, Scalar]
) -> None:
    assert problems(name, launch, arch, build) == []


ILLEGAL = [
    ("deepseek_v41", "k1", "gfx950", {**V41, "tokens": 49}, "too large (nearest: 48)"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "tokens": 0}, "too small (nearest: 1)"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "tokens": True}, "must be an integer"),
    ("deepseek_v41", "k1", "gfx942", {**V41, "tokens": 43}, "nearest: 42"),
    ("deepseek_v41", "k1", "gfx942", {**V41, "tp": 2}, "TP 4 only, not 2"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "tp": 8}, "TP 2 and 4 only, not 8"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "ratio": 3}, "nearest: 2"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "ratio": 0, "index": True}, "index needs a ratio"),
    ("deepseek_v41", "k2", "gfx942", {**V41, "index": True}, "index false only"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "experts": 128}, "no routing of this model"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "topk": 3}, "no routing of this model"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "ug_groups": 1}, "ug_groups 2 and swa_width 128"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "swa_width": 192}, "ug_groups 2 and swa_width 128"),
    ("deepseek_v41", "k1", "gfx950", {**DRAFT, "swa_width": 128}, "ug_groups 1 and swa_width 192"),
    ("deepseek_v41", "k1", "gfx950", {**DRAFT, "ratio": 1}, "a draft layer has ratio 0"),
    ("deepseek_v41", "k1", "gfx942", DRAFT, "the ffn launch only"),
    ("deepseek_v41", "ffn", "gfx950", V41, "has no attention"),
    ("deepseek_v41", "ffn", "gfx950", {**DRAFT, "swa_width": 128}, "ug_groups 2"),
    ("deepseek_v41", "k9", "gfx950", V41, "no launch 'k9'"),
    ("deepseek_v41", "k1", "gfx950", {**V41, "fuse": 1}, "unknown build field 'fuse'"),
    ("deepseek_v4", "k1", "gfx942", V4, "CDNA4's MX instructions"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "tp": 4}, "TP 8 only, not 4"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "tokens": 42}, "two_hop must be true"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "two_hop": True}, "two_hop must be false"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "topk": 1024}, "topk must be 0 with ratio 4"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "ratio": 128}, "global_keys must be true"),
    ("deepseek_v4", "k1", "gfx950", {**V4, "topk": 100}, "not a multiple of 128 (nearest: 128)"),
    ("kimi_k3", "k2", "gfx942", K2, "aborts LLVM"),
    ("kimi_k3", "k1", "gfx950", {**K1, "tokens": 9, "qlen": 8}, "not a multiple of qlen 8"),
    ("kimi_k3", "k1", "gfx950", {**K1, "tokens": 10, "qlen": 10}, "too large (nearest: 9)"),
    ("kimi_k3", "k1", "gfx950", {**K1, "write_idx": 3}, "write_idx 3 must be nblocks"),
    ("kimi_k3", "k1", "gfx950", {**K1, "state_len": 9}, "state_len must be 10"),
    ("kimi_k3", "k1", "gfx950", {**K1, "eps": "small"}, "eps must be a number"),
    ("kimi_k3", "k2", "gfx950", {**K2, "tokens": 9}, "too large (nearest: 8)"),
    ("kimi_k3", "k2", "gfx950", {**K2, "nblocks": 1, "reset": True}, "nblocks of at least 2"),
    ("kimi_k3", "k2", "gfx950", {**K2, "fault_ticks": 9}, "need a fault_rank"),
    ("minimax_m3", "ffn", "gfx942", M3, "v_cvt_scalef32_pk_bf16_fp4"),
    ("minimax_m3", "ffn", "gfx950", {**M3, "experts": "sharde"}, "did you mean 'shared'?"),
    ("minimax_m3", "ffn", "gfx950", {**M3, "tokens": 17}, "nearest: 16"),
    ("minimax_m3", "ffn", "gfx950", {**M3, "drop_mark": 256}, "nearest: 255"),
    ("minimax_m3", "ffn", "gfx950", {**M3, "wait_ticks": 0}, "nearest: 1"),
]


@pytest.mark.parametrize(("name", "launch", "arch", "build", "reason"), ILLEGAL)
def test_other_keys_are_refused_with_the_reason(
    name: str, launch: str, arch: str, build: dict[str, Scalar], reason: str
) -> None:
    found = problems(name, launch, arch, build)
    assert any(reason in text for text in found), found


def test_a_missing_field_is_named() -> None:
    short = {n: v for n, v in V41.items() if n != "ratio"}
    assert problems("deepseek_v41", "k1", "gfx950", short) == [
        "ratio is missing from the build key"
    ]


def test_a_whole_number_for_a_real_field_makes_the_same_key() -> None:
    k3 = family("kimi_k3")
    deployment = k3.deployment("gfx950", 8, {"gate_lower_bound": -5})
    assert k3.key(deployment, "k1", 8, {"nblocks": 4}).values["lower_bound"] == -5.0
    whole = k3.key(deployment, "k1", 8, {"nblocks": 4, "lower_bound": -5})
    assert '"lower_bound":-5.0' in json.dumps(whole.to_json(), separators=(",", ":"))


def test_m3_hands_the_kernels_their_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "vllm.models.minimax_m3.amd.specialized_decode.mono"
    parts = package.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    ffn = types.ModuleType(f"{package}.ffn")
    experts = Enum("Experts", {"ALL": "all", "SHARED": "shared", "ROUTED": "routed"})
    ffn.__dict__["Experts"] = experts
    ffn.__dict__["FfnBuild"] = lambda **values: values
    ffn.__dict__["build_ffn"] = lambda build: lambda: build
    monkeypatch.setitem(sys.modules, ffn.__name__, ffn)
    key = LaunchKey.of("minimax_m3", "ffn", "gfx950", {**M3, "experts": "shared"})
    build = family("minimax_m3").launcher(key)()
    assert build == {**M3, "experts": experts["SHARED"]}
