"""Which copy of the library is used. Each case is a process of its own: a library is never unloaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import standin_hip

from mono_runtime.hip.library import Copy, mapped_copies

_START = """
import ctypes, os, sys, types
from pathlib import Path
from mono_runtime.errors import DriverMissing
from mono_runtime.hip import library
from mono_runtime.hip.driver import HipDriver, open_hip

library.SONAMES = tuple(f"{name}{SUFFIX}" for name in library.SONAMES)

def mapped():
    return sorted({line.split()[5] for line in open("/proc/self/maps") if "libamdhip64" in line})

def torch_in(directory, hip="7.0"):
    torch = types.ModuleType("torch")
    torch.__file__ = str(Path(directory) / "__init__.py")
    torch.version = types.SimpleNamespace(hip=hip)
    sys.modules["torch"] = torch

def show(driver):
    try:
        driver.device_count()
        print(driver.library.path)
    except DriverMissing as error:
        print(error)
"""


def run(code: str, *args: object, suffix: str = "", **variables: object) -> list[str]:
    """The lines that a child prints; without ``suffix`` the loader may find a library of its own."""
    env = standin_hip.environment()
    for name in ("MONO_HIP_LIBRARY", "ROCM_PATH", "LD_LIBRARY_PATH"):
        env.pop(name, None)
    env.update({name: str(value) for name, value in variables.items()})
    source = _START.replace("SUFFIX", repr(suffix)) + code
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, args)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# A name that no machine has, for cases in which an installed ROCm must not be found.
ABSENT = ".absent"


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of the same library in different directories."""
    found = []
    for name in ("first", "second"):
        path = tmp_path / name / "lib" / "libamdhip64.so.7"
        path.parent.mkdir(parents=True)
        shutil.copy(standin_hip.library(), path)
        found.append(path)
    return found[0], found[1]


def test_nothing_is_loaded_before_the_first_call() -> None:
    assert run("driver = open_hip(); print(mapped())", suffix=ABSENT) == ["[]"]


def test_without_a_library_the_error_tells_where_it_was_looked_for(tmp_path: Path) -> None:
    what, where, fix = run("show(open_hip())", suffix=ABSENT, ROCM_PATH=tmp_path)
    assert what == "there is no HIP library that loads"
    assert where.startswith("  where: libamdhip64.so.7.absent: cannot open shared object file")
    for name in (
        "libamdhip64.so.6.absent",
        f"{tmp_path}/lib/libamdhip64.so.7.absent",
        "/opt/rocm/",
    ):
        assert name in where
    assert "MONO_HIP_LIBRARY=/path/to/libamdhip64.so.7" in fix


def test_the_loader_is_asked_and_prefers_version_7(copies: tuple[Path, Path]) -> None:
    shutil.copy(standin_hip.library(6), copies[0].with_name("libamdhip64.so.6"))
    assert run("show(open_hip())", LD_LIBRARY_PATH=copies[0].parent) == [str(copies[0])]


def test_version_6_is_found_where_there_is_no_7(tmp_path: Path) -> None:
    path = Path(shutil.copy(standin_hip.library(6), tmp_path / "libamdhip64.so.6"))
    code = "driver = open_hip(); print(driver.name, driver.device(0).compute_units)"
    assert run(code, LD_LIBRARY_PATH=tmp_path) == [f"HIP 6.0 ({path}) 304"]


def test_rocm_path_is_looked_into(copies: tuple[Path, Path]) -> None:
    path = copies[0].rename(copies[0].with_name("libamdhip64.so.7.absent"))
    rocm = copies[0].parent.parent
    assert run("show(open_hip())", suffix=ABSENT, ROCM_PATH=rocm) == [str(path)]


def test_the_variable_chooses_and_an_argument_beats_it(copies: tuple[Path, Path]) -> None:
    first, second = copies
    assert run("show(open_hip())", MONO_HIP_LIBRARY=first) == [str(first)]
    assert run("show(open_hip(sys.argv[1]))", second, MONO_HIP_LIBRARY=first) == [str(second)]


