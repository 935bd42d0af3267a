"""What the command line makes of a manifest: narrowing, overriding, and refusing with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from mono_build.errors import UsageError
from mono_build.manifest import (
    BuildPlan,
    Selection,
    default_manifest,
    load_manifests,
    manifest_for,
    plan_for,
)
from mono_runtime.errors import InvalidValue, MonoError
from mono_runtime.launch_key import LaunchKey


def planned(*names: str, **restrictions: tuple[object, ...]) -> BuildPlan:
    selection = Selection(**restrictions)  # type: ignore[arg-type]
    return plan_for(manifest_for(names, selection), selection)


def facts(plan: BuildPlan, *names: str) -> set[tuple[object, ...]]:
    return {tuple(k.values[n] for n in names) for k in plan.keys}


def refused(*names: str, **restrictions: tuple[object, ...]) -> MonoError:
    with pytest.raises(MonoError) as caught:
        planned(*names, **restrictions)
    assert caught.value.exit_code == 2
    return caught.value


def test_without_a_manifest_v41_is_built() -> None:
    plan = planned(archs=("gfx950",), tps=(4,))
    assert len(plan) == 84
    assert {k.family for k in plan.keys} == {"deepseek_v41"}


@pytest.mark.parametrize(
    ("family", "arch", "count"),
    [
        ("deepseek_v41", "gfx942", 66),
        ("deepseek_v4", "gfx950", 80),
        ("kimi_k3", "gfx950", 30),
        ("minimax_m3", "gfx950", 16),
    ],
)
def test_without_a_manifest_a_family_has_its_standard_deployment(
    family: str, arch: str, count: int
) -> None:
    assert len(planned(archs=(arch,), families=(family,))) == count


def test_several_architectures_and_families_add_up() -> None:
    assert len(planned(archs=("gfx950", "gfx942"))) == 84 + 66
    assert len(planned(archs=("gfx950",), families=("kimi_k3", "minimax_m3"))) == 30 + 16


def test_architectures_are_normalised() -> None:
    assert planned(archs=("GFX942:sramecc+:xnack-",)) == planned(archs=("gfx942",))


def test_a_listed_architecture_narrows_and_another_replaces(tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(
        "schema: 1\nbuilds:\n- {family: deepseek_v41, arch: [gfx950, gfx942], tp: 4, rows: 6}\n"
    )
    assert {k.arch for k in planned(str(both), archs=("gfx942",)).keys} == {"gfx942"}
    other = planned("quick", archs=("gfx942",))
    assert {(k.arch, k.values["tokens"]) for k in other.keys} == {("gfx942", 6)}
    assert len(other) == 11


def test_tp_and_rows_that_are_not_listed_replace() -> None:
    assert facts(planned("quick", tps=(2,)), "tp", "tokens") == {(2, 6)}
    assert facts(planned("quick", rows=(12, 13)), "tp", "tokens") == {(4, 12), (4, 13)}


def test_listed_rows_narrow() -> None:
    plan = planned("deepseek_v41-gfx950-dspark", rows=(5, 6))
    # Five rows are a draft step and six a target step; neither is built at the other's width.
    assert facts(plan, "tokens", "experts") == {(5, 128), (6, 384)}
    assert len(plan) == 4 + 12


def test_launches_narrow() -> None:
    assert {k.launch for k in planned("quick", launches=("k2",)).keys} == {"k2"}


def test_a_manifest_without_architecture_takes_it_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    path.write_text("schema: 1\nbuilds:\n- family: deepseek_v41\n  rows: 6\n")
    plan = planned(str(path), archs=("gfx950",))
    assert facts(plan, "tp") == {(2,), (4,)}
    assert refused(str(path)).what == "no architecture was given"


def test_no_architecture_lists_those_that_are_known() -> None:
    error = refused()
    assert error.what == "no architecture was given"
    assert error.fix == "name one with --arch (gfx942, gfx950), or a manifest that has one"


@pytest.mark.parametrize(
    ("restrictions", "reason"),
    [
        ({"archs": ("gfx942",), "tps": (2,)}, "built for TP 4 only, not 2: vLLM prepares"),
        ({"archs": ("gfx950",), "tps": (8,)}, "TP 2 and 4 only, not 8"),
        ({"archs": ("gfx942",), "families": ("kimi_k3",)}, "K2 aborts LLVM"),
        ({"archs": ("gfx942",), "families": ("deepseek_v4",)}, "CDNA4's MX"),
        ({"archs": ("gfx942",), "families": ("minimax_m3",)}, "v_cvt_scalef32"),
        ({"archs": ("gfx942",), "rows": (48,)}, "too large for gfx942 (nearest: 42)"),
        ({"archs": ("gfx950",), "rows": (0,)}, "too small (nearest: 1)"),
        ({"archs": ("gfx950",), "families": ("kimi_k3",), "rows": (4,)}, "multiple of qlen 8"),
        ({"archs": ("gfx950",), "families": ("kimi",)}, "unknown family 'kimi'"),
        ({"archs": ("gfx950",), "launches": ("k3",)}, "unknown launch 'k3'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(
    restrictions: dict[str, tuple[object, ...]], reason: str
) -> None:
    assert reason in refused(**restrictions).what


def test_a_ready_manifest_may_not_be_moved_where_its_family_cannot_go() -> None:
    assert "K2 aborts LLVM" in refused("kimi_k3-gfx950", archs=("gfx942",)).what


@pytest.mark.parametrize("arch", ["gfx9999", "x86_64", ""])
def test_unknown_architectures_are_refused(arch: str) -> None:
    with pytest.raises(InvalidValue, match="unknown architecture"):
        planned(archs=(arch,))


def test_an_empty_plan_names_the_restriction_that_emptied_it() -> None:
    launch = refused(archs=("gfx950",), launches=("ffn",))
    assert launch.what == "the plan is empty: --launch ffn leaves nothing: the launches are k1, k2"
    family = refused("quick", families=("kimi_k3",))
    assert family.what == "the plan is empty: --family kimi_k3 leaves nothing of the manifest"


def test_two_restrictions_that_contradict_each_other_name_the_second() -> None:
    error = refused("deepseek_v41-gfx950-dspark", rows=(5,), tps=(4,), launches=("ffn",))
    assert "--launch ffn leaves nothing" in error.what


VARIANTS = """\
schema: 1
builds:
- family: deepseek_v41
  arch: gfx950
  tp: 4
  rows: [6, 12]
  variants:
  - {launch: [k1, k2], ratio: [1, 2], fold: true, index: [true, false]}
  - {launch: k1, experts: 128}
  include:
  - {launch: k1}
  - {launch: k2, rows: 12}
  exclude:
  - {ratio: 1, index: true}
