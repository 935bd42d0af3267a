"""A family from outside, registered by entry point, whose launches behave and misbehave on demand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

import standin_compiler
import standin_helper

from mono_build.families.base import Deployment, Family, Field, LaunchSpec
from mono_runtime.launch_key import LaunchKey

ROWS = Field("rows", int, "width", minimum=1, maximum=4096)
FOLD = Field("fold", bool, "ignored by the code: two keys, one IR", default=False)
PAUSE = Field("pause", float, "seconds that a compile takes", default=0.0)
BEHAVIOUR = Field(
    "behaviour",
    str,
    "what the compile does",
    default="work",
    choices=("work", "fail", "abort", "kill", "hang", "eat", "exit"),
)
GRID = Field("grid", int, "workgroups", default=256, minimum=1)


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
    text = standin_helper.instructions(build.rows)
    return standin_compiler.Launcher(
        os.environ["ARCH"], f"standin_{build.rows}", text, grid=build.grid
    )


def _fail() -> None:
    raise ValueError("the kernel does not like this key")


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
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "eat": _eat,
    "exit": lambda: os._exit(7),
}


class StandIn(Family):
    """Launches for tests; its kernels lie beside it, on the import path."""

    name = "standin"
    title = "launches for tests"
    source = ""
    packages = ()
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (1,), "gfx942": (1,)}
    rows_field = "rows"
    needs_aiter = False
    compiler = "standin_compiler"
    launches = (
        LaunchSpec(
            "work",
            "a launch whose workgroups do not wait",
            (ROWS, FOLD, PAUSE, BEHAVIOUR),
            "standin_family:Build",
            "standin_family:factory",
            persistent=False,
        ),
        LaunchSpec(
            "resident",
            "a launch whose workgroups wait for each other",
            (ROWS, GRID),
            "standin_family:Build",
            "standin_family:factory",
        ),
    )
    deployment_fields = ()

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or (1, 2, 4)

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        return [
            LaunchKey.of(
                self.name,
                "work",
                deployment.arch,
                {"rows": r, "fold": f, "pause": 0.0, "behaviour": "work"},
            )
            for r in self.widths(deployment)
            for f in (False, True)
        ]


FAMILY = StandIn()
