"""vLLM's plug-in where nothing can be written: it registers, prepares a deployment and serves its launches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from container_kit import run_task, serving_stage
from container_root import Container
from runtime_kit import Made, index_of, k1, publish
from standin_hip import FakeDevice

from mono_runtime.errors import LaunchMissing, StoreDiffers
from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config

# A V4.1 server on four GPUs: two requests with five drafts each, so steps of 6 and 12 rows.
CONFIG: Mapping[str, Any] = {
    "model_config": {"hf_config": {"model_type": "deepseek_v41"}},
    "kernel_config": {"monokernel": True},
    "parallel_config": {"tensor_parallel_size": 4},
    "speculative_config": {"num_speculative_tokens": 5, "method": "mtp"},
    "scheduler_config": {"max_num_seqs": 2},
    "attention_config": {"indexer_kv_dtype": "mxfp4"},
}
MI355X = FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X")
DEVICE = {"STANDIN_DEVICES": MI355X.text()}
TASK: Mapping[str, Any] = {
    "config": CONFIG,
    "launch": "k1",
    "rows": 6,
    "variant": {"ratio": 1},
    "arguments": [1, 2, 3],
    "look": True,
}


@pytest.fixture(scope="module")
def launches() -> list[Made]:
    """Made-up code for each launch that such a server asks for."""
    planned = plan_deployment(read_engine_config(CONFIG), "gfx950")
    assert isinstance(planned, Planned)
    return [replace(k1(6, "gfx950"), key=key) for key in planned.keys]


def stage(public: Path, image: Path, launches: list[Made]) -> Container:
    store = publish(public / "store", *launches)
    return serving_stage(public, image, store, index_of(store)[0])


def test_the_plugin_writes_nothing_and_starts_nothing(
    public: Path, image: Path, launches: list[Made]
) -> None:
    done = run_task(TASK, stage(public, image, launches), environment=DEVICE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["surroundings"]["writable"] == []
    assert found["surroundings"]["compilers"] == []
    assert found["attempts"] == []
    served = found["served"]
    # Six variants of K1 and of K2 at two widths.
    assert (served["summary"]["needed"], served["summary"]["loaded"]) == (24, 24)
    assert served["widths"] == [6, 12]
    assert served["counts"]["fallbacks"] == {}
    assert [symbol for symbol, _, _ in served["launched"]] == ["k1_6"]
    assert served["engine"] == []


def test_without_a_store_the_plugin_leaves_the_server_alone(
    public: Path, image: Path, launches: list[Made]
) -> None:
    container = stage(public, image, launches)
    done = run_task(TASK, container, environment={**DEVICE, "MONO_STORE": ""})
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["served"], found["attempts"]) == ({"serving": None}, [])


def test_a_deployment_with_a_launch_missing_ends_the_start_and_names_it(
    public: Path, image: Path, launches: list[Made]
) -> None:
    lacking = launches[3].key
    container = stage(public, image, [m for m in launches if m.key != lacking])
    done = run_task(TASK, container, environment=DEVICE)
    assert (done.returncode, done.stdout) == (LaunchMissing.exit_code, "")
    assert str(lacking) in done.stderr
    assert "nearest: fold is false, not true" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_store_than_the_pinned_one_ends_the_start(
    public: Path, image: Path, launches: list[Made]
) -> None:
    container = stage(public, image, launches)
    other = "sha256:" + "1" * 64
    done = run_task(TASK, container, environment={**DEVICE, "MONO_STORE_DIGEST": other})
    assert (done.returncode, done.stdout) == (StoreDiffers.exit_code, "")
    assert other in done.stderr
