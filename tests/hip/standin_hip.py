"""The stand-in HIP library for tests: builds it, sets it up, and reads what reached it.

In this process: ``hip = standin_hip.load()``, then ``hip.reset(Device(...), ...)`` in each test; the
library that `mono_runtime` finds is then this one. In a child: ``environment(...)`` gives the variables.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = HERE / "standin"
_FLAGS = (
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
)
_KINDS = ("modules", "allocations", "imports", "streams", "events", "graphs", "registered")


@dataclass(frozen=True)
class FakeDevice:
    """What the library says of one device; ``pci`` is domain:bus:device, by default one a device."""

    arch: str = "gfx942:sramecc+:xnack-"
    compute_units: int = 304
    physical_units: int | None = None
    memory: int = 192 << 30
    name: str = "AMD Instinct MI300X"
    pci: str | None = None

    def text(self) -> str:
        physical = self.compute_units if self.physical_units is None else self.physical_units
        pairs = {
            "arch": self.arch,
            "cus": self.compute_units,
            "physical": physical,
            "memory": self.memory,
            "name": self.name,
        }
        if self.pci is not None:
            pairs["pci"] = self.pci
        return ",".join(f"{name}={value}" for name, value in pairs.items())


@dataclass(frozen=True)
class Record:
    """One launch that reached the library; ``kernargs`` are all of its bytes."""

    device: int
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    stream: int
    kernargs: bytes
    captured: bool


class _Launch(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_int32),
        ("captured", ctypes.c_int32),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_lds", ctypes.c_uint32),
        ("kernarg_size", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("symbol", ctypes.c_char * 256),
        ("kernargs", ctypes.c_uint8 * 4096),
    )

    def record(self) -> Record:
        return Record(
            self.device,
            self.symbol.decode(),
            (self.grid[0], self.grid[1], self.grid[2]),
            (self.block[0], self.block[1], self.block[2]),
            self.dynamic_lds,
            self.stream,
            bytes(self.kernargs[: self.kernarg_size]),
            bool(self.captured),
        )


def compilers() -> list[list[str]]:
    """The C compilers of this machine, best first."""
    named = {name: shutil.which(name) for name in ("cc", "gcc", "clang")}
    files = {Path(file).resolve(): name for name, file in reversed(named.items()) if file}
    found = [[name] for name in named if name in files.values()]
    try:
        import ziglang  # noqa: F401
    except ImportError:
        return found
    return [*found, [sys.executable, "-m", "ziglang", "cc"]]


def _version_script(without: Sequence[str]) -> str:
    lines = (SOURCES / "versions.map").read_text().splitlines()
    kept = [line for line in lines if line.strip().rstrip(";") not in without]
    if len(lines) - len(kept) != len(without):
        raise ValueError(f"not all of {without} are symbols of the stand-in")
    return "\n".join(kept) + "\n"


def _compile(target: Path, major: int, without: Sequence[str]) -> None:
    script = target.parent / "versions.map"
    script.write_text(_version_script(without))
    arguments = [
        *_FLAGS,
        f"-DSTANDIN_MAJOR={major}",
        f"-Wl,-soname,{target.name}",
        f"-Wl,--version-script={script}",
        *("-o", str(target)),
        *map(str, sorted(SOURCES.glob("*.c"))),
    ]
    failures = []
    for compiler in compilers():
        done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        failures.append(f"{' '.join(compiler)}: {done.stderr}")
    raise RuntimeError(
        "\n".join(failures) or "no C compiler: apt install gcc, or pip install ziglang"
    )


def _cache() -> Path:
    """A directory of this user's below the temporary one, which other users may read."""
    path = Path(tempfile.gettempdir()) / f"mono-standin-{os.getuid()}"
    path.mkdir(mode=0o755, exist_ok=True)
    about = path.lstat()
    if path.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise RuntimeError(f"{path} is not ours alone: remove it")
    return path


