"""What the container recipe promises, read from its text: stages, users, pins, and nothing from unknown places."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import pytest
import recipe
import yaml
from container_kit import ROOT

from mono_build.cli.main import COMMANDS, cli
from mono_build.manifest import load_manifests, plan_for
from mono_build.plan import Selection
from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config
from mono_runtime.launch_key import LaunchKey

TEXT = recipe.FILE.read_text()
RECIPE = recipe.read(TEXT)
FILES = sorted(p for p in recipe.DIRECTORY.rglob("*") if p.is_file())
INSTRUCTIONS = {"ARG", "COPY", "ENV", "RUN", "USER", "WORKDIR"}
DIGEST = r"sha256:[0-9a-f]{64}"


def commands() -> list[str]:
    """The shell text of every RUN."""
    return [i.text for stage in RECIPE.stages.values() for i in stage.of("RUN")]


def default_plan() -> set[LaunchKey]:
    """The launches of the recipe's own deployment."""
    manifest = load_manifests([str(recipe.DIRECTORY / "deployment" / "manifest.yaml")])
    return set(plan_for(manifest, Selection()).keys)


def test_the_stages_are_those_that_a_site_asks_for() -> None:
    assert [(s.name, s.base) for s in RECIPE.stages.values()] == [
        ("package", "python:3.12-slim"),
        ("build", "python:3.12-slim"),
        ("store", "scratch"),
        ("serving-mounted", "vllm-rocm"),
        ("serving", "serving-mounted"),
    ]


def test_the_export_stage_copies_the_store_and_does_nothing_else() -> None:
    (one,) = RECIPE.stages["store"].instructions
    assert (one.name, one.flags, one.text) == ("COPY", (("from", "build"),), "/build/store/ /")


@pytest.mark.parametrize("name", ["serving-mounted", "serving"])
def test_a_server_runs_as_a_user_who_is_not_root_and_owns_nothing(name: str) -> None:
    users = [i.text for stage in RECIPE.based_on(name) for i in stage.of("USER")]
    assert users[-1] == "65534:65534"
    assert [i.flag("chown") for i in RECIPE.stages["serving"].of("COPY")] == ["0:0"]


def test_a_server_is_strict_and_pinned() -> None:
    digest = "sha256:" + "7" * 64
    assert RECIPE.environment("serving", {"STORE_DIGEST": digest}) == {
        "MONO_STORE": "/opt/mono-store",
        "MONO_STORE_DIGEST": digest,
        "MONO_POLICY": "strict",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # An empty pin is none, which the runtime takes for no variable.
    assert RECIPE.environment("serving")["MONO_STORE_DIGEST"] == ""


def test_only_instructions_that_every_builder_knows_are_used() -> None:
    found = {i.name for stage in RECIPE.stages.values() for i in stage.instructions}
    assert found <= INSTRUCTIONS
    # A syntax line would fetch a front end from a registry.
    assert not TEXT.startswith("# syntax")


def test_nothing_that_was_downloaded_is_piped_into_a_shell() -> None:
    for text in commands():
        assert not re.search(r"\b(curl|wget)\b", text)
        assert not re.search(r"\|\s*(ba|da)?sh\b", text)
        assert "sudo" not in text
        assert "--trusted-host" not in text


@pytest.mark.parametrize("file", FILES, ids=[p.name for p in FILES])
def test_no_file_names_a_host(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"https?://", text)
    # An image with a host has a dot or a port ahead of its first slash.
    names = re.findall(r"(?:FROM|image:|reference:|_BASE=)\s*([^\s$]+)", text)
    for name in names:
        host, slash, _ = name.partition("/")
        assert not (slash and re.search(r"[.:]", host)), name


def test_no_secret_or_index_is_an_argument() -> None:
    """Arguments and variables stay in an image's history; a secret mount does not."""
    for stage in RECIPE.stages.values():
        for one in [*stage.of("ARG"), *stage.of("ENV")]:
            assert not re.search(r"TOKEN|PASSWORD|SECRET|INDEX_URL", one.text)
    mounts = [m for s in RECIPE.stages.values() for i in s.of("RUN") for m in i.mounts()]
    assert {m["type"] for m in mounts} == {"secret", "bind", "cache"}
    fetching = [i for s in RECIPE.stages.values() for i in s.of("RUN") if " pip " in i.text]
    assert len(fetching) == 3
    assert all("secret" in {m["type"] for m in i.mounts()} for i in fetching)


def test_the_unrelated_package_of_the_name_aiter_is_never_installed() -> None:
    assert not re.search(r"pip install[^\n]*\baiter\b", TEXT)


def test_every_mono_build_command_is_understood() -> None:
    shown = []
    for text in commands():
        for line in re.findall(r"mono-build [a-z]+(?: [^\s;&|]+)*", text):
            name, *rest = shlex.split(line)[1:]
            assert name in COMMANDS
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            command.make_context(name, rest)
            shown.append(name)
    assert shown == ["build", "verify", "coverage", "verify"]


def test_the_default_deployment_has_the_drafts_launches_too() -> None:
    """The documentation of manifests says 112, the draft's 28 among them."""
    assert len(default_plan()) == 112


@pytest.mark.parametrize("name", ["compose.yaml", "pod.yaml"])
def test_a_server_is_started_as_the_default_deployment_says(name: str) -> None:
    """With mono kernels, which are off by default in vLLM, and asking for what is built."""
    starts = yaml.safe_load((recipe.DIRECTORY / name).read_text())
    if name == "compose.yaml":
        server = starts["services"]["server"]
        command = [*server["entrypoint"], *server["command"]]
    else:
        (server,) = starts["spec"]["containers"]
        command = [*server["command"], *server["args"]]
    assert command[:2] == ["vllm", "serve"]
    # A path as the model, not an option: vLLM takes that from the serve command.
    assert command[2].startswith("/models/")
    # Where vLLM's options put their values; the manifest's architecture is that of the nodes.
    options = {
        "--monokernel": "kernel_config.monokernel",
        "--tensor-parallel-size": "parallel_config.tensor_parallel_size",
        "--max-num-seqs": "scheduler_config.max_num_seqs",
        "--speculative-config": "speculative_config",
        "--attention-config": "attention_config",
    }
    config: dict[str, Any] = {"model_config": {"hf_config": {"model_type": "deepseek_v41"}}}
    for option in command[3:]:
        flag, equals, value = option.partition("=")
        *section, fact = options[flag].split(".")
        place = config.setdefault(section[0], {}) if section else config
        place[fact] = json.loads(value) if equals else True
    planned = plan_deployment(read_engine_config(config), "gfx950")
    assert isinstance(planned, Planned), planned
    assert set(planned.keys) == default_plan()


def test_what_is_copied_is_what_the_ignore_file_lets_through() -> None:
    kept, left_out = recipe.ignored_but(recipe.IGNORE.read_text())
    copied = set()
    for stage in RECIPE.stages.values():
        known = {k: v for i in stage.of("ARG") for k, v in recipe.argument(i).items()}
        for one in stage.of("COPY"):
            if one.flag("from") is None:
                copied |= {s.rstrip("/") for s in recipe.filled(one.text, known).split()[:-1]}
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in kept), source
    # Nothing is let through that no stage copies.
    assert all(any(fnmatch(source, pattern) for source in copied) for pattern in kept)
    assert left_out == ["**/__pycache__", "**/*.pyc"]


