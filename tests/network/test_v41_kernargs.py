"""Our V4.1 runner passes what vLLM 0.33.0's runner passes, argument by argument, over the stand-in HIP.

vLLM's runner is the wheel's own file. Both runners launch the same launches of a store with the same
tensors; see `v41_kernargs`.
"""

from __future__ import annotations

from typing import Any

import pytest
from vllm_process import answer_of, built, packages

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


@pytest.fixture(scope="module")
def answer(
    tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> dict[str, Any]:
    """What both runners launched, by call."""
    directory = tmp_path_factory.mktemp("kernargs")
    store = built(directory, MANIFEST, cache, kernels)
    task = {"packages": packages(cache, kernels, ["deepseek_v41"])}
    return answer_of("v41_kernargs.py", directory, task, MONO_STORE=str(store))


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
