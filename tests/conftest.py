"""Shared fixtures: the plug-in family and the stand-in HIP, and directories that are never the user's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "plugin"
STANDIN_HIP = Path(__file__).parent / "hip"
sys.path[:0] = [str(PLUGIN), str(STANDIN_HIP)]


@pytest.fixture(autouse=True)
def _own_directories(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads or writes the user's cache, store or architecture settings."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "XDG_CACHE_HOME",
        "MONO_STORE",
        "MONO_STORE_DIGEST",
        "MONO_POLICY",
        "MONO_CHECK",
        "MONO_HIP_LIBRARY",
        "MONO_CONFIG_FILE",
        "MONO_V41_RUNNER",
        "MONO_WAIT_SECONDS",
        "HSA_CU_MASK",
        "ROC_GLOBAL_CU_MASK",
        "ARCH",
        "FLYDSL_GPU_ARCH",
        "HSA_OVERRIDE_GFX_VERSION",
    ):
        monkeypatch.delenv(name, raising=False)
