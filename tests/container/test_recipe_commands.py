"""The recipe's own commands, run stage by stage without an engine and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from container_root import Bind
from recipe_builder import Builder, StepFailed
from recipe_workshop import PLUGIN, Workshop, digest_of, workshop_for

pytestmark = pytest.mark.slow
# Six launches of the tests' own family, which needs no compiler; `fold` gives equal code.
MANIFEST = (
    "schema: 1\nbuilds:\n  - family: standin\n    arch: gfx950\n    tp: 1\n    rows: [1, 2, 3]\n"
)
DEFAULTS = {"fold": False, "pause": 0.0, "behaviour": "work"}
# Looked up and not loaded: this family's code objects have no symbols. See test_serving_stage.
TASK: Mapping[str, Any] = {
    "keys": [
        {"family": "standin", "launch": "work", "arch": "gfx950", "build": {**DEFAULTS, "rows": n}}
        for n in (1, 2, 3)
    ],
    "arguments": None,
    "look": True,
}
CONFIG = {
    "model_config": {"hf_config": {"model_type": "deepseek_v41"}},
    "kernel_config": {"monokernel": True},
    "parallel_config": {"tensor_parallel_size": 4},
    "scheduler_config": {"max_num_seqs": 1},
}


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    kernels = {"standin_kernels": PLUGIN / "standin_kernels"}
    with workshop_for({"manifest.yaml": MANIFEST}, kernels) as shop:
        yield shop


@pytest.fixture(scope="module")
def built(workshop: Workshop) -> Builder:
    """Every stage, built once, without a pin."""
    builder = workshop.builder("unpinned", KERNELS="installed")
    builder.build("serving")
    return builder


def test_the_export_stage_holds_just_the_store(built: Builder) -> None:
    store = built.build("store").directory
    assert sorted(p.name for p in store.iterdir()) == ["blobs", "index.json", "oci-layout"]
    output = built.build("build").output
    assert "6 launches planned: 3 compiled, 3 reused, 0 failed" in output
    assert "no faults in" in output
    assert "coverage is not proven" in output


def test_the_serving_stage_serves_the_pinned_store(workshop: Workshop, built: Builder) -> None:
    pin = digest_of(built)
    image = workshop.serving(built, "pinned", STORE_DIGEST=pin)
    assert f"6 launches, 3 kernel files as built, index {pin}" in image.output
    assert image.environment["MONO_STORE_DIGEST"] == pin
    found = workshop.serve(image, TASK)
    check_served(found, pin)


def test_a_mounted_store_is_served_too(workshop: Workshop, built: Builder) -> None:
    image, store = built.build("serving-mounted"), built.build("store").directory
    assert not image.path("/opt/mono-store").exists()
    pin = digest_of(built)
    found = workshop.serve(image, TASK, Bind(str(store), "/opt/mono-store"), MONO_STORE_DIGEST=pin)
    check_served(found, pin)


def check_served(found: Mapping[str, Any], pin: str) -> None:
    around, server = found["surroundings"], found["served"]
    assert around["ids"][:4] == [65534] * 4
    assert (around["writable"], around["reached"], found["attempts"]) == ([], [], [])
    # mono-build itself is there for its commands; nothing that compiles is.
    assert around["compilers"] == ["mono_build"]
    assert server == {"store": pin, "policy": "strict", "missing": []}


def test_a_store_of_another_digest_ends_the_build_of_the_image(
    workshop: Workshop, built: Builder
) -> None:
    other = "sha256:" + "0" * 64
    with pytest.raises(StepFailed) as failed:
        workshop.serving(built, "other", STORE_DIGEST=other)
    # StoreDiffers.
    assert failed.value.code == 1
    assert "error: " in failed.value.output
    assert other in failed.value.output


def test_kernels_that_were_not_compiled_end_the_build_of_the_image(
    workshop: Workshop, built: Builder
) -> None:
    helper = workshop.work / "site" / "standin_kernels" / "helper.py"
    before = helper.read_bytes()
    helper.write_bytes(before + b"\n# a patched vLLM\n")
    try:
        with pytest.raises(StepFailed) as failed:
            workshop.serving(built, "patched")
    finally:
        helper.write_bytes(before)
    # KernelSourcesDiffer.
    assert failed.value.code == 3
    assert "standin_kernels/helper.py: its content is another" in failed.value.output


def test_a_store_that_lacks_what_the_server_asks_for_ends_the_build(
    workshop: Workshop, built: Builder
) -> None:
    """The description is of a V4.1 server, and the store has no launch of that family."""
    deployment = workshop.context / "ci" / "container" / "deployment-uncovered"
    deployment.mkdir()
    (deployment / "manifest.yaml").write_text(MANIFEST)
    (deployment / "vllm-config.json").write_text(json.dumps(CONFIG))
    name = str(deployment.relative_to(workshop.context))
    builder = workshop.builder("uncovered", KERNELS="installed", DEPLOYMENT=name)
    builder.take_from(built, but="build")
    with pytest.raises(StepFailed) as failed:
        builder.build("build")
    assert failed.value.code == 2
    assert "deepseek_v41 for no architecture" in failed.value.output
    assert "coverage" in str(failed.value)
