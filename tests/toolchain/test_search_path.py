"""Where packages are looked for does not depend on how the process was started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
# What is found of four packages, and whether the decoys' directory is on the path.
PROBE = """
import json, os, sys
from mono_build.errors import ToolchainError
from mono_build.sources import find_helpers, resolve_kernels
from mono_build.toolchain.packages import package_directory, search_path
try:
    kernels = str(resolve_kernels("installed", {}).root)
except ToolchainError as error:
    kernels = error.what
print(json.dumps({
    "kernels": kernels,
    "helpers": str(find_helpers().root),
    "flydsl": str(package_directory("flydsl")),
    "torch": str(package_directory("torch")),
    "path": [os.path.abspath(entry) for entry in search_path()],
    "whole": len(sys.path) - len(search_path()),
}))
"""
AITER = {
    "buffer_ops.py": "buffer_load = buffer_store = create_buffer_resource_from_addr = None\n",
    "dpp_utils.py": "update_dpp_i32 = None\n",
    "kernels_common.py": "kernel_signature = None\n",
}


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A directory with packages named as those that a build looks for, and the probe as a module."""
    root = tmp_path / "decoys"
    for name in ("vllm/models", "aiter/ops/flydsl/kernels", "flydsl", "torch"):
        (root / name).mkdir(parents=True)
        (root / name.split("/")[0] / "__init__.py").write_text("raise SystemExit('imported')\n")
    for name, text in AITER.items():
        (root / "aiter/ops/flydsl/kernels" / name).write_text(text)
    (root / "probe_module.py").write_text(PROBE)
    (root / "probe_package").mkdir()
    (root / "probe_package" / "__main__.py").write_text(PROBE)
    return root


@pytest.fixture
def needed(tmp_path: Path) -> Path:
    """An import path with what this project needs and none of the packages that it looks for."""
    root = tmp_path / "needed"
    root.mkdir()
    for name in ("packaging", "filelock"):
        location = find_spec(name)
        assert location is not None
        (root / name).symlink_to(Path(str(location.origin)).parent)
    return root


def probe(path: list[Path], *arguments: str, cwd: Path, **variables: str) -> Any:
    environ = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        # Without site-packages, where the packages may be installed.
        [sys.executable, "-S", *arguments],
        env={**environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, REPOSITORY]))},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "arguments", [("-m", "probe_module"), ("-m", "probe_package"), ("-c", PROBE)]
)
def test_the_current_directory_is_no_installation(
    decoys: Path, needed: Path, arguments: tuple[str, ...]
) -> None:
    found = probe([needed], *arguments, cwd=decoys)
    assert found["kernels"] == "vllm is not installed for this Python"
    assert found["helpers"] == str(REPOSITORY / "mono_build" / "standins")
    assert (found["flydsl"], found["torch"]) == ("None", "None")
    assert str(decoys) not in found["path"]
    assert found["whole"] == 1


@pytest.mark.parametrize("script", ["probe_module.py", "probe_package", "link"])
def test_the_directory_of_a_script_is_no_installation(
    decoys: Path, needed: Path, tmp_path: Path, script: str
) -> None:
    (decoys / "link").symlink_to("probe_module.py")
    found = probe([needed], str(decoys / script), cwd=tmp_path)
    assert found["kernels"] == "vllm is not installed for this Python"
    assert found["whole"] == 1
    assert str(decoys / script) not in found["path"]


@pytest.mark.parametrize("variables", [{}, {"PYTHONSAFEPATH": "1"}])
@pytest.mark.parametrize("arguments", [("-c", PROBE), ("-m", "probe_module")])
def test_a_directory_that_pythonpath_names_counts_however_the_process_was_started(
    decoys: Path, needed: Path, variables: dict[str, str], arguments: tuple[str, ...]
) -> None:
    found = probe([decoys, needed], *arguments, cwd=decoys, **variables)
    assert found["kernels"] == str(decoys)
    assert found["helpers"] == str(decoys)
    assert found["flydsl"] == str(decoys / "flydsl")
    assert found["torch"] == str(decoys / "torch")


def test_a_current_directory_that_is_gone_is_no_obstacle(needed: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        f"import json, os\nos.rmdir({str(gone)!r})\nfrom mono_build.sources import find_helpers\n"
        "print(json.dumps(find_helpers().provider))\n"
    )
    assert probe([needed], "-c", script, cwd=gone) == "mono-build"
