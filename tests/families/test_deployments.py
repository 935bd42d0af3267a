"""What a deployment asks for, against the figures and variants of the reference table."""

from __future__ import annotations

from collections import Counter

import pytest

from mono_build.families.base import Setting
from mono_build.families.registry import family
from mono_runtime.families.deepseek_v4 import key_table_width
from mono_runtime.launch_key import LaunchKey


def keys_of(name: str, arch: str, tp: int, **settings: Setting) -> list[LaunchKey]:
    known = family(name)
    return known.deployment_keys(known.deployment(arch, tp, settings))


FIGURES = [
    ("deepseek_v41", "gfx950", 4, {"speculative_tokens": 5}, 84),
    ("deepseek_v41", "gfx950", 2, {"speculative_tokens": 5}, 84),
    ("deepseek_v41", "gfx950", 4, {"speculative_tokens": 0}, 108),
    ("deepseek_v41", "gfx950", 4, {"speculative_tokens": 5, "draft": True}, 84 + 28),
    # vLLM builds 60 of these; the other six are key lists, in place of a Triton kernel of vLLM's.
    ("deepseek_v41", "gfx942", 4, {"speculative_tokens": 5}, 60 + 6),
    ("deepseek_v41", "gfx942", 4, {"draft": True, "max_num_seqs": 7}, 60 + 6 + 6),
    ("deepseek_v41", "gfx942", 4, {"kv_cache_dtype": "mxfp8"}, 6),
    ("deepseek_v41", "gfx950", 4, {"kv_cache_dtype": "mxfp8"}, 7),
    ("deepseek_v41", "gfx950", 4, {"indexer_kv_dtype": "fp8"}, 49),
    ("deepseek_v4", "gfx950", 8, {"speculative_tokens": 6}, 80),
    ("deepseek_v4", "gfx950", 8, {"speculative_tokens": 0}, 110),
    ("kimi_k3", "gfx950", 8, {"speculative_tokens": 7}, 30),
    ("kimi_k3", "gfx950", 8, {"speculative_tokens": 3}, 60),
    ("kimi_k3", "gfx950", 8, {"speculative_tokens": 1}, 120),
    ("minimax_m3", "gfx950", 4, {}, 16),
]


@pytest.mark.parametrize(("name", "arch", "tp", "settings", "count"), FIGURES)
def test_a_deployment_asks_for_as_many_keys_as_the_engine(
    name: str, arch: str, tp: int, settings: dict[str, Setting], count: int
) -> None:
    keys = keys_of(name, arch, tp, **settings)
    assert len(set(keys)) == len(keys) == count


@pytest.mark.parametrize(("name", "arch", "tp", "settings", "count"), FIGURES)
def test_every_key_of_a_deployment_is_legal(
    name: str, arch: str, tp: int, settings: dict[str, Setting], count: int
) -> None:
    problems = [p for k in keys_of(name, arch, tp, **settings) for p in family(name).problems(k)]
    assert problems == []


# (ratio, fold, index) of the backbone's layers, and how many layers have it.
V41_LAYERS = {
    (0, False, False): 2,
    (2, True, True): 2,
    (2, True, False): 15,
    (2, False, True): 1,
    (1, True, True): 5,
    (1, True, False): 15,
}


def routing(keys: list[LaunchKey], launch: str, *names: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(k.values[n] for n in names) for k in keys if k.launch == launch)


def test_v41_layers_are_those_of_the_published_config() -> None:
    from mono_runtime.families.deepseek_v41 import LAYERS

    assert Counter((x.ratio, x.fold, x.index) for x in LAYERS) == V41_LAYERS


@pytest.mark.parametrize("launch", ["k1", "k2"])
def test_v41_on_gfx950_builds_each_layer_variant_at_each_width(launch: str) -> None:
    keys = keys_of("deepseek_v41", "gfx950", 4)
    assert routing(keys, launch, "ratio", "fold", "index") == dict.fromkeys(V41_LAYERS, 7)
    assert routing(keys, launch, "tokens") == {(n,): 6 for n in (6, 12, 18, 24, 36, 42, 48)}