def test_a_relative_path_is_of_the_working_directory(copies: tuple[Path, Path]) -> None:
    first, second = copies
    code = "os.chdir(sys.argv[1]); show(open_hip())"
    found = run(
        code, first.parent, LD_LIBRARY_PATH=second.parent, MONO_HIP_LIBRARY="libamdhip64.so.7"
    )
    assert found == [str(first)]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    what, where, _ = run("show(open_hip())", MONO_HIP_LIBRARY=tmp_path / "none.so")
    assert what == "the HIP library that was asked for is not there"
    assert where == f"  where: MONO_HIP_LIBRARY: {tmp_path}/none.so"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libamdhip64.so.7"
    path.write_text("none")
    what, where, _ = run("show(open_hip(sys.argv[1]))", path)
    assert what == "the HIP library does not load"
    assert where.startswith(f"  where: {path}: ")


def test_a_missing_function_is_named_with_the_supported_versions() -> None:
    path = standin_hip.library(without=("hipExtMallocWithFlags",))
    code = """
driver = open_hip(sys.argv[1])
driver.free(0, driver.allocate(0, 4096))
try:
    driver.allocate(0, 4096, uncached=True)
except DriverMissing as error:
    print(error)
"""
    what, where, fix = run(code, path)
    assert what == "the HIP library has no hipExtMallocWithFlags"
    assert where == f"  where: {path}"
    assert fix.startswith("  do:    use HIP 6 and 7; ")


def test_a_library_without_the_basic_functions_is_refused() -> None:
    without = ("hipGetDevice",)
    what, _, _ = run("show(open_hip(sys.argv[1]))", standin_hip.library(without=without))
    assert what == "the HIP library has no hipGetDevice"


def test_a_copy_that_is_mapped_is_used_and_no_second_one_loaded(copies: tuple[Path, Path]) -> None:
    first, second = copies
    code = "ctypes.CDLL(sys.argv[1]); show(open_hip()); print(mapped())"
    assert run(code, first, LD_LIBRARY_PATH=second.parent) == [str(first), f"['{first}']"]


def test_another_copy_than_the_mapped_one_is_refused(copies: tuple[Path, Path]) -> None:
    first, second = copies
    code = "ctypes.CDLL(sys.argv[1]); show(open_hip()); print(mapped())"
    what, where, _, loaded = run(code, first, MONO_HIP_LIBRARY=second)
    assert what.startswith("another copy of the HIP library is loaded already")
    assert where == f"  where: MONO_HIP_LIBRARY: {second}; loaded: {first}"
    assert loaded == f"['{first}']"


