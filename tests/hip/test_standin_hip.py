"""The stand-in library itself: with each compiler, in other processes, and under FlyDSL's own executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import standin_hip
from code_objects import Kernel, code_object
from standin_hip import FakeDevice, Record, StandIn

from mono_runtime.hip.driver import open_hip

_LAUNCH = """
import sys
from mono_runtime.errors import MonoError
from mono_runtime.hip.driver import open_hip
from code_objects import Kernel, code_object

driver = open_hip()
code = code_object({"k": Kernel(((0, 4),), 8)}, "gfx950")
try:
    function = driver.function(driver.load_module(0, code), "k")
    submit = driver.prepare(0, function, (3, 1, 1), (64, 1, 1), 0, bytearray(b"kernargs"))
    for _ in range(int(sys.argv[1])):
        submit(0)
except MonoError as error:
    print(error.what)
print(driver.library.path)
"""


def _child(count: int, env: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", _LAUNCH, str(count)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_child_is_set_up_and_read_by_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "launches"
    env = standin_hip.environment(FakeDevice("gfx950"), record_file=file, major=6)
    assert _child(2, env) == [str(standin_hip.library(6))]
    record = Record(0, "k", (3, 1, 1), (64, 1, 1), 0, 0, b"kernargs", False)
    assert standin_hip.records_of(file) == [record, record]


def test_a_child_fails_on_command(tmp_path: Path) -> None:
    file = tmp_path / "launches"
    env = standin_hip.environment(
        FakeDevice("gfx950"), record_file=file, fail={"hipModuleLaunchKernel": "719@1"}
    )
    assert _child(3, env)[0].startswith("hipModuleLaunchKernel failed on device 0")
    assert len(standin_hip.records_of(file)) == 1


def test_recording_can_be_off(hip: StandIn) -> None:
    hip.reset(record=False)
    driver = open_hip()
    function = driver.function(driver.load_module(0, code_object({"k": Kernel()})), "k")
    driver.prepare(0, function, (1, 1, 1), (64, 1, 1), 0, bytearray())(0)
    assert (hip.launched(), hip.launches()) == (1, [])


def test_made_up_images_load_on_request(hip: StandIn) -> None:
    hip.reset(any_image=True)
    driver = open_hip()
    function = driver.function(driver.load_module(0, b"\x7fELF" + b"\x07" * 300), "whatever")
    driver.prepare(0, function, (1, 1, 1), (64, 1, 1), 0, bytearray(b"\x01" * 12))(0)
    assert [(r.symbol, r.kernargs) for r in hip.launches()] == [("whatever", b"\x01" * 12)]


def test_the_newest_launches_are_kept(hip: StandIn) -> None:
    hip.reset(any_stream=True)
    driver = open_hip()
    function = driver.function(driver.load_module(0, code_object({"k": Kernel()})), "k")
    submit = driver.prepare(0, function, (1, 1, 1), (64, 1, 1), 0, bytearray())
    for stream in range(1030):
        submit(stream)
    assert hip.launched() == 1030
    assert [record.stream for record in hip.launches()] == list(range(6, 1030))


@pytest.mark.parametrize("compiler", standin_hip.compilers(), ids=lambda c: " ".join(c[-2:]))
@pytest.mark.slow
def test_each_compiler_makes_it(
    compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standin_hip, "compilers", lambda: [compiler])
    path = tmp_path / "libamdhip64.so.7"
    standin_hip._compile(path, 7, ())
    # In a process of its own: a second copy in this one would keep the runtime from choosing.
    code = (
        "import ctypes, sys; version = ctypes.c_int();"
        "print(ctypes.CDLL(sys.argv[1]).hipRuntimeGetVersion(ctypes.byref(version)), version.value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "70051831"]


@pytest.mark.slow
def test_processes_may_build_it_at_the_same_time(tmp_path: Path) -> None:
    code = "import standin_hip; print(standin_hip.library())"
    env = {**standin_hip.environment(), "TMPDIR": str(tmp_path)}
    children = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = {child.communicate()[0].strip() for child in children}
    assert len(found) == 1
    path = Path(found.pop())
    assert path.is_file()
    assert [entry.name for entry in path.parent.parent.iterdir()] == [path.parent.name]


@pytest.mark.flydsl
def test_flydsls_own_runtime_is_content_with_it() -> None:
    code = """
import ctypes, os, pathlib, importlib.util, standin_hip
standin_hip.load()
root = pathlib.Path(importlib.util.find_spec("flydsl").origin).parent
runtime = next(root.rglob("libfly_jit_runtime.so"))
ctypes.CDLL(str(runtime), mode=os.RTLD_NOW)
print(len({line.split()[5] for line in open("/proc/self/maps") if "libamdhip64" in line}))
"""
    command = [sys.executable, "-c", code]
    env = standin_hip.environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