@functools.cache
def library(major: int = 7, *, without: tuple[str, ...] = ()) -> Path:
    """The library, ``libamdhip64.so.<major>``, compiled when its sources are new.

    ``without`` names symbols that it lacks. Processes may build it at the same time.
    """
    parts = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    parts += [repr((major, without, _FLAGS)).encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    cache = _cache()
    final = cache / digest / f"libamdhip64.so.{major}"
    if final.exists():
        return final
    staging = Path(tempfile.mkdtemp(dir=cache))
    staging.chmod(0o755)
    _compile(staging / final.name, major, without)
    try:
        staging.rename(final.parent)
    except OSError:  # another process was first
        shutil.rmtree(staging)
    return final


def environment(
    *devices: FakeDevice,
    none: bool = False,
    major: int = 7,
    version: int | None = None,
    fail: Mapping[str, int | str] | None = None,
    record_file: Path | None = None,
    **switches: bool | int,
) -> dict[str, str]:
    """Variables by which a child finds and sets up the library, added to this process's own.

    ``fail`` maps a symbol to a status, or to ``"status@calls that succeed before"``. ``switches``:
    ``record``, ``any_image``, ``any_stream``, ``peers``, ``occupancy``.
    """
    values: dict[str, str] = {"MONO_HIP_LIBRARY": str(library(major))}
    if none:
        values["STANDIN_DEVICES"] = "none"
    elif devices:
        values["STANDIN_DEVICES"] = ";".join(device.text() for device in devices)
    if version is not None:
        values["STANDIN_VERSION"] = str(version)
    if fail:
        values["STANDIN_FAIL"] = ",".join(f"{name}={status}" for name, status in fail.items())
    if record_file is not None:
        values["STANDIN_RECORD_FILE"] = str(record_file)
    values.update({f"STANDIN_{name.upper()}": str(int(on)) for name, on in switches.items()})
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    return {**os.environ, "PYTHONPATH": path, **values}


def records_of(path: Path) -> list[Record]:
    """What processes with ``record_file=path`` launched, in order."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        fields: dict[str, Any] = json.loads(line)
        del fields["kernarg_size"]
        fields.update(
            grid=tuple(fields["grid"]),
            block=tuple(fields["block"]),
            kernargs=bytes.fromhex(fields["kernargs"]),
            captured=bool(fields["captured"]),
        )
        found.append(Record(**fields))
    return found


class StandIn:
    """The library as it is loaded in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = ctypes.CDLL(str(path))
        self.c.standin_count.restype = ctypes.c_long
        self.c.standin_calls.restype = ctypes.c_ulonglong
        self.c.standin_launched.restype = ctypes.c_ulonglong
        self.c.standin_recorded.restype = ctypes.c_size_t
        self.c.standin_offset.restype = ctypes.c_size_t
        self.c.standin_launch_size.restype = ctypes.c_size_t
        self.c.standin_log.restype = ctypes.c_char_p
        self.c.standin_log.argtypes = (ctypes.c_size_t, ctypes.c_void_p)
        self.c.standin_fail.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_ulonglong)
        self.c.standin_clock.argtypes = (ctypes.c_double,)
        self.c.standin_clock.restype = None
        self.c.standin_launch.argtypes = (ctypes.c_size_t, ctypes.c_void_p)
        self.c.standin_memory_flags.argtypes = (ctypes.c_void_p,)
        self.c.standin_memory_device.argtypes = (ctypes.c_void_p,)
        self.c.standin_stream_flags.argtypes = (ctypes.c_uint64,)
        self.c.standin_hold_stream.argtypes = (ctypes.c_uint64, ctypes.c_int)
        if self.c.standin_launch_size() != ctypes.sizeof(_Launch):
            raise RuntimeError("standin.h and standin_hip.py differ in the layout of a launch")

    def reset(
        self,
        *devices: FakeDevice,
        none: bool = False,
        version: int | None = None,
        fail: Mapping[str, int] | None = None,
        **switches: bool | int,
    ) -> None:
        """Forget everything and start with these devices (one gfx942 by default).

        ``switches``: ``record``, ``any_image``, ``any_stream``, ``peers``, ``occupancy``.
        """
        self.c.standin_reset()
        if none or devices:
            text = "none" if none else ";".join(device.text() for device in devices)
            self.c.standin_devices(text.encode())
        if version is not None:
            self.c.standin_version(version)
        for symbol, status in (fail or {}).items():
            self.fail(symbol, status)
        for name, value in switches.items():
            getattr(self.c, f"standin_{name}")(int(value))

    def fail(self, symbol: str, status: int, *, after: int = 0) -> None:
        """Calls of ``symbol`` return ``status`` after the next ``after`` ones; 0 ends that."""
        self.c.standin_fail(symbol.encode(), status, after)

    def record(self, on: bool) -> None:
        """Switch recording: benchmarks time the call alone without it."""
        self.c.standin_record(int(on))

    def launches(self) -> list[Record]:
        """The recorded launches, oldest first; the newest 1024 at most."""
        found = []
        one = _Launch()
        for index in range(self.c.standin_recorded()):
            if self.c.standin_launch(index, ctypes.byref(one)):
                found.append(one.record())
        return found

    def forget_launches(self) -> None:
        self.c.standin_forget_launches()

    def launched(self) -> int:
        """How many launches were made, recorded or not."""
        return int(self.c.standin_launched())

    def calls(self, symbol: str) -> int:
        """How often a HIP function was called since the reset."""
        return int(self.c.standin_calls(symbol.encode()))

    def alive(self, kind: str) -> int:
        """Living ``modules``, ``allocations``, ``imports``, ``streams``, ``events``, ``graphs``, ``registered``."""
        count = int(self.c.standin_count(kind.encode()))
        if count < 0:
            raise ValueError(f"unknown kind {kind!r}")
        return count

    def all_alive(self) -> dict[str, int]:
        """All kinds that something is left of; empty when everything was released."""
        return {kind: n for kind in _KINDS if (n := self.alive(kind))}

    def log(self) -> list[tuple[str, int]]:
        """What was made and released, in order: HIP's function and the handle or address."""
        found: list[tuple[str, int]] = []
        handle = ctypes.c_uint64()
        while name := self.c.standin_log(len(found), ctypes.byref(handle)):
            found.append((name.decode(), handle.value))
        return found

    def hold(self) -> None:
        """From now on nothing that is enqueued finishes, until `release`."""
        self.c.standin_hold(1)

    def release(self) -> None:
        self.c.standin_hold(0)

    def hold_stream(self, stream: int) -> None:
        """One stream is busy from now on, until `release_stream`; others finish what they get."""
        self.c.standin_hold_stream(stream, 1)

    def release_stream(self, stream: int) -> None:
        self.c.standin_hold_stream(stream, 0)

    def clock(self, milliseconds: float) -> None:
        """What events are stamped with from now on."""
        self.c.standin_clock(milliseconds)

    def memory_flags(self, address: int) -> int:
        """Flags the allocation was made with, or -1."""
        return int(self.c.standin_memory_flags(address))

    def memory_device(self, address: int) -> int:
        """Device of the allocation or import that holds this address, or -1."""
        return int(self.c.standin_memory_device(address))

    def stream_flags(self, stream: int) -> int:
        return int(self.c.standin_stream_flags(stream))

    def peer(self, device: int, peer: int) -> bool:
        """Whether ``device`` may address ``peer``'s memory."""
        return bool(self.c.standin_peer(device, peer))

    def offset(self, member: str) -> int:
        """Where the C compiler puts a member of the device properties; ``sizeof`` is the whole."""
        return int(self.c.standin_offset(member.encode()))

    def begin_capture(self, stream: int, mode: int = 0) -> None:
        """Start recording a graph on ``stream``; mode 0 is HIP's global one."""
        self._checked("hipStreamBeginCapture", ctypes.c_uint64(stream), mode)

    def end_capture(self, stream: int) -> int:
        """The graph that was recorded; 0 when the capture was invalidated."""
        graph = ctypes.c_uint64()
        self.c.hipStreamEndCapture(ctypes.c_uint64(stream), ctypes.byref(graph))
        return graph.value

    def replay(self, graph: int, stream: int) -> None:
        """Launch what a graph holds, with the kernargs of the capture."""
        executable = ctypes.c_uint64()
        out = ctypes.byref(executable)
        self._checked(
            "hipGraphInstantiate", out, ctypes.c_uint64(graph), None, None, ctypes.c_size_t()
        )
        self._checked("hipGraphLaunch", executable, ctypes.c_uint64(stream))
        self._checked("hipGraphExecDestroy", executable)

    def destroy_graph(self, graph: int) -> None:
        self._checked("hipGraphDestroy", ctypes.c_uint64(graph))

    def _checked(self, function: str, *args: Any) -> None:
        status = getattr(self.c, function)(*args)
        if status:
            raise RuntimeError(f"{function}: {status}")


@functools.cache
def load(major: int = 7) -> StandIn:
    """The library, loaded into this process; a process must not load two of them."""
    return StandIn(library(major))
