"""An engine's own key object as a launch key: all of it is understood, or what is not is named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from mono_runtime.errors import InvalidValue, LaunchMissing
from mono_runtime.families.registry import BUILT_IN, family_keys
from mono_runtime.launch_key import LaunchKey


class Experts(Enum):
    ALL = "all"
    ROUTED = "routed"


@dataclass(frozen=True)
class FfnBuild:
    tokens: Any
    tp: int = 4
    experts: Any = Experts.ALL
    timeline: Any = False
    drop_mark: int = -1
    wait_ticks: int = 1_000_000_000


@dataclass(frozen=True)
class NewerBuild(FfnBuild):
    fp8_reduce: bool = True
    ring: object = None


@dataclass(frozen=True)
class OlderBuild:
    tokens: int
    tp: int = 4
    experts: Experts = Experts.ALL
    timeline: bool = False


@dataclass(frozen=True)
class K2Build:
    tokens: int
    nblocks: int
    eps: float = 1e-5
    out_eps: float = 1e-5
    ln_eps: float = 1e-5
    reduce: bool = True
    reset: bool = False
    fault_rank: int = -1
    fault_epoch: int = 0
    fault_layer: int = 0
    fault_ticks: int = 0


def of(build: object, launch: str = "ffn", family: str = "minimax_m3") -> LaunchKey:
    return family_keys(family).key_of(launch, "gfx950", build)


def test_members_of_enumerations_become_their_values() -> None:
    assert of(FfnBuild(6, experts=Experts.ROUTED)) == LaunchKey.of(
        "minimax_m3",
        "ffn",
        "gfx950",
        {
            "tokens": 6,
            "tp": 4,
            "experts": "routed",
            "timeline": False,
            "drop_mark": -1,
            "wait_ticks": 1_000_000_000,
        },
    )


def test_a_whole_number_of_a_float_field_is_the_float_that_a_plan_has() -> None:
    key = of(K2Build(8, 4, eps=1), "k2", "kimi_k3")
    assert repr(key.values["eps"]) == "1.0"


def refused(build: object, launch: str = "ffn", family: str = "minimax_m3") -> LaunchMissing:
    with pytest.raises(LaunchMissing) as caught:
        of(build, launch, family)
    return caught.value


def test_fields_that_nobody_described_are_a_named_miss() -> None:
    error = refused(NewerBuild(6))
    assert "fp8_reduce (= True) is not known here" in error.what
    assert "ring (= None) is not known here" in error.what
    assert error.where == "test_engine_keys.NewerBuild"
    assert error.reason == "build"
    assert error.miss is not None
    assert error.miss.key.values["fp8_reduce"] is True


def test_fields_that_are_gone_are_a_named_miss() -> None:
    error = refused(OlderBuild(6))
    assert "drop_mark is not among its fields" in error.what
    assert "wait_ticks is not among its fields" in error.what


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (FfnBuild(True), "tokens must be an integer, not true"),
        (FfnBuild("6"), "tokens must be an integer, not '6'"),
        (FfnBuild(6, timeline=0), "timeline must be true or false, not 0"),
        (FfnBuild(6, experts=3), "experts must be text, not 3"),
        (FfnBuild(6, experts=None), "experts must be text, not nothing"),
        (FfnBuild(6, experts=["all"]), "experts must be text, not ['all']"),
    ],
)
def test_values_of_another_type_are_a_named_miss(build: Any, why: str) -> None:
    assert why in refused(build).what


@pytest.mark.parametrize("build", [{"tokens": 6}, 6, FfnBuild, None])
def test_what_is_no_key_object_is_a_named_miss(build: object) -> None:
    assert "tokens is not among its fields" in refused(build).what


def test_a_launch_that_the_family_does_not_have_is_a_named_miss() -> None:
    assert "minimax_m3 has no launch k9" in refused(FfnBuild(6), "k9").what


def test_an_unknown_family_gets_the_nearest_name() -> None:
    with pytest.raises(InvalidValue) as caught:
        family_keys("deepseek_v40")
    assert caught.value.fix == "did you mean 'deepseek_v4'?"
    assert [family_keys(n).name for n in BUILT_IN] == list(BUILT_IN)
