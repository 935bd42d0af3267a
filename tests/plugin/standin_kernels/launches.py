"""Build keys and factories of the stand-in family, as a kernel package has them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import standin_compiler

from standin_kernels import helper


@dataclass(frozen=True)
class Build:
    """The build key of every stand-in launch."""

    rows: int
    fold: bool = False
    pause: float = 0.0
    behaviour: str = "work"
    grid: int = 4


def factory(build: Build) -> standin_compiler.Launcher:
    """The launcher of a key, or the misbehaviour that the key asks for."""
    time.sleep(build.pause)
    _BEHAVIOURS[build.behaviour]()
    text = helper.instructions(build.rows)
    return standin_compiler.Launcher(
        os.environ["ARCH"], f"standin_{build.rows}", text, grid=build.grid
    )


def _fail() -> None:
    raise ValueError("the kernel does not like this key")


def _abort() -> None:
    os.write(2, b"LLVM ERROR: Cannot select: t1: i32 = nothing\n")
    os.abort()


def _hang() -> None:
    while True:
        time.sleep(60)


def _eat() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))


_BEHAVIOURS = {
    "work": lambda: None,
    "fail": _fail,
    "abort": _abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "eat": _eat,
    "exit": lambda: os._exit(7),
}
