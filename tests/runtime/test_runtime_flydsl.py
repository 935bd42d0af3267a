"""Launches from a store reach HIP as FlyDSL's own launches of the same kernels do, byte for byte."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import standin_hip
from command import PLUGIN, ROOT, environment, run
from standin_hip import Record, StandIn, records_of

import mono_runtime
from mono_build.toolchain import identify, toolkit, worker_environment

pytestmark = [pytest.mark.flydsl, pytest.mark.slow]

LEFT, RIGHT, OUT = 0x7F12_3456_7000, 0xFFFF_8000_0000_0010 - (1 << 64), 0x1000
STREAM = 0x55AA_1230
# Launcher, arguments, stream.
CALLS: list[tuple[str, list[Any], int | None]] = [
    ("resident", [LEFT, RIGHT, OUT, 1000, 1.5], STREAM),
    ("resident", [0, 0, 0, -1, -0.0], 0),
    ("computed", [LEFT, RIGHT, OUT, 1000, 0.1], STREAM),
    ("computed", [LEFT, RIGHT, OUT, 1, float("inf")], STREAM),
    ("computed", [LEFT, RIGHT, OUT, 65537, 3], None),
    ("chain", [LEFT, OUT, 1000, 300, 2.25], None),
    ("chain", [RIGHT, OUT, 513, 256, -1e-40], None),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the probe launches, made by mono-build."""
    directory = tmp_path_factory.mktemp("probe")
    manifest = directory / "m.yaml"
    manifest.write_text(
        "schema: 1\nbuilds:\n  - {family: probe, arch: gfx942, tp: 1, rows: [256]}\n"
    )
    store = directory / "store"
    result = run(
        ["build", "--store", str(store), "--manifest", str(manifest), "--json"],
        environment(directory),
    )
    assert result.code == 0, result.err
    assert (result.json["planned"], result.json["failed"]) == (3, 0)
    return store


@pytest.fixture(scope="module")
def flydsls(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """What FlyDSL's JIT sends to the stand-in for `CALLS`."""
    record_file = tmp_path_factory.mktemp("flydsl") / "records"
    standin = standin_hip.environment(record_file=record_file, any_stream=True)
    tools = identify(os.environ)
    with toolkit(tools.linker, tools.bitcode) as root:
        variables = worker_environment("gfx942", root, os.environ, ())
        # Here launches run.
        del variables["COMPILE_ONLY"]
        variables |= {n: v for n, v in standin.items() if n.startswith("STANDIN_")}
        variables["LD_LIBRARY_PATH"] = str(standin_hip.library().parent)
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PLUGIN)])
        script = Path(__file__).with_name("flydsl_calls.py")
        done = subprocess.run(
            [sys.executable, str(script), json.dumps(CALLS)],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return records_of(record_file)


@pytest.mark.parametrize("form", ["positional", "by name", "bound"])
def test_a_store_launches_as_flydsl_does(
    hip: StandIn, built: Path, flydsls: list[Record], form: str
) -> None:
    hip.reset(any_stream=True)
    with mono_runtime.open(built, environ={}) as store:
        loader = store.on()
        summary = loader.preload(loader.keys())
        assert (summary.loaded + summary.shared, summary.failed) == (3, ())
        for name, arguments, stream in CALLS:
            launch = loader.launch("probe", name, block=256, fold=False)
            named = dict(zip((a.name for a in launch.arguments), arguments, strict=True))
            given = {} if stream is None else {"stream": stream}
            if form == "positional":
                launch(*arguments, **given)
            elif form == "by name":
                launch(**named, **given)
            else:
                left = {"left": named.pop("left")}
                launch.bind(**named)(**left, **given)
    assert hip.launches() == flydsls
    assert hip.all_alive() == {}


def test_what_flydsl_sends_is_what_the_call_says(flydsls: list[Record]) -> None:
    """Against literals, so that the comparison above compares something."""
    assert {r.block for r in flydsls} == {(256, 1, 1)}
    assert [(r.grid[0], r.stream) for r in flydsls] == [
        (256, STREAM),
        (256, 0),
        (4, STREAM),
        (1, STREAM),
        (257, 0),
        (4, 0),
        (3, 0),
        (3, 0),
        (2, 0),
    ]
    assert flydsls[0].kernargs == struct.pack("<qqqif", LEFT, RIGHT, OUT, 1000, 1.5)
    assert flydsls[6].kernargs == struct.pack("<qqqif", OUT, LEFT, OUT, 700, 2.25)