def test_v41_on_gfx942_shares_the_plain_k2() -> None:
    keys = keys_of("deepseek_v41", "gfx942", 4)
    plain = [(0, False, False), (2, True, False), (2, False, False), (1, True, False)]
    assert routing(keys, "k2", "ratio", "fold", "index") == dict.fromkeys(plain, 6)
    assert routing(keys, "k1", "ratio", "fold", "index") == dict.fromkeys(V41_LAYERS, 6)


def test_v41_lists_an_index_source_s_keys_once_a_width_of_the_target_on_gfx942() -> None:
    keys = keys_of("deepseek_v41", "gfx942", 4, draft=True)
    lists = [k for k in keys if k.launch == "keylist"]
    assert [k.values for k in lists] == [{"tokens": n} for n in (6, 12, 18, 24, 36, 42)]
    assert "keylist" not in {k.launch for k in keys_of("deepseek_v41", "gfx950", 4)}


@pytest.mark.parametrize(("arch", "widest"), [("gfx942", 42), ("gfx950", 48)])
def test_a_key_list_can_be_built_for_both_architectures_up_to_their_widest_step(
    arch: str, widest: int
) -> None:
    described = family("deepseek_v41")
    for rows, problems in ((1, 0), (widest, 0), (widest + 1, 1), (0, 1)):
        key = LaunchKey.of("deepseek_v41", "keylist", arch, {"tokens": rows})
        assert len(described.problems(key)) == problems, rows


def test_v41_draft_on_gfx950_has_its_own_routing_and_widths() -> None:
    keys = keys_of("deepseek_v41", "gfx950", 4, draft=True)
    draft = [k for k in keys if k.values["experts"] == 128]
    facts = routing(draft, "k1", "topk", "ug_groups", "swa_width", "ratio", "fold")
    assert facts == {(3, 1, 192, 0, False): 7, (3, 1, 192, 0, True): 7}
    assert {k.values["tokens"] for k in draft} == {5, 10, 15, 20, 25, 35, 40}


def test_v41_draft_on_gfx942_is_the_ffn_launch() -> None:
    keys = keys_of("deepseek_v41", "gfx942", 4, draft=True, max_num_seqs=7)
    draft = [k for k in keys if k.values.get("experts") == 128]
    assert {k.launch for k in draft} == {"ffn"}
    assert [k.values["tokens"] for k in draft] == [5, 10, 15, 20, 25, 35]
    assert {(k.values["topk"], k.values["ug_groups"], k.values["swa_width"]) for k in draft} == {
        (3, 2, 128)
    }


def test_v41_draft_that_serves_more_requests_has_one_more_width_on_gfx942() -> None:
    keys = keys_of("deepseek_v41", "gfx942", 4, draft=True)
    assert 40 in {k.values["tokens"] for k in keys if k.values.get("experts") == 128}


def test_one_v41_key_in_full() -> None:
    keys = keys_of("deepseek_v41", "gfx950", 4)
    assert LaunchKey.of(
        "deepseek_v41",
        "k1",
        "gfx950",
        {
            "tokens": 48,
            "tp": 4,
            "ratio": 2,
            "timeline": False,
            "fold": True,
            "index": True,
            "experts": 384,
            "topk": 6,
            "ug_groups": 2,
            "swa_width": 128,
        },
    ) in set(keys)


V4_VARIANTS = [
    (128, False, True),
    (128, True, True),
    (4, True, True),
    (128, True, False),
    (4, True, False),
]


@pytest.mark.parametrize("launch", ["k1", "k2"])
def test_v4_builds_hash_routed_and_scored_layers(launch: str) -> None:
    keys = keys_of("deepseek_v4", "gfx950", 8)
    assert routing(keys, launch, "ratio", "fold", "hash_route") == dict.fromkeys(V4_VARIANTS, 8)


