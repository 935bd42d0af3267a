"""What a compile process sees of the environment, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from mono_build.errors import UsageError
from mono_build.toolchain.device import device_arch, device_archs
from mono_build.toolchain.environment import (
    code_environment,
    environment_arch,
    environment_conflicts,
    ignored_variables,
    worker_environment,
)

TOOLKIT = Path("/t")


def test_a_worker_sees_only_what_it_was_given() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "ARCH": "gfx942",
        "ROCM_PATH": "/opt/other",
        "FLYDSL_RUNTIME_CACHE_DIR": "/cache",
        "FLYDSL_COMPILE_LLVM_DIR": "/llvm",
        "FLYDSL_COMPILE_OPT_LEVEL": "3",
        "PYTHONHASHSEED": "7",
        "LC_ALL": "de_DE",
        "VLLM_X": "1",
        "MONO_FAULT_KERNEL": "on",
    }
    assert worker_environment("gfx950", TOOLKIT, environ, ["MONO_FAULT_KERNEL"]) == {
        "ARCH": "gfx950",
        "COMPILE_ONLY": "1",
        "FLYDSL_COMPILE_OPT_LEVEL": "3",
        "FLYDSL_GPU_ARCH": "gfx950",
        "FLYDSL_RUNTIME_ENABLE_CACHE": "0",
        "HOME": "/t/home",
        "LANG": "C.UTF-8",
        "MKL_NUM_THREADS": "1",
        "MONO_FAULT_KERNEL": "on",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUSERBASE": "/home/me/.local",
        "ROCM_PATH": "/t",
    }


def test_code_environment_is_what_changes_code() -> None:
    environ = {"FLYDSL_COMPILE_OPT_LEVEL": "1", "FLYDSL_DUMP_IR": "1", "A": "x", "B": "", "C": "y"}
    assert code_environment(environ, ["A", "B"]) == {"FLYDSL_COMPILE_OPT_LEVEL": "1", "A": "x"}


def test_the_default_level_is_the_same_as_none() -> None:
    assert code_environment({"FLYDSL_COMPILE_OPT_LEVEL": "2"}, []) == {}


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="FLYDSL_COMPILE_OPT_LEVEL=O3"):
        code_environment({"FLYDSL_COMPILE_OPT_LEVEL": "O3"}, [])


@pytest.mark.parametrize(
    ("environ", "arch"),
    [
        ({}, None),
        ({"ARCH": ""}, None),
        ({"ARCH": "GFX950"}, "gfx950"),
        ({"FLYDSL_GPU_ARCH": "gfx942:sramecc+:xnack-"}, "gfx942"),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}, "gfx942"),
        ({"ARCH": "gfx950", "HSA_OVERRIDE_GFX_VERSION": "9.5.0"}, "gfx950"),
    ],
)
def test_an_architecture_is_read_from_the_environment(
    environ: dict[str, str], arch: str | None
) -> None:
    assert environment_arch(environ) == arch


def test_variables_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        environment_arch({"ARCH": "gfx950", "FLYDSL_GPU_ARCH": "gfx942"})
    assert "ARCH=gfx950, FLYDSL_GPU_ARCH=gfx942" in caught.value.what
    assert "--arch" in str(caught.value.fix)


@pytest.mark.parametrize("value", ["x86_64", "gfx9999", "11.0.0"])
def test_an_unknown_architecture_in_the_environment_is_refused(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        environment_arch({"ARCH": value})
    assert f"ARCH={value}" in caught.value.what
    assert "gfx942, gfx950" in str(caught.value.fix)


def test_an_explicit_architecture_wins_and_the_others_are_reported() -> None:
    environ = {"ARCH": "gfx942", "FLYDSL_GPU_ARCH": "GFX950", "HSA_OVERRIDE_GFX_VERSION": "9.4.2"}
    assert environment_conflicts("gfx950", environ) == [
        "ARCH=gfx942 in the environment is ignored: gfx950 was asked for",
        "HSA_OVERRIDE_GFX_VERSION=9.4.2 in the environment is ignored: gfx950 was asked for",
    ]
    assert environment_conflicts("gfx950:xnack-", {"ARCH": "gfx950"}) == []


def test_variables_without_effect_are_reported() -> None:
    environ = {
        "FLYDSL_COMPILE_OPT_LEVEL": "1",
        "FLYDSL_GPU_ARCH": "gfx950",
        "FLYDSL_DUMP_IR": "1",
        "FLYDSL_COMPILE_OPT_LVL": "3",
        "FLYDSL_Q": "1",
    }
    assert ignored_variables(environ) == [
        "FLYDSL_COMPILE_OPT_LVL is set and ignored: FlyDSL has no such variable; "
        "did you mean FLYDSL_COMPILE_OPT_LEVEL?",
        "FLYDSL_DUMP_IR is set and ignored: builds do not depend on it",
        "FLYDSL_Q is set and ignored: FlyDSL has no such variable",
    ]


def make_nodes(directory: Path, *versions: int) -> Path:
    for number, version in enumerate(versions):
        (directory / str(number)).mkdir(parents=True)
        text = f"cpu_cores_count 0\ngfx_target_version {version}\nvendor_id 4098\n"
        (directory / str(number) / "properties").write_text(text)
    return directory


def test_gpus_are_read_from_the_driver(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path / "n", 0, 90500, 90500)
    assert device_arch({"PATH": ""}, topology=nodes) == "gfx950"
    nodes = make_nodes(tmp_path / "m", 0, 90402, 90010)
    assert device_archs({"PATH": ""}, topology=nodes) == ("gfx90a", "gfx942")
    with pytest.raises(UsageError, match="gfx90a, gfx942"):
        device_arch({"PATH": ""}, topology=nodes)


def test_gpus_are_asked_of_rocm_when_the_driver_is_silent(tmp_path: Path) -> None:
    program = tmp_path / "rocm_agent_enumerator"
    program.write_text("#!/bin/sh\necho gfx000\necho gfx942\necho gfx942\n")
    program.chmod(0o755)
    assert device_arch({"PATH": str(tmp_path)}, topology=tmp_path / "none") == "gfx942"


def test_no_gpu_is_no_architecture(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path, 0)
    assert device_arch({"PATH": str(tmp_path)}, topology=nodes) is None
