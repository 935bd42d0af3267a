"""A store against a server: what is covered, what is missing, and the manifest that builds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_kit import k3, m3, v4, v41

from mono_build.manifest import Selection, load_manifests, plan_for
from mono_build.manifest.writing import manifest_text
from mono_runtime.hooks.coverage import WidthCoverage, coverage
from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config


def planned(config: dict[str, Any], arch: str = "gfx950") -> Planned:
    found = plan_deployment(read_engine_config(config), arch)
    assert isinstance(found, Planned), found
    return found


def test_a_store_with_every_launch_covers_the_server() -> None:
    server = planned(m3())
    found = coverage(server.keys, server)
    assert found.covered
    assert (found.needed, len(found.found), found.missing) == (16, 16, ())
    assert found.served == tuple(range(1, 17))


def test_what_a_store_has_besides_does_not_matter() -> None:
    server = planned(v41())
    others = planned(v41(speculative_config={"num_speculative_tokens": 3}))
    found = coverage([*server.keys, *others.keys], server)
    assert (found.covered, found.needed) == (True, 84)


def test_missing_launches_are_told_by_width_with_the_nearest_entry() -> None:
    server = planned(v41(scheduler_config={"max_num_seqs": 2}))
    held = [k for k in server.keys if not (k.launch == "k2" and k.values["tokens"] == 12)]
    found = coverage(held, server)
    assert found.widths == (WidthCoverage(6, 12, 0), WidthCoverage(12, 12, 6))
    assert found.served == (6,)
    assert {m.key.launch for m in found.missing} == {"k2"}
    nearest = found.missing[0].nearest[0]
    assert str(nearest) == "tokens is 6, not 12"


def test_an_empty_store_lacks_everything() -> None:
    found = coverage([], planned(m3()))
    assert [m.reason for m in found.missing] == ["empty"] * 16
    assert found.served == ()


def test_coverage_as_data() -> None:
    server = planned(v41(scheduler_config={"max_num_seqs": 1}, attention_config=None))
    data: Any = coverage(server.keys[1:], server).to_json()
    assert (data["family"], data["arch"], data["tp"]) == ("deepseek_v41", "gfx950", 4)
    assert (data["covered"], data["needed"], data["found"]) == (False, 7, 6)
    assert data["widths"] == [{"rows": 6, "needed": 7, "missing": 1}]
    assert data["deployment"]["indexer_kv_dtype"] == "fp8"
    assert data["deployment"]["capture_sizes"] == []
    (missing,) = data["missing"]
    assert missing["key"] == server.keys[0].to_json()
    assert missing["reason"] == "fields"
    assert missing["nearest"][0]["differences"]


LAYERS = {
    "compress_ratios": [0, 2, 2, 1],
    "num_hidden_layers": 4,
    "index_source_layer_ids": [1],
    "kv_source_layer_ids": [1],
}
SERVERS = [
    (v41(), "gfx950"),
    (v41(speculative_config={"method": "dspark"}, scheduler_config={"max_num_seqs": 7}), "gfx950"),
    (v41(attention_config=None, compilation_config={"cudagraph_mode": "NONE"}), "gfx942"),
    (v41(compilation_config={"cudagraph_capture_sizes": [6, 12]}), "gfx950"),
    # Layers that are not the published ones have to be spelt out.
    (v41(model_config={"hf_config": LAYERS}), "gfx950"),
    (v41(model_config={"hf_config": LAYERS}, attention_config=None), "gfx942"),
    (v41(model_config={"hf_config": LAYERS}, speculative_config={"method": "dspark"}), "gfx950"),
    (v4(model_config={"max_model_len": 20000}), "gfx950"),
    (v4(model_config={"hf_config": {"mlp_layer_types": ["moe"] * 61}}), "gfx950"),
    (k3(model_config={"hf_config": {"text_config": {"rms_norm_eps": 1e-6}}}), "gfx950"),
    (k3(model_config={"hf_config": {"text_config": {"attn_res_block_size": 16}}}), "gfx950"),
    (m3(), "gfx950"),
]


@pytest.mark.parametrize(("config", "arch"), SERVERS)
def test_the_manifest_plans_the_servers_launches_and_no_others(
    config: dict[str, Any], arch: str, tmp_path: Path
) -> None:
    server = planned(config, arch)
    path = tmp_path / "server.yaml"
    path.write_text(manifest_text(server.family, server.deployment, server.keys))
    plan = plan_for(load_manifests([str(path)]), Selection())
    assert set(plan.keys) == set(server.keys)
    assert len(plan.keys) == len(server.keys)


def test_the_manifest_of_a_published_model_states_the_deployment_alone() -> None:
    server = planned(v41(scheduler_config={"max_num_seqs": 4}))
    assert manifest_text(server.family, server.deployment, server.keys) == (
        "schema: 1\n"
        "builds:\n"
        "- family: deepseek_v41\n"
        "  arch: gfx950\n"
        "  tp: 4\n"
        "  deployment: {max_num_seqs: 4}\n"
    )
