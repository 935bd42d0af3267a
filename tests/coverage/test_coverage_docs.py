"""The page on ``coverage``: its example is what the command prints, and its tables are what is read."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from command import environment, run
from docs_pages import page, table_after
from store_kit import add

from mono_build.store.writer import StoreWriter
from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import VARIABLES, EngineConfig, read_engine_config

SECTION = page("docs/commands.md").section("coverage")
EXAMPLE = re.findall(r"```json\n(.*?)```", SECTION, re.S)[0]


def test_the_example_is_what_the_command_prints(tmp_path: Path) -> None:
    planned = plan_deployment(read_engine_config(json.loads(EXAMPLE)), "gfx950")
    assert isinstance(planned, Planned)
    lacking = [k for k in planned.keys if k.values["tokens"] == 12 and k.values["ratio"] == 0]
    held = [k for k in planned.keys if k not in lacking]
    with StoreWriter(tmp_path / "store") as writer:
        writer.publish([add(writer, n, launch_key=key) for n, key in enumerate(held)])
    (tmp_path / "server.json").write_text(EXAMPLE)
    arguments = ["coverage", "--vllm-config", "server.json", "--store", "store"]
    printed = run(arguments, environment(tmp_path), cwd=tmp_path)
    shown = re.findall(r"```text\n(.*?)```", SECTION, re.S)[0]
    first = f"$ mono-build {' '.join(arguments)}\n"
    assert shown == first + printed.out.replace(str(tmp_path), "/srv")


def test_the_table_of_names_is_what_is_read() -> None:
    rows = table_after(SECTION, "silent):")
    named = {
        f"{row['section'].strip('`')}.{name}".removeprefix("(none).")
        for row in rows
        for name in re.findall(r"`([A-Za-z_0-9]+)`", row["names"])
    }
    read = {f.metadata["path"] for f in fields(EngineConfig) if f.metadata}
    variables = {f"environment.{name}" for name in VARIABLES}
    other = {"model_config.hf_config.model_type"}
    assert named == (read - other) | variables | {"speculative_config.draft_model_config"}
