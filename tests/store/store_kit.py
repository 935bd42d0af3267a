"""Small stores for tests: launches with made-up code objects, and ways to run things as someone else."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mono_build.store.writer import StoreWriter
from mono_runtime.artefact import Artefact, CodeObject, KernelResources
from mono_runtime.canonical import canonical_json
from mono_runtime.expressions import Arg, Const
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument, LaunchPlan

NOBODY = 65534


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def key(rows: int, arch: str = "gfx950", launch: str = "k1") -> LaunchKey:
    return LaunchKey.of("deepseek_v41", launch, arch, {"rows": rows, "tp": 4})


def code(rows: int) -> bytes:
    return b"\x7fELF" + bytes([rows % 251]) * (200 + rows)


def plan(digest: str, grid: int = 256) -> LaunchPlan:
    one = Const(1)
    return LaunchPlan(
        (Argument("x", "i64"), Argument("n", "i32")),
        "stream",
        True,
        (
            Dispatch(
                "kernel_0",
                digest,
                (Const(grid), one, one),
                (Const(512), one, one),
                Const(0),
                16,
                (
                    KernelArgument("x", "i64", 0, Arg("x")),
                    KernelArgument("n", "i32", 8, Arg("n")),
                ),
            ),
        ),
    )


def inputs(source: str = "ab" * 32, tool: str = "23.1", **environment: str) -> Inputs:
    return Inputs(
        sources=(("vllm/models/mono.py", source),),
        kernels=(("package", "vllm"), ("version", "0.33.0")),
        helpers=(("provider", "stand-in"), ("version", "1")),
        toolchain=(("linker", (("sha256", "cd" * 32), ("version", tool))),),
        environment=tuple(sorted(environment.items())),
        builder=1,
    )


def add(
    writer: StoreWriter,
    rows: int,
    *,
    elf: bytes | None = None,
    used: Inputs | None = None,
    vgpr: int = 128,
    grid: int = 256,
    launch_key: LaunchKey | None = None,
) -> IndexEntry:
    """Put every blob of one launch; the entry is not published."""
    data = code(rows) if elf is None else elf
    used = used or inputs()
    digest = writer.put_blob(data)
    kernel = KernelResources("kernel_0", vgpr, 0, 40, 0, 0, 1024, 0, 16, 512, 64)
    launch_key = launch_key or key(rows)
    artefact = Artefact(
        ir=sha(b"ir %d" % rows),
        arch=launch_key.arch,
        inputs=writer.put_blob(canonical_json(used.to_json())),
        plan=plan(digest, grid),
        code_objects=(CodeObject(digest, len(data), sha(data[4:]), len(data) - 4, (kernel,)),),
    )
    return IndexEntry(launch_key, writer.put_blob(canonical_json(artefact.to_json())), artefact.ir)


def fill(path: Path, rows: range = range(1, 4)) -> list[IndexEntry]:
    """A store with one launch for each of ``rows``, published at once."""
    with StoreWriter(path) as writer:
        entries = [add(writer, n) for n in rows]
        writer.publish(entries)
    return entries


def tree(path: Path) -> dict[str, bytes]:
    """Every file below ``path``, as diff -r would compare it."""
    files = (p for p in sorted(path.rglob("*")) if not p.is_dir())
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def blob_file(store: Path, digest: str) -> Path:
    return store / "blobs" / "sha256" / digest.split(":")[1]


def fork(work: Callable[[], Any]) -> tuple[int, int]:
    """Run ``work`` in a child; its pid, and the descriptor its result or error's name comes from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        try:
            result = work()
        except BaseException as error:
            result = {"error": type(error).__name__, "text": str(error)}
        os.write(writing, json.dumps(result).encode())
    finally:
        os._exit(0)


def result_of(child: tuple[int, int]) -> Any:
    pid, reading = child
    with open(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(data)


def kill(child: tuple[int, int]) -> None:
    pid, reading = child
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reading)


def as_other_user(work: Callable[[], Any]) -> Any:
    """The result of ``work`` for a user who owns nothing here (the same user when not root)."""

    def dropped() -> Any:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return work()

    return result_of(fork(dropped))
