"""A decoder layer of DeepSeek-V4.1 by our runner on two emulated devices, beside the torch reference.

The launches come from a store that is built of vLLM's kernels; each rank is a thread with a device of its
own, and the ranks share peer memory. What a step leaves is compared stage by stage, as in the cases of
single launches, and from its inputs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command import environment, run
from v41_emulated import Devices, EmulatedRank, LayerContent, LayerMemory

from mono_build.emulator.cases.case import Case
from mono_build.emulator.cases.compare import Comparison
from mono_build.emulator.cases.deepseek_v41 import ffn, k1, k2
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.inputs import activations
from mono_build.emulator.cases.deepseek_v41.inputs import step as made_inputs
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights as MadeWeights

pytestmark = [pytest.mark.network, pytest.mark.slow]

SEED = 3
ROWS = 3
LAYER = Build(ROWS, 2, ratio=2, fold=True, index=True)
MANIFEST = """
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 2
    rows: [3]
    variants:
      - {launch: k1, ratio: 2, fold: true, index: true}
      - {launch: k2, ratio: 2, fold: true, index: true}
      - {launch: k2, ratio: 2, fold: true, index: false}
      - {launch: keylist}
      - {launch: ffn}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]) -> Path:
    """The launches of a layer at one width."""
    directory = tmp_path_factory.mktemp("layer")
    manifest = directory / "m.yaml"
    manifest.write_text(MANIFEST)
    path = directory / "store"
    arguments = ["build", "--store", str(path), "--manifest", str(manifest), *kernels]
    result = run(arguments, environment(directory, MONO_CACHE=cache), timeout=1800)
    assert result.code == 0, result.err
    return path


@pytest.fixture(autouse=True)
def _kept_translations(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONO_CACHE", cache)


@pytest.fixture
def devices(store: Path) -> Iterator[Devices]:
    """Two emulated devices with the store's launches, agreed on."""
    with Devices(store, "gfx950", LAYER.tp, ROWS) as found:
        yield found


class Layer:
    """The layer of a seed: what goes in, and the case that says what has to come out."""

    def __init__(self, target: Target) -> None:
        random = Random(SEED, "deepseek_v41")
        self.target = target
        self.case = k2.pair(target, SEED)
        # As the case makes them.
        self.weights = MadeWeights(target.build, random)
        self.inputs = made_inputs(target, random.of("step"), padding=True)
        self.given = activations(target.build.tokens, random.of("attention seam"))

    def front(self, rank: int, memory: LayerMemory) -> list[Comparison]:
        """What K1 left on a rank."""
        check = k1.k1_check(self.target, rank, self.weights, self.inputs, self.given)
        return check(memory)

    def back(self, memory: LayerMemory) -> list[Comparison]:
        """What K2 left on all ranks."""
        return self.case.steps[1].check(memory)


def run_layer(layer: Layer, devices: Devices, *, key_list: bool) -> dict[str, Comparison]:
    """A whole layer on all ranks, an index source; what was compared, by name."""
    found: list[Comparison] = []
    with devices.holding(layer.case) as memory:

        def work(rank: EmulatedRank) -> None:
            content = LayerContent(memory.case, layer.case, layer.target, rank.number)
            step = content.step(layer.inputs)
            assert step.topk_indices is not None
            chosen = step.topk_indices.clone()
            # Rows that are there, and that nobody selected: what the step reads, the selection wrote.
            step.topk_indices.zero_()

            def select(normed: torch.Tensor, qr: torch.Tensor) -> None:
                rank.synchronize()
                rank.remember(memory)
                memory.keep(rank.number, "normed", normed)
                memory.keep(rank.number, "qr", qr)
                found.extend(layer.front(rank.number, memory))
                step.topk_indices.copy_(chosen)

            runner = rank.runner(key_list=key_list)
            outputs = runner.forward(
                content.weights(ratio=layer.target.build.ratio, whole=True),
                step,
                content.tensor("pend", torch.bfloat16, ROWS, 5120),
                content.tensor("res_in", torch.bfloat16, ROWS, 4, 5120),
                content.tensor("post_in", torch.float32, ROWS, 4, 1),
                content.tensor("comb_in", torch.float32, ROWS, 4, 4),
                content.tensor("pre_in", torch.float32, ROWS, 4),
                select=select,
            )
            rank.synchronize()
            rank.remember(memory, outputs)

        devices.on_each(work)
        found.extend(layer.back(memory))
    return {c.name: c for c in found}


def run_ffn(case: Case, target: Target, devices: Devices) -> dict[str, Comparison]:
    """The FFN launch on all ranks, on the runners that are there."""
    with devices.holding(case) as memory:

        def work(rank: EmulatedRank) -> None:
            content = LayerContent(memory.case, case, target, rank.number)
            outputs = rank.runner().ffn(
                content.weights(ratio=0, whole=False),
                content.tensor("part", torch.bfloat16, ROWS, 5120),
                content.tensor("res_mid", torch.bfloat16, ROWS, 4, 5120),
                content.tensor("post_mid", torch.float32, ROWS, 4, 1),
                content.tensor("comb_mid", torch.float32, ROWS, 4, 4),
                content.tensor("pre_mid", torch.float32, ROWS, 4),
            )
            rank.synchronize()
            rank.remember(memory, outputs, seam=False)

        devices.on_each(work)
        return {c.name: c for c in case.steps[0].check(memory)}


def failing(found: dict[str, Comparison]) -> list[str]:
    """The comparisons that do not pass."""
    return [str(c) for c in found.values() if not c.passed]


OUTPUTS = {
    f"{what}, rank {rank}{whole}"
    for rank in range(2)
    for what in ("streams", "output")
    for whole in (", from the launch's inputs",)
}


def test_a_layer_and_then_an_ffn_match_the_reference_under_an_isa_model(devices: Devices) -> None:
    found = run_layer(Layer(Target(LAYER, "gfx950")), devices, key_list=False)
    assert failing(found) == []
    assert set(found) >= OUTPUTS
    assert {"normed input", "query's low rank", "key table", "epoch, rank 1"} <= set(found)
    # The next layer on the same runners: the other half of peer memory, and scratch as the layer left it.
    target = Target(Build(ROWS, 2), "gfx950", epoch=1)
    found = run_ffn(ffn.case(target, SEED), target, devices)
    assert failing(found) == []
    assert set(found) >= OUTPUTS


def test_a_layer_with_its_key_list_as_a_launch_matches_the_reference_under_an_isa_model(
    devices: Devices,
) -> None:
    found = run_layer(Layer(Target(LAYER, "gfx950")), devices, key_list=True)
    assert failing(found) == []
    assert {"key table", "key counts"} | OUTPUTS <= set(found)
    assert devices.launched() == {"k1": 2, "keylist": 2, "k2": 2}
