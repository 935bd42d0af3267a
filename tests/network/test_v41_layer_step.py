"""A decoder layer of DeepSeek-V4.1 by our hook and runner on emulated devices, beside the torch reference.

The launches come from a store that is built of vLLM's kernels; each rank is a thread with a device of its
own, and the ranks share peer memory. What a step leaves is compared stage by stage, as in the cases of
single launches, and from its inputs alone.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from command import environment, run
from v41_emulated import Devices, EmulatedRank, LayerContent, LayerMemory
from v41_engine import (
    EmulatedEngine,
    EmulatedMaker,
    decoder_layer,
    forward_context,
    vllm_config,
)

from mono_build.emulator.cases.compare import Comparison
from mono_build.emulator.cases.deepseek_v41 import ffn, k1, k2
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.inputs import activations
from mono_build.emulator.cases.deepseek_v41.inputs import step as made_inputs
from mono_build.emulator.cases.deepseek_v41.read import RankMemory
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights as MadeWeights
from mono_runtime.hooks.deepseek_v41.inputs import LayerStep
from mono_runtime.hooks.deepseek_v41.install import install
from mono_runtime.hooks.serving import Serving

pytestmark = [pytest.mark.network, pytest.mark.slow]

SEED = 3
# The widest step of a request with two drafts; one row of it is padding.
GFX950 = Target(Build(3, 2, ratio=2, index=True), "gfx950")
# As production has it: four ranks, and the keys listed by a launch of their own.
GFX942 = Target(Build(2, 4, ratio=2, index=True), "gfx942")
MANIFEST = """
schema: 1
builds:
  - family: deepseek_v41
    arch: gfx950
    tp: 2
    rows: [3]
    variants:
      - {launch: k1, ratio: 2, fold: false, index: true}
      - {launch: k1, ratio: 2, fold: true, index: true}
      - {launch: k2, ratio: 2, fold: false, index: true}
      - {launch: k2, ratio: 2, fold: true, index: true}
      - {launch: k2, ratio: 2, fold: true, index: false}
      - {launch: keylist}
      - {launch: ffn}
  - family: deepseek_v41
    arch: gfx942
    tp: 4
    rows: [2]
    variants:
      - {launch: k1, ratio: 2, fold: true, index: true}
      - {launch: keylist}
      - {launch: k2, ratio: 2, fold: true, index: false}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]) -> Path:
    """The launches of a layer at one width of each architecture."""
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
        """The keys that K2 had, and what it left, on all ranks."""
        found = self.case.steps[1].check(memory)
        for rank in range(self.target.build.tp):
            of_rank = RankMemory(memory, rank, self.target)
            found += k1.key_checks(of_rank, self.target, self.inputs)
        return found


class Selection:
    """What an index source selects on a rank: it looks at what K1 left, and then writes the choice."""

    def __init__(
        self, layer: Layer, rank: EmulatedRank, memory: LayerMemory, step: LayerStep
    ) -> None:
        assert step.topk_indices is not None
        self._layer, self._rank, self._memory, self._topk = layer, rank, memory, step.topk_indices
        self._chosen = step.topk_indices.clone()
        # Rows that are there, and that nobody selected: what K2 attends to, the selection wrote.
        step.topk_indices.zero_()
        self.found: list[Comparison] = []

    def __call__(self, normed: torch.Tensor, qr: torch.Tensor) -> None:
        self._rank.synchronize()
        self._rank.remember(self._memory)
        self._memory.keep(self._rank.number, "normed", normed)
        self._memory.keep(self._rank.number, "qr", qr)
        self.found = self._layer.front(self._rank.number, self._memory)
        self._topk.copy_(self._chosen)


INPUTS = ("pend", "res_in", "post_in", "comb_in", "pre_in")
FFN_INPUTS = ("part", "res_mid", "post_mid", "comb_mid", "pre_mid")


def serving_layers(
    rank: EmulatedRank, devices: Devices, build: Build, whole: Any, ffn_only: Any, *, key_list: bool
) -> tuple[EmulatedEngine, Any, Any]:
    """What the installed hook gives for two of vLLM's layers, as a server's process has it."""
    environ = {"MONO_STORE": str(devices.path), "MONO_POLICY": "strict"}
    serving = Serving(driver=devices.driver, environ=environ)
    engine = EmulatedEngine(rank, devices.arch)
    module = ModuleType("vllm.models.deepseek_v41.amd.mono_decode")
    module.__dict__["MonoDecodeLayer"] = "vLLM's own"
    install(module, serving, engine=engine, maker=EmulatedMaker(rank, key_list=key_list))
    create = module.__dict__["MonoDecodeLayer"].create
    config = vllm_config(build.tp, drafts=build.tokens - 1)
    return engine, create(whole, config), create(ffn_only, config)


