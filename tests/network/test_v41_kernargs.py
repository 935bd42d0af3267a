"""Our V4.1 runner passes what vLLM 0.33.0's runner passes, argument by argument, over the stand-in HIP.

vLLM's runner is the wheel's own file. Both runners launch the same launches of a store with the same
tensors; see `v41_kernargs`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import standin_hip
from command import ROOT, environment, run

import mono_build.standins
from mono_build.sources import resolve_kernels
from mono_build.toolchain import identify, toolkit, worker_environment

pytestmark = [pytest.mark.network, pytest.mark.slow]

MANIFEST = """\
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 2
    rows: [3]
    variants:
      - {launch: k1, ratio: 2, fold: true, index: false}
      - {launch: k2, ratio: 2, fold: true, index: false}
      - {launch: ffn}
"""
MI355X = standin_hip.FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X")
PACKAGES = ("vllm", "vllm.models", "vllm.models.deepseek_v41", "vllm.models.deepseek_v41.amd")


@pytest.fixture(scope="module")
def answer(
    tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> dict[str, Any]:
    """What both runners launched, by call."""
    directory = tmp_path_factory.mktemp("kernargs")
    manifest, store = directory / "m.yaml", directory / "store"
    manifest.write_text(MANIFEST)
    arguments = ["build", "--store", str(store), "--manifest", str(manifest), *kernels]
    built = run(arguments, environment(directory, MONO_CACHE=cache), timeout=1800)
    assert built.code == 0, built.err
    root = resolve_kernels(kernels[1], {**os.environ, "MONO_CACHE": cache}).root
    task, result = directory / "task.json", directory / "answer.json"
    packages = {name: str(root.joinpath(*name.split("."))) for name in PACKAGES}
    helpers = [str(Path(mono_build.standins.__file__).parent)]
    task.write_text(json.dumps({"path": helpers, "packages": packages}))
    tools = identify(os.environ)
    # vLLM's files take their target from FlyDSL's variables when they are imported.
    with toolkit(tools.linker, tools.bitcode) as tools_root:
        variables = worker_environment("gfx950", tools_root, os.environ, ())
        standin = standin_hip.environment(MI355X)
        variables |= {n: v for n, v in standin.items() if n.startswith("STANDIN_")}
        variables |= {
            "MONO_HIP_LIBRARY": str(standin_hip.library()),
            "MONO_STORE": str(store),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "hip")]),
        }
        script = Path(__file__).with_name("v41_kernargs.py")
        done = subprocess.run(
            [sys.executable, str(script), str(task), str(result)],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    return found


@pytest.mark.parametrize(
    ("call", "launches"),
    [
        ("a window alone, entering", ["k1", "k2"]),
        ("compressed keys", ["k1", "k2"]),
        ("an index source", ["k1", "k2"]),
        ("ffn", ["ffn"]),
    ],
)
def test_every_argument_is_the_one_that_vllms_runner_passes(
    answer: dict[str, Any], call: str, launches: list[str]
) -> None:
    ours, theirs = answer[call]["ours"], answer[call]["theirs"]
    assert [launch for launch, _ in theirs] == launches
    assert ours == theirs


def test_what_vllms_runner_passes_is_told_by_name(answer: dict[str, Any]) -> None:
    """Against literals, so that the comparison above compares something."""
    (_, k1), (_, k2) = answer["compressed keys"]["theirs"]
    assert (len(k1), len(k2)) == (40, 54)
    assert (k1["hc_fn"], k2["hc_fn"]) == ("weight attention hc_fn", "weight hc_fn")
    assert (k1["res_in"], k1["pend"], k1["res_out"]) == ("residual", "x", "res_mid")
    assert (k2["res_in"], k2["res_out"], k2["out"]) == ("res_mid", "new residual", "new out")
    assert (k1["swa"], k1["swa_stride"], k1["swa_block"]) == ("swa_cache", 64 * 584 + 24, 64)
    assert (k2["comp"], k2["comp_stride"], k2["comp_block"]) == ("comp_cache", 32 * 584 + 8, 32)
    assert (k2["rank"], k2["sym"], k2["peers"]) == (1, 0x7000, "table of peers")
    assert (k2["scratch"], k2["epoch"], k2["tl"]) == ("scratch", "epoch", 0)
    (_, entering), _ = answer["a window alone, entering"]["theirs"]
    assert (entering["topk"], entering["bt_stride"], entering["comp_block"]) == ("dummy", 0, 1)