"""


def test_variants_includes_and_excludes_choose_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(VARIANTS)
    plan = plan_for(load_manifests([str(path)]), Selection())
    found = {
        (k.launch, *(k.values[n] for n in ("tokens", "experts", "ratio", "index")))
        for k in plan.keys
    }
    plain = [(1, False), (2, True), (2, False)]
    assert found == {
        *(("k1", rows, 384, *routing) for rows in (6, 12) for routing in plain),
        *(("k2", 12, 384, *routing) for routing in plain),
        ("k1", 6, 128, 0, False),
        ("k1", 12, 128, 0, False),
    }


ANCHORS = """\
schema: 1
builds:
- &base
  family: deepseek_v41
  arch: gfx950
  tp: &sizes [2, 4]
  rows: [6]
- <<: *base
  rows: [12]
- {family: deepseek_v41, arch: gfx950, tp: *sizes, rows: 18}
---
schema: 1
builds: [{family: minimax_m3, arch: GFX950, rows: 1}]
"""


def test_anchors_merges_and_several_documents(tmp_path: Path) -> None:
    path = tmp_path / "anchors.yaml"
    path.write_text(ANCHORS)
    plan = plan_for(load_manifests([str(path)]), Selection(families=("deepseek_v41",)))
    assert facts(plan, "tp", "tokens") == {(tp, rows) for tp in (2, 4) for rows in (6, 12, 18)}
    assert len(plan_for(load_manifests([str(path)]), Selection())) == 72 + 1


def test_numbers_with_exponents_may_be_written_without_a_point(tmp_path: Path) -> None:
    path = tmp_path / "k3.yaml"
    path.write_text(
        "schema: 1\nbuilds:\n- family: kimi_k3\n  arch: gfx950\n"
        "  deployment: {rms_norm_eps: 1e-6, gate_lower_bound: -4}\n"
    )
    plan = plan_for(load_manifests([str(path)]), Selection(launches=("k1",)))
    assert facts(plan, "eps", "lower_bound") == {(1e-6, -4.0)}


def test_a_plan_has_each_key_once_in_a_fixed_order() -> None:
    plan = planned("minimax_m3-gfx950", "quick", "deepseek_v41-gfx950")
    again = planned("deepseek_v41-gfx950", "minimax_m3-gfx950")
    assert plan == again
    assert len(set(plan.keys)) == len(plan.keys)
    head = plan.keys[0]
    assert (head.family, head.launch, head.arch) == ("deepseek_v41", "k1", "gfx950")
    assert [k.values["tokens"] for k in plan.keys if k.family == "minimax_m3"] == [*range(1, 17)]


def test_a_plan_can_be_narrowed_and_counted() -> None:
    plan = planned("deepseek_v41-gfx950").narrowed(Selection(rows=(6,), launches=("k1",)))
    assert [(c.launch, c.keys) for c in plan.counts()] == [("k1", 6)]
    assert plan.to_json()["counts"] == [
        {"family": "deepseek_v41", "arch": "gfx950", "launch": "k1", "keys": 6}
    ]
    assert len(plan.narrowed(Selection(tps=(2,)))) == 0


def test_a_key_without_tp_serves_every_size() -> None:
    key = LaunchKey.of("kimi_k3", "k2", "gfx950", {"tokens": 8})
    assert Selection(tps=(8,)).accepts(key)
    assert not Selection(rows=(4,)).accepts(key)


def test_a_default_manifest_is_refused_for_an_unknown_family() -> None:
    with pytest.raises(UsageError, match="unknown family 'glm'"):
        default_manifest("gfx950", "glm")