def run_hooked(
    layer: Layer, devices: Devices, *, key_list: bool
) -> tuple[dict[str, Comparison], ...]:
    """A whole layer on all ranks by the hook, then the FFN of one whose attention the engine runs.

    Args:
        key_list: whether the key list's own launch lists the keys, instead of K2.
    """
    build = layer.target.build
    target = Target(Build(build.tokens, build.tp), devices.arch, epoch=1)
    other = ffn.case(target, SEED)
    found: list[Comparison] = []
    with devices.holding(layer.case) as memory, devices.holding(other) as of_ffn:

        def work(rank: EmulatedRank) -> None:
            content = LayerContent(memory.case, layer.case, layer.target, rank.number)
            rest = LayerContent(of_ffn.case, other, target, rank.number)
            step = content.step(layer.inputs)
            selection = Selection(layer, rank, memory, step)
            weights = content.weights(whole=True)
            vllm = decoder_layer(weights, step, selection)
            vllm_ffn = decoder_layer(rest.weights(whole=False), step, selection, kv_mxfp8=True)
            engine, whole, half = serving_layers(
                rank, devices, build, vllm, vllm_ffn, key_list=key_list
            )
            engine.context = forward_context(vllm, step, build.ratio)
            x, *others = content.activations(*INPUTS)
            outputs = whole(vllm, x, step.positions, *others)
            rank.synchronize()
            rank.remember(memory, outputs)
            found.extend(selection.found)
            devices.meet()
            if rank.number == 0:
                found.extend(layer.back(memory))
            devices.meet()
            # The next layer on the same runners: the other half of peer memory, and used scratch.
            outputs = half.ffn(vllm_ffn, *rest.activations(*FFN_INPUTS))
            rank.synchronize()
            rank.remember(of_ffn, outputs, seam=False)

        devices.on_each(work)
        return _named(found), _named(other.steps[0].check(of_ffn))


def run_directly(layer: Layer, devices: Devices) -> dict[str, Comparison]:
    """A whole layer on all ranks by runners alone."""
    found: list[Comparison] = []
    with devices.holding(layer.case) as memory:

        def work(rank: EmulatedRank) -> None:
            content = LayerContent(memory.case, layer.case, layer.target, rank.number)
            step = content.step(layer.inputs)
            selection = Selection(layer, rank, memory, step)
            runner = rank.make_runner(rank.launches())
            weights = content.weights(whole=True)
            given = content.activations(*INPUTS)
            outputs = runner.forward(weights, step, *given, select=selection)
            rank.synchronize()
            rank.remember(memory, outputs)
            found.extend(selection.found)

        devices.on_each(work)
        return _named([*found, *layer.back(memory)])


def _named(found: list[Comparison]) -> dict[str, Comparison]:
    # Ranks whose outputs have one name in K1's checks have to pass both.
    return {c.name: c for c in sorted(found, key=lambda c: c.excess)}


def failing(found: dict[str, Comparison]) -> list[str]:
    """The comparisons that do not pass."""
    return [str(c) for c in found.values() if not c.passed]


def outputs(ranks: int) -> set[str]:
    """What a layer leaves, compared with what follows from its inputs alone."""
    return {
        f"{n}, rank {r}, from the launch's inputs"
        for r in range(ranks)
        for n in ("streams", "output")
    }


FRONT = {
    "normed input",
    "query's low rank",
    "query",
    "KV record, E4M3 part",
    "key table",
    "key counts",
}


@pytest.fixture(scope="module")
def layer() -> Layer:
    return Layer(GFX950)


@pytest.mark.parametrize("key_list", [False, True])
def test_a_hooked_layer_and_then_an_ffn_match_the_reference_under_an_isa_model(
    store: Path, layer: Layer, key_list: bool
) -> None:
    with Devices(store, GFX950) as devices:
        whole, half = run_hooked(layer, devices, key_list=key_list)
        assert failing(whole) == []
        assert outputs(2) | FRONT <= set(whole)
        assert failing(half) == []
        assert outputs(2) | {"epoch, rank 1"} <= set(half)
        lists = {"keylist": 2} if key_list else {}
        assert devices.launched() == {"ffn": 2, "k1": 2, "k2": 2, **lists}


def test_a_layer_of_gfx942_with_its_key_list_matches_the_reference_under_an_isa_model(
    store: Path,
) -> None:
    with Devices(store, GFX942) as devices:
        found = run_directly(Layer(GFX942), devices)
        assert failing(found) == []
        assert outputs(4) | FRONT <= set(found)
        assert devices.launched() == {"k1": 4, "k2": 4, "keylist": 4}
