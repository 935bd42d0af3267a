"""The recipe with its default kernels: vLLM's launches of one width compiled, covered, exported and served."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recipe_workshop import Workshop, digest_of, workshop_for
from standin_hip import FakeDevice

from mono_build.sources import resolve_kernels

pytestmark = [pytest.mark.network, pytest.mark.slow]
# One request with five drafts: steps of 6 rows, the 12 launches of one width.
MANIFEST = """\
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    deployment:
      speculative_tokens: 5
      max_num_seqs: 1
"""
CONFIG: dict[str, Any] = {
    "model_config": {"hf_config": {"model_type": "deepseek_v41"}},
    "kernel_config": {"monokernel": True},
    "parallel_config": {"tensor_parallel_size": 4},
    "speculative_config": {"num_speculative_tokens": 5, "method": "mtp"},
    "scheduler_config": {"max_num_seqs": 1},
    "attention_config": {"indexer_kv_dtype": "mxfp4"},
}
MI355X = FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the wheel: the container itself has no network."""
    return Path(os.environ.get("MONO_CACHE") or tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def workshop(cache: Path) -> Iterator[Workshop]:
    """The serving image has the kernel files of that wheel, as an image with vLLM has."""
    kernels = resolve_kernels("vllm==0.33.0", {**os.environ, "MONO_CACHE": str(cache)}).root
    deployment = {"manifest.yaml": MANIFEST, "vllm-config.json": json.dumps(CONFIG)}
    with workshop_for(deployment, {"vllm": kernels / "vllm"}) as shop:
        yield shop


def test_one_width_of_v41_is_built_covered_and_served(workshop: Workshop, cache: Path) -> None:
    builder = workshop.builder("v41", cache)
    build = builder.build("build")
    assert "12 launches planned: " in build.output
    assert " 0 failed" in build.output
    assert "coverage is not proven" not in build.output
    pin = digest_of(builder)
    image = workshop.serving(builder, "serving", STORE_DIGEST=pin)
    checked = re.search(
        r"^12 launches, (\d+) kernel files as built, index (.*)$", image.output, re.M
    )
    assert checked is not None
    assert (int(checked[1]) > 5, checked[2]) == (True, pin)
    task = {"config": CONFIG, "launch": "k1", "rows": 6, "variant": {"ratio": 1}}
    found = workshop.serve(
        image, {**task, "arguments": None, "look": True}, STANDIN_DEVICES=MI355X.text()
    )
    assert (found["surroundings"]["writable"], found["attempts"]) == ([], [])
    served = found["served"]
    assert (served["summary"]["needed"], served["summary"]["loaded"]) == (12, 12)
    assert served["widths"] == [6]
    ((symbol, grid, _),) = served["launched"]
    # As vLLM names K1 of 6 rows, TP 4, ratio 1.
    assert "dsv41_mono_k1_s6_tp4_r1" in symbol
    assert grid == [256, 1, 1]
