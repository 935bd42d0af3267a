"""The layers of DeepSeek-V4.1-Flash ask for the very launches that a deployment's plan has, no more, no less."""

from __future__ import annotations

from typing import Any

import pytest
from v41_objects import (
    FakeEngine,
    FakeMaker,
    FakePrepared,
    FakeServing,
    Fp8Indexer,
    Mxfp4Indexer,
    compressed_layer,
    decoder_layer,
    vllm_config,
)

from mono_runtime.families.deepseek_v41 import KEYS
from mono_runtime.hooks.deepseek_v41.factory import LayerFactory
from mono_runtime.launch_key import LaunchKey

# The checkpoint's config.json: compress ratios of 40 layers, index sources, Engram layers.
RATIOS = [0] * 2 + [2] * 18 + [1] * 20
INDEX_SOURCES = (2, 8, 14, 20, 24, 28, 32, 36)
ENGRAM = (1, 14)


class PlannedLaunches(FakePrepared):
    """What a store holds that was built from the deployment's plan; notes the keys that are asked for."""

    def __init__(self, deployment: Any, widths: tuple[int, ...]) -> None:
        super().__init__({*widths})
        self.deployment = deployment
        self.planned = frozenset(KEYS.deployment_keys(deployment))
        self.needed: set[LaunchKey] = set()

    def key(self, name: str, rows: int, **variant: Any) -> Any:
        return KEYS.key(self.deployment, name, rows, variant)

    def has(self, key: Any) -> bool:
        if key in self.planned:
            self.needed.add(key)
        return key in self.planned


def layers(arch: str, mxfp8: bool) -> list[Any]:
    """The backbone's layers, and the draft's three."""
    indexer = Fp8Indexer if arch == "gfx942" else Mxfp4Indexer
    found = []
    for number, ratio in enumerate(RATIOS):
        changed: dict[str, Any] = {"attn__kv_mxfp8": mxfp8}
        if number in INDEX_SOURCES:
            changed["attn__indexer"] = indexer()
        if number in ENGRAM:
            changed["engram"] = object()
        found.append(
            compressed_layer(number, ratio, **changed)
            if ratio
            else decoder_layer(number, **changed)
        )
    return found + [decoder_layer(n, attn__kv_mxfp8=mxfp8) for n in (40, 41, 42)]


@pytest.mark.parametrize(
    ("arch", "tp", "settings", "mine", "kinds"),
    [
        ("gfx950", 4, {}, [(False, False)] * 40, 84),
        ("gfx950", 2, {}, [(False, False)] * 40, 84),
        ("gfx950", 4, {"draft": True}, [(False, False)] * 40 + [(False, True)] * 3, None),
        ("gfx942", 4, {}, [(False, False)] * 40, 66),
        ("gfx942", 4, {"draft": True}, [(False, False)] * 40 + [(True, False)] * 3, None),
        ("gfx950", 4, {"kv_cache_dtype": "mxfp8"}, [(True, False)] * 40, 7),
    ],
)
def test_a_models_layers_need_what_its_plan_has(
    arch: str, tp: int, settings: dict[str, Any], mine: list[Any], kinds: int | None
) -> None:
    deployment = KEYS.deployment(arch, tp, {"speculative_tokens": 5, **settings})
    prepared = PlannedLaunches(deployment, KEYS.widths(deployment))
    serving: Any = FakeServing(prepared)
    factory = LayerFactory(serving, FakeEngine(arch, tp), FakeMaker())
    made = [
        factory.create(layer, vllm_config())
        for layer in layers(arch, "kv_cache_dtype" in settings)[: len(mine)]
    ]
    assert [m and (m.ffn_only, m.draft) for m in made] == mine
    # Nothing had to be asked for that the plan does not name, and nothing of it is for nobody.
    assert prepared.asked == []
    assert prepared.needed == prepared.planned
    if kinds is not None:
        assert len(prepared.needed) == kinds