def test_v4_key_table_and_hops_follow_from_context_and_width() -> None:
    keys = keys_of("deepseek_v4", "gfx950", 8, max_model_len=131072)
    facts = {(k.values["ratio"], k.values["topk"], k.values["global_keys"]) for k in keys}
    assert facts == {(4, 0, False), (128, 1024, True)}
    hops = {k.values["tokens"]: k.values["two_hop"] for k in keys}
    assert hops == {
        7: False,
        14: False,
        21: False,
        28: False,
        35: False,
        42: True,
        49: True,
        56: True,
    }


@pytest.mark.parametrize(
    ("context", "width"), [(1, 128), (16384, 128), (16385, 256), (131072, 1024), (1048576, 8192)]
)
def test_v4_key_table_width(context: int, width: int) -> None:
    assert key_table_width(context) == width


def test_k3_builds_plain_and_block_write_layers() -> None:
    keys = keys_of("kimi_k3", "gfx950", 8)
    k1 = routing(keys, "k1", "nblocks", "write_idx")
    assert k1 == {**{(n, -1): 1 for n in range(1, 9)}, **{(n, n): 1 for n in range(1, 8)}}
    k2 = routing(keys, "k2", "nblocks", "reset")
    assert k2 == {**{(n, False): 1 for n in range(1, 9)}, **{(n, True): 1 for n in range(2, 9)}}


def test_k3_request_shape_follows_from_the_drafts() -> None:
    keys = keys_of("kimi_k3", "gfx950", 8, speculative_tokens=3, gate_lower_bound=-4.5)
    facts = routing(keys, "k1", "tokens", "qlen", "state_len", "lower_bound", "delta")
    assert set(facts) == {(4, 4, 6, -4.5, True), (8, 4, 6, -4.5, True)}
    assert all("tp" not in k.values for k in keys)


def test_k3_epsilons_come_from_the_deployment() -> None:
    keys = keys_of("kimi_k3", "gfx950", 8, rms_norm_eps=1e-6, o_norm_eps=2e-6)
    assert set(routing(keys, "k1", "eps", "out_eps", "onorm_eps")) == {(1e-6, 1e-6, 2e-6)}
    assert set(routing(keys, "k2", "eps", "out_eps", "ln_eps")) == {(1e-6, 1e-6, 1e-6)}


def test_m3_builds_every_width() -> None:
    keys = keys_of("minimax_m3", "gfx950", 4)
    assert [k.values["tokens"] for k in keys] == list(range(1, 17))
    assert {k.values["experts"] for k in keys} == {"all"}


# CPU seconds that the reference measured or computed for whole deployments.
@pytest.mark.parametrize(
    ("name", "tp", "settings", "seconds"),
    [
        ("deepseek_v41", 4, {"speculative_tokens": 5}, 950),
        ("deepseek_v41", 4, {"speculative_tokens": 0}, 1100),
        ("deepseek_v4", 8, {"speculative_tokens": 6}, 1030),
        ("kimi_k3", 8, {"speculative_tokens": 7}, 250),
        ("minimax_m3", 4, {}, 80),
    ],
)
def test_cost_estimates_add_up_to_what_was_measured(
    name: str, tp: int, settings: dict[str, Setting], seconds: float
) -> None:
    total = sum(map(family(name).cost, keys_of(name, "gfx950", tp, **settings)))
    assert total == pytest.approx(seconds, rel=0.05)


def test_wider_launches_cost_more() -> None:
    keys = keys_of("deepseek_v41", "gfx942", 4)
    cost = {(k.launch, k.values["tokens"]): family("deepseek_v41").cost(k) for k in keys}
    assert cost["k2", 42] > cost["k2", 6] > cost["k1", 42] > cost["k1", 6]
