"""Releases of vLLM that the hooks fit, and who runs DeepSeek-V4.1's layers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.families.registry import BUILT_IN
from mono_runtime.hooks.runner_choice import missing_modules, v41_runner, wanted_runner
from mono_runtime.hooks.versions import SUPPORTED, engine_version, version_refusal


@pytest.mark.parametrize(
    "version", ["0.33.0", "0.33.2", "0.33.0+rocm700", "0.33.1rc1", "0.33.1.dev3+gabc", "v0.33.0"]
)
def test_patch_releases_and_local_parts_fit(version: str) -> None:
    assert [version_refusal(family, version) for family in BUILT_IN] == [None] * 4


@pytest.mark.parametrize("version", ["0.32.9", "0.34.0", "0.330.0", "1.33.0", "0.3", "unknown", ""])
def test_other_releases_do_not(version: str) -> None:
    assert version_refusal("kimi_k3", version) == (
        f"this release of mono_runtime knows kimi_k3 in vLLM 0.33.*, and this is vLLM {version}"
    )


def test_every_family_says_which_releases_it_knows() -> None:
    assert set(SUPPORTED) == set(BUILT_IN)


def test_the_version_is_that_of_the_engine_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.33.7"))
    assert engine_version() == "0.33.7"


def test_the_version_of_an_engine_that_is_not_loaded_is_that_of_its_distribution(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    assert engine_version() == "unknown"
    (tmp_path / "vllm-0.33.5.dist-info").mkdir()
    (tmp_path / "vllm-0.33.5.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 0.33.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert engine_version() == "0.33.5"


@pytest.mark.parametrize(("value", "chosen"), [("vllm", "vllm"), ("own", "own"), (" own ", "own")])
def test_a_runner_that_is_named_is_taken(value: str, chosen: str) -> None:
    assert v41_runner({"MONO_V41_RUNNER": value}) == chosen


def test_other_values_are_refused() -> None:
    assert wanted_runner({}) == wanted_runner({"MONO_V41_RUNNER": ""}) == "auto"
    with pytest.raises(InvalidValue, match="MONO_V41_RUNNER is 'flydsl'"):
        v41_runner({"MONO_V41_RUNNER": "flydsl"})


def _helpers(path: Path, *names: str) -> None:
    """Packages ``flydsl`` and ``aiter`` with these modules, none of which may be imported."""
    for name in ("flydsl/__init__", "aiter/__init__", *names):
        file = path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise RuntimeError('imported')\n")


HELPERS = (
    "aiter/ops/__init__",
    "aiter/ops/flydsl/__init__",
    "aiter/ops/flydsl/kernels/__init__",
    "aiter/ops/flydsl/kernels/buffer_ops",
    "aiter/ops/flydsl/kernels/dpp_utils",
    "aiter/ops/flydsl/kernels/kernels_common",
    "aiter/ops/flydsl/quick_allreduce_int4_ipc",
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An import path with nothing on it."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("flydsl", "aiter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not _editable(f)])
    return tmp_path


def _editable(finder: object) -> bool:
    return "editable" in (getattr(finder, "__module__", None) or "")


def test_auto_takes_vllms_runner_where_it_could_run_and_imports_nothing(site: Path) -> None:
    _helpers(site, *HELPERS)
    assert v41_runner({}) == "vllm"
    assert not {"flydsl", "aiter"} & set(sys.modules)


@pytest.mark.parametrize("absent", [*HELPERS[3:], "flydsl/__init__"])
def test_auto_takes_our_own_where_a_module_is_missing(site: Path, absent: str) -> None:
    _helpers(site, *HELPERS)
    (site / f"{absent}.py").unlink()
    if absent == "flydsl/__init__":
        (site / "flydsl").rmdir()
    assert v41_runner({}) == "own"
    assert missing_modules() == (absent.replace("/__init__", "").replace("/", "."),)


def test_auto_takes_our_own_without_any_of_them(site: Path) -> None:
    assert v41_runner({}) == "own"
    assert len(missing_modules()) == 5
