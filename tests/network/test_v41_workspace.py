"""Workspace of V4.1's launches as a build records it, against layouts that were worked out apart from vLLM's code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mono_build.emulator.cases.deepseek_v41 import regions
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.sources import resolve_kernels
from mono_runtime.launch_key import LaunchKey, Scalar

pytestmark = pytest.mark.network

# Sizes of every key of the ready manifests and of both TP sizes, from the kernels' own functions: as in a
# build's session, in a process for one architecture.
SCRIPT = """
import json, sys
from pathlib import Path
from mono_build.families.registry import family
from mono_build.sources import KernelSource, find_helpers, kernel_importer

root, arch = sys.argv[1:]
described = family("deepseek_v41")
source = KernelSource(described.source, Path(root), "", "")
kernel_importer(source, described.packages, find_helpers([]))
found = {}
for tp in described.targets[arch]:
    for draft in (False, True):
        deployment = described.deployment(arch, tp, {"draft": draft, "eager": True})
        for key in described.deployment_keys(deployment):
            found[json.dumps(key.to_json())] = dict(described.workspace(key))
print(json.dumps(list(found.items())))
"""


def recorded(arch: str) -> dict[LaunchKey, dict[str, int]]:
    kernels = resolve_kernels(os.environ.get("MONO_TEST_KERNELS", "vllm==0.33.0"), os.environ)
    kept = {n: os.environ[n] for n in ("PATH", "HOME", "LD_LIBRARY_PATH") if n in os.environ}
    path = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(kernels.root), arch],
        env={**kept, "PYTHONPATH": path, "ARCH": arch, "FLYDSL_GPU_ARCH": arch},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {LaunchKey.from_json(json.loads(k)): sizes for k, sizes in json.loads(done.stdout)}


def expected(key: LaunchKey) -> dict[str, int]:
    if key.launch == "keylist":
        return {}
    values: dict[str, Scalar] = key.values
    target = Target(Build(**values), key.arch)  # type: ignore[arg-type]
    sizes = {"scratch": regions.scratch_bytes(target), "epoch": 4 * regions.EPOCH_WORDS}
    if key.launch != "k1":
        # Even and odd epochs have a half each.
        sizes["sym"] = 2 * regions.peer_half(target.build.tp)
    return sizes


@pytest.mark.parametrize(
    ("arch", "launches"), [("gfx950", {"k1", "k2"}), ("gfx942", {"k1", "k2", "ffn", "keylist"})]
)
def test_every_launch_records_what_its_layout_needs(arch: str, launches: set[str]) -> None:
    found = recorded(arch)
    assert {key.launch for key in found} == launches
    assert {int(key.values["tokens"]) for key in found} >= set(range(1, 43))
    assert {key: sizes for key, sizes in found.items() if sizes != expected(key)} == {}
