"""The ready manifests: what each of them plans."""

from __future__ import annotations

import pytest

from mono_build.manifest import Selection, load_manifests, plan_for, ready_manifests
from mono_build.plan import Count, Pins

EVERYTHING = Selection()

COUNTS = {
    "deepseek_v41-gfx950": 84,
    "deepseek_v41-gfx950-dspark": 112,
    "deepseek_v41-gfx942": 66,
    "deepseek_v41-gfx942-dspark": 72,
    "deepseek_v4-gfx950": 80,
    "kimi_k3-gfx950": 30,
    "minimax_m3-gfx950": 16,
    "quick": 12,
}


def test_there_is_one_for_each_family_and_architecture() -> None:
    assert set(ready_manifests()) == set(COUNTS)


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_a_ready_manifest_plans_its_figure(name: str, count: int) -> None:
    assert len(plan_for(load_manifests([name]), EVERYTHING)) == count


def test_counts_by_launch() -> None:
    plan = plan_for(load_manifests(["deepseek_v41-gfx942-dspark"]), EVERYTHING)
    assert plan.counts() == (
        Count("deepseek_v41", "gfx942", "ffn", 6),
        Count("deepseek_v41", "gfx942", "k1", 36),
        Count("deepseek_v41", "gfx942", "k2", 24),
        Count("deepseek_v41", "gfx942", "keylist", 6),
    )


def test_both_tp_sizes_are_twice_as_many() -> None:
    manifest = load_manifests(["deepseek_v41-gfx950"])
    assert len(plan_for(manifest, Selection(tps=(2,)))) == 84
    assert len(plan_for(manifest, Selection(tps=(2, 4)))) == 168


def test_the_quick_manifest_is_one_width_of_v41() -> None:
    plan = plan_for(load_manifests(["quick"]), EVERYTHING)
    assert {(k.family, k.arch, k.values["tokens"], k.values["tp"]) for k in plan.keys} == {
        ("deepseek_v41", "gfx950", 6, 4)
    }


def test_several_manifests_merge_into_one_plan_without_repeats() -> None:
    names = ["quick", "deepseek_v41-gfx950", "kimi_k3-gfx950", "quick"]
    assert len(plan_for(load_manifests(names), EVERYTHING)) == 84 + 30


def test_ready_manifests_pin_the_flydsl_that_builds_them() -> None:
    assert load_manifests(["minimax_m3-gfx950"]).pins == Pins(flydsl=">=0.4.2,<0.6")