def test_a_link_to_the_mapped_copy_is_the_same_copy(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(copies[0])
    code = "ctypes.CDLL(sys.argv[1]); show(open_hip()); print(len(mapped()))"
    assert run(code, copies[0], MONO_HIP_LIBRARY=link) == [str(link), "1"]


def test_a_copy_that_was_replaced_on_disk_is_not_loaded_again(copies: tuple[Path, Path]) -> None:
    code = """
ctypes.CDLL(sys.argv[1])
os.remove(sys.argv[1])
show(open_hip())
"""
    what, where, fix = run(code, copies[0])
    assert what == "the HIP library was replaced on disk after this process had loaded it"
    assert where == f"  where: {copies[0]} (deleted)"
    assert fix == "  do:    start the process again"


_BOTH = "for path in sys.argv[1:3]: ctypes.CDLL(path)\n"


@pytest.mark.parametrize("torch", ["", "torch_in('/nowhere')\n", "torch_in('/nowhere', None)\n"])
def test_two_copies_and_nothing_that_decides(copies: tuple[Path, Path], torch: str) -> None:
    what, where, fix = run(f"{_BOTH}{torch}show(open_hip())", *copies)
    assert what.startswith("several copies of the HIP library are loaded")
    assert all(str(path) in where for path in copies)
    assert fix.startswith("  do:    name one in MONO_HIP_LIBRARY")


def test_two_copies_and_the_variable_decides(copies: tuple[Path, Path]) -> None:
    for path in copies:
        assert run(f"{_BOTH}show(open_hip())", *copies, MONO_HIP_LIBRARY=path) == [str(path)]


def test_the_copy_in_torchs_directory_is_torchs(copies: tuple[Path, Path]) -> None:
    for path in copies:
        code = f"{_BOTH}torch_in(sys.argv[3]); show(open_hip())"
        assert run(code, *copies, path.parent.parent) == [str(path)]


def _torch_that_needs(directory: Path, copy: Path) -> Path:
    """torch's directory with a library that is linked with ``copy``, wherever that lies."""
    target = directory / "lib" / "libc10_hip.so"
    target.parent.mkdir(parents=True)
    source = directory / "c10.c"
    source.write_text("int hipGetDevice(int *); int c10(int *out) { return hipGetDevice(out); }\n")
    arguments = ["-shared", "-fPIC", str(source), str(copy), f"-Wl,-rpath,{copy.parent}"]
    compiler = standin_hip.compilers()[0]
    subprocess.run([*compiler, *arguments, "-o", str(target)], check=True)
    return target


def test_the_copy_that_torchs_library_calls_is_torchs(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    for number, path in enumerate(copies):
        torch = tmp_path / f"torch{number}"
        library = _torch_that_needs(torch, path)
        others = [other for other in copies if other != path]
        code = """
for path in sys.argv[2:]: ctypes.CDLL(path)
torch_in(sys.argv[1])
show(open_hip())
print(len(mapped()))
"""
        assert run(code, torch, library, *others) == [str(path), "2"]


_LATER = """
driver = open_hip(sys.argv[1])
driver.device_count()
driver.check_still_single()
ctypes.CDLL(sys.argv[2])
driver.check_still_single()
print("so far")
torch_in(Path(sys.argv[2]).parent.parent)
"""


def test_torch_with_another_copy_afterwards_is_found_out(copies: tuple[Path, Path]) -> None:
    first, second = copies
    code = f"""{_LATER}
ctypes.CDLL(sys.argv[3])
for check in (driver.check_still_single, lambda: driver.load_module(0, b"")):
    try:
        check()
    except DriverMissing as error:
        print(error)
"""
    more = copies[0].parent.parent / "torch"
    lines = run(code, first, second, _torch_that_needs(more, second))
    assert lines[0] == "so far"
    assert lines[1:4] == lines[4:7]
    assert lines[1].startswith("torch has loaded another copy of the HIP library")
    assert lines[2] == f"  where: torch: {second}; runtime: {first}"


def test_torch_with_our_copy_is_fine_whatever_else_is_loaded(copies: tuple[Path, Path]) -> None:
    first, second = copies
    code = """
driver = open_hip(sys.argv[1])
driver.device_count()
torch_in(Path(sys.argv[1]).parent.parent)
ctypes.CDLL(sys.argv[2])
driver.check_still_single()
print("fine")
"""
    assert run(code, first, second) == ["fine"]


def test_maps_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0000000000-7f0000001000 r--p 00000000 fe:01 42   /opt/my rocm/lib/libamdhip64.so.7.0.1\n"
        "7f0000001000-7f0000003000 r-xp 00001000 fe:01 42   /opt/my rocm/lib/libamdhip64.so.7.0.1\n"
        "7f0000004000-7f0000005000 r--p 00000000 fe:02 42   /venv/libamdhip64-0a1b2c3d.so\n"
        "7f0000006000-7f0000007000 r--p 00000000 fe:01 43   /opt/libamdhip64.so.txt\n"
        "7f0000008000-7f0000009000 r--p 00000000 fe:01 44   /libamdhip64.so.7/other.so\n"
        "7f000000a000-7f000000b000 rw-p 00000000 00:00 0 \n"
        "7f000000c000-7f000000d000 rw-p 00000000 00:00 0    [stack]\n"
    )
    assert mapped_copies(maps) == (
        Copy(
            "/opt/my rocm/lib/libamdhip64.so.7.0.1",
            ("fe:01", 42),
            ((0x7F0000000000, 0x7F0000001000), (0x7F0000001000, 0x7F0000003000)),
        ),
        Copy("/venv/libamdhip64-0a1b2c3d.so", ("fe:02", 42), ((0x7F0000004000, 0x7F0000005000),)),
    )