def test_every_choice_of_a_site_is_marked() -> None:
    """Each argument, and the policy, stands below a comment that says CHOOSE and why."""
    lines = TEXT.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("ARG ") or "MONO_POLICY=" in line:
            above = []
            while lines[number - 1 - len(above)].startswith("#"):
                above.append(lines[number - 1 - len(above)])
            assert any("CHOOSE" in text for text in above), line


def test_the_pod_gives_the_server_nothing_to_write_but_what_vllm_needs() -> None:
    pod: dict[str, Any] = yaml.safe_load((recipe.DIRECTORY / "pod.yaml").read_text())["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65534
    assert pod["automountServiceAccountToken"] is False
    for container in [*pod["initContainers"], *pod["containers"]]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        mounts = {m["name"]: m for m in container["volumeMounts"]}
        assert mounts["mono-store"] == {
            "name": "mono-store",
            "mountPath": RECIPE.environment("serving-mounted")["MONO_STORE"],
            "readOnly": True,
        }
        pins = {e["name"]: e["value"] for e in container["env"]}
        assert re.fullmatch(DIGEST, pins["MONO_STORE_DIGEST"])
        writable = [m["mountPath"] for m in mounts.values() if not m.get("readOnly")]
        assert set(writable) <= {"/tmp", "/dev/shm"}
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert set(volumes["mono-store"]) == {"name", "image"}


def test_the_composed_server_is_locked_down_too() -> None:
    composed = yaml.safe_load((recipe.DIRECTORY / "compose.yaml").read_text())
    server: dict[str, Any] = composed["services"]["server"]
    assert server["user"] == "65534:65534"
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in server
    assert all(volume["read_only"] for volume in server["volumes"])
    # Not set ends compose with the message, instead of serving whatever is there.
    assert server["environment"]["MONO_STORE_DIGEST"].startswith("${STORE_DIGEST:?")


def test_the_check_says_what_is_wrong_and_nothing_more(tmp_path: Path) -> None:
    script = recipe.DIRECTORY / "mono-store-check"
    assert script.stat().st_mode & 0o111
    for environment, code, words in (
        ({}, 3, "no store is named"),
        ({"MONO_STORE": str(tmp_path)}, 3, "no store"),
        ({"MONO_STORE": "/a", "MONO_STORE_DIGEST": "sha256:1"}, 2, "MONO_STORE_DIGEST"),
    ):
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("error: ")
        assert words in done.stderr
        assert "Traceback" not in done.stderr
