"""The JSON answer of a build: what it says of a failure and of an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import command, environment, manifest, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def test_a_failure_says_which_launch_why_and_what_it_cost(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {"behaviour": ["fail"]}, rows=[1])
    arguments = ["--manifest", plan, "--store", str(tmp_path / "store"), "--json"]
    report = run(["build", *arguments], environment(home)).json
    assert report["interrupted"] is False
    (failure,) = report["failures"]
    planned = run(["plan", *arguments], environment(home)).json["keys"][0]
    assert failure.pop("key") == planned["key"]
    assert failure.pop("key_digest") == planned["key_digest"]
    log = Path(failure.pop("log"))
    assert "ValueError" in log.read_text()
    for measured in ("cpu_seconds", "wall_seconds", "peak_bytes"):
        assert failure.pop(measured) > 0, measured
    assert failure == {
        "status": "failed",
        "failure": {
            "kind": "compile",
            "what": "ValueError: the kernel does not like this key",
            "fix": None,
            "fatal": False,
            "abnormal": False,
        },
        "attempts": 1,
        "traced": False,
        "holder": "",
        "note": "",
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_says_so_in_its_answer(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.0, 30.0]}, rows=[1])
    errors = tmp_path / "errors"
    arguments = ["build", "--store", str(tmp_path / "store"), "--manifest", plan, "--json", "-j1"]
    with errors.open("wb") as file:
        builder = subprocess.Popen(
            command(*arguments), env=environment(home), stdout=subprocess.PIPE, stderr=file
        )
    assert builder.stdout is not None
    while b"compiled" not in errors.read_bytes() and builder.poll() is None:
        time.sleep(0.02)
    os.kill(builder.pid, number)
    out, _ = builder.communicate(timeout=20)
    assert builder.returncode == 130
    report = json.loads(out)
    assert report["interrupted"] is True
    assert (report["planned"], report["compiled"], report["not_started"]) == (2, 1, 1)
    assert report["failures"] == []
