"""Families from outside, by entry point, and the built-in ones without any metadata."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mono_build.errors import ToolchainError, UsageError
from mono_build.families.registry import families, family
from mono_build.manifest import Selection, default_manifest, load_manifests, plan_for

BUILT_IN = ["deepseek_v41", "deepseek_v4", "kimi_k3", "minimax_m3"]
OUTSIDE = """
from mono_build.families.base import Deployment, Family, Field, LaunchSpec
from mono_runtime.launch_key import LaunchKey


class Muse(Family):
    name = "muse_spark"
    title = "Muse"
    source = "muse-kernels"
    packages = ("muse.kernels",)
    targets = {"gfx950": (8,)}
    launches = (
        LaunchSpec("k3", "All of it.", (Field("tokens", int, "Rows.", minimum=1, maximum=4),),
                   "muse.kernels:Key", "muse.kernels:build"),
    )
    deployment_fields = (Field("drafts", int, "Draft tokens.", default=1, minimum=0, maximum=3),)

    def widths(self, deployment):
        return deployment.rows or (1, 1 + deployment.integer("drafts"))

    def deployment_keys(self, deployment):
        return [self.key(deployment, "k3", rows, {}) for rows in self.widths(deployment)]


FAMILY = Muse()
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path, as site-packages is; `installed` puts distributions there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("muse_plugin", "muse_broken"):
        sys.modules.pop(name, None)


def installed(site: Path, module: str, code: str, entry: str, dist: str = "muse") -> None:
    (site / f"{module}.py").write_text(code)
    info = site / f"{dist}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[mono_build.families]\n{entry}\n")


def test_the_built_in_families_need_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda **_: importlib.metadata.EntryPoints()
    )
    assert list(families()) == BUILT_IN


def test_a_family_from_outside_is_planned_like_the_others(outside: Path) -> None:
    installed(outside, "muse_plugin", OUTSIDE, "muse_spark = muse_plugin:FAMILY")
    assert {*BUILT_IN, "muse_spark"} <= set(families())
    selection = Selection(archs=("gfx950",), tps=(8,), families=("muse_spark",))
    plan = plan_for(default_manifest("gfx950", "muse_spark"), selection)
    assert [str(k) for k in plan.keys] == [
        "muse_spark/k3 gfx950 tokens=1",
        "muse_spark/k3 gfx950 tokens=2",
    ]


def test_a_family_from_outside_has_its_manifest_checked(outside: Path, tmp_path: Path) -> None:
    installed(outside, "muse_plugin", OUTSIDE, "muse_spark = muse_plugin:FAMILY")
    path = tmp_path / "muse.yaml"
    path.write_text(
        "schema: 1\nbuilds:\n- family: muse_spark\n  arch: gfx950\n  deployment: {drafts: 4}\n"
    )
    with pytest.raises(UsageError, match=r":5:24: drafts 4 is too large \(nearest: 3\)"):
        load_manifests([str(path)])


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("raise RuntimeError('half installed')", "RuntimeError: half installed"),
        ("FAMILY = 3", "it is a int, not a mono_build Family"),
        ("", "AttributeError"),
        (OUTSIDE.replace('name = "muse_spark"', 'name = "musa"'), "calls itself 'musa'"),
        (OUTSIDE.replace('source = "muse-kernels"', ""), "it lacks source"),
    ],
)
def test_a_broken_entry_point_is_one_error_that_names_its_distribution(
    outside: Path, code: str, why: str
) -> None:
    installed(outside, "muse_broken", code, "muse_spark = muse_broken:FAMILY")
    with pytest.raises(ToolchainError) as caught:
        families()
    assert why in caught.value.what
    assert caught.value.where == "muse_spark = muse_broken:FAMILY of muse 1.2"


def test_two_distributions_may_not_share_a_family_name(outside: Path) -> None:
    installed(outside, "muse_plugin", OUTSIDE, "kimi_k3 = muse_plugin:FAMILY")
    with pytest.raises(ToolchainError, match="two distributions name the family 'kimi_k3'"):
        families()


def test_an_unknown_family_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        family("minimax_n3")
    assert caught.value.fix == "did you mean 'minimax_m3'?"


def test_an_unknown_family_that_is_near_to_none_gets_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        family("zzz")
    fix = caught.value.fix or ""
    assert fix.startswith("known: deepseek_v41, deepseek_v4, kimi_k3, minimax_m3")
