"""The entry point in a process of its own: when it acts, what it imports, and what it leaves as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINE = "WARNING prebuilt launches of deepseek_v41 are not used: "


def process(scene: str, **variables: str) -> tuple[Any, str]:
    """The answer of a scene of `registered`, and what was logged."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("MONO_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("registered.py")), scene],
        env={**kept, "PYTHONPATH": str(ROOT), "MONO_V41_RUNNER": "vllm", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_the_entry_point_is_the_one_that_vllm_looks_for() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    group = text.partition('[project.entry-points."vllm.general_plugins"]\n')[2]
    assert group.startswith('mono_runtime = "mono_runtime.hooks.plugin:register"\n')


def test_without_a_store_nothing_is_imported_or_changed() -> None:
    found, _ = process("nothing")
    assert found == {
        "serving": False,
        "imported": [
            "mono_runtime",
            "mono_runtime.hooks",
            "mono_runtime.hooks.plugin",
            "mono_runtime.lazy",
        ],
        "layer": [0, 0, 0],
        "runner": [0, 0],
        "methods": 0,
    }


def test_modules_are_changed_when_they_are_imported_and_each_function_once() -> None:
    found, _ = process("before_the_engine", MONO_STORE="/nowhere")
    assert (found["layer"], found["runner"], found["methods"]) == ([1, 1, 1], [1, 1], 3)


def test_registering_imports_no_engine_and_touches_no_device() -> None:
    found, _ = process("before_the_engine", MONO_STORE="/nowhere")
    assert (found["imported"], found["libraries"]) == ([], [])


def test_modules_that_are_imported_already_are_changed_too() -> None:
    found, _ = process("after_the_engine", MONO_STORE="/nowhere")
    assert found == {"layer": [1, 1, 1], "runner": [1, 1], "methods": 3}


def test_another_release_of_the_engine_is_left_as_it_is_with_one_line() -> None:
    found, log = process("another_version", MONO_STORE="/nowhere")
    assert found == {"layer": [0, 0, 0], "runner": [0, 0], "methods": 0, "compiled": 1}
    assert log.splitlines() == [
        f"{LINE}this release of mono_runtime knows deepseek_v41 in vLLM 0.33.*, and this is vLLM"
        " 0.34.1+rocm700"
    ]


def test_a_known_release_without_a_needed_name_is_left_alone_with_one_line() -> None:
    found, log = process("changed_engine", MONO_STORE="/nowhere")
    assert found == {"compiled": 1}
    assert log.startswith(f"{LINE}{_runner()} has no _ensure_writable_flydsl_cache\n")
    assert log.count("WARNING") == 1


def _runner() -> str:
    return "vllm.models.deepseek_v41.amd.mono.runner"


@pytest.mark.parametrize(
    ("value", "module"),
    [
        ("vllm", r"vllm\.models\.deepseek_v41\.amd\.mono_decode"),
        ("own", r"mono_runtime\.hooks\.deepseek_v41\..*"),
    ],
)
def test_whose_layers_run_deepseek_v41_can_be_chosen(value: str, module: str) -> None:
    found, _ = process("own_layers", MONO_STORE="/nowhere", MONO_V41_RUNNER=value)
    assert re.fullmatch(module, found["module"])


def test_messages_go_where_the_engines_go() -> None:
    _, log = process("logging_as_the_engine", MONO_STORE="/nowhere")
    assert log == "as seen in the server's log\n"


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("MONO_V41_RUNNER", "mine", "MONO_V41_RUNNER is 'mine'"),
        ("MONO_POLICY", "lenient", "MONO_POLICY"),
        ("MONO_WAIT_SECONDS", "soon", "MONO_WAIT_SECONDS is 'soon'"),
    ],
)
def test_a_variable_with_no_legal_value_is_one_clear_error(
    variable: str, value: str, text: str
) -> None:
    (kind, message), _ = process("bad_value", MONO_STORE="/nowhere", **{variable: value})
    assert kind == "InvalidValue"
    assert text in message
