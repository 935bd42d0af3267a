"""The real library, where one is installed or unpacked (``ci/hip_library``), on a machine without a device."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import standin_hip

_CODE = """
import sys
from mono_runtime.errors import DeviceMissing
from mono_runtime.hip.driver import open_hip

driver = open_hip(sys.argv[1])
print(driver.name)
for call in (driver.device_count, lambda: driver.device(0), driver.current_device):
    try:
        print(call())
    except DeviceMissing as error:
        print(error.what)
        print(error.fix)
driver.check_still_single()
"""


def _real_library() -> tuple[Path, dict[str, str]] | None:
    """A real library and the variables that a process needs to load it."""
    directory = os.environ.get("MONO_TEST_HIP_DIR")
    if directory:
        found = sorted(Path(directory).absolute().rglob("libamdhip64.so.[0-9]*"))
        if not found:
            raise FileNotFoundError(f"MONO_TEST_HIP_DIR={directory} has no libamdhip64.so")
        return found[0], {"LD_LIBRARY_PATH": str(found[0].parent)}
    name = ctypes.util.find_library("amdhip64")
    places = [Path("/opt/rocm/lib"), *Path("/usr/lib").glob("*-linux-gnu")]
    for place in places if name else ():
        if (place / name).exists():
            return place / name, {}
    return None


def test_without_a_device_the_real_library_says_so_in_its_own_words() -> None:
    real = _real_library()
    if real is None:
        pytest.skip(
            "no HIP library is installed, and MONO_TEST_HIP_DIR is not set (ci/hip_library)"
        )
    if Path("/dev/kfd").exists():
        pytest.skip("this machine may have a device")
    path, variables = real
    done = subprocess.run(
        [sys.executable, "-c", _CODE, str(path)],
        env={**standin_hip.environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, count, count_fix, device, _, current, _ = done.stdout.splitlines()
    assert re.fullmatch(rf"HIP [5-9]\.\d+ \({re.escape(str(path))}\)", name)
    # HIP 5 explains an error by its name, later versions with a sentence.
    assert re.fullmatch(
        r"hipGetDeviceCount failed: hipErrorNoDevice \(100\): "
        r"(hipErrorNoDevice|no ROCm-capable device is detected)",
        count,
    )
    assert count_fix.startswith("/dev/kfd is absent: ")
    assert device == count
    assert current.startswith("hipGetDevice failed: hipError")
