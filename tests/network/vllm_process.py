"""Scripts that import vLLM's own files, each in a process of its own, over the stand-in HIP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import standin_hip
from command import ROOT, environment, run

import mono_build.standins
from mono_build.sources import resolve_kernels
from mono_build.toolchain import identify, toolkit, worker_environment

MI355X = standin_hip.FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X")


def built(directory: Path, manifest: str, cache: str, kernels: list[str]) -> Path:
    """A store with what ``manifest``, a YAML text, asks for."""
    file, path = directory / "m.yaml", directory / "store"
    file.write_text(manifest)
    arguments = ["build", "--store", str(path), "--manifest", str(file), *kernels]
    result = run(arguments, environment(directory, MONO_CACHE=cache), timeout=1800)
    assert result.code == 0, result.err
    return path


def packages(cache: str, kernels: list[str], models: Iterable[str]) -> dict[str, str]:
    """vLLM's packages above the mono kernels of ``models``, whose own code is the engine's, and where they lie."""
    # With the cache that a test's own environment would not have.
    root = resolve_kernels(kernels[1], {**os.environ, "MONO_CACHE": cache}).root
    names = ["vllm", "vllm.models"]
    for model in models:
        names += [f"vllm.models.{model}", f"vllm.models.{model}.amd"]
    return {name: str(root.joinpath(*name.split("."))) for name in names}


def answer_of(
    script: str,
    directory: Path,
    task: Mapping[str, Any],
    *,
    flydsl_launches: bool = False,
    **variables: str,
) -> dict[str, Any]:
    """What ``script``, a file beside this one, answers to ``task`` with FlyDSL's tools at hand.

    Args:
        flydsl_launches: whether FlyDSL may launch what it compiles, as in a server with a GPU.
    """
    question, result = directory / "task.json", directory / "answer.json"
    # AITER's helper modules, or what stands for them.
    helpers = [str(Path(mono_build.standins.__file__).parent)]
    question.write_text(json.dumps({"path": helpers, **task}))
    tools, library = identify(os.environ), standin_hip.library()
    # vLLM's files take their target from FlyDSL's variables when they are imported.
    with toolkit(tools.linker, tools.bitcode) as tools_root:
        env = worker_environment("gfx950", tools_root, os.environ, ())
        if flydsl_launches:
            del env["COMPILE_ONLY"]
            env["LD_LIBRARY_PATH"] = str(library.parent)
        standin = standin_hip.environment(MI355X)
        env |= {n: v for n, v in standin.items() if n.startswith("STANDIN_")}
        env |= {
            "MONO_HIP_LIBRARY": str(library),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "hip")]),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name(script)), str(question), str(result)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(result.read_text())
    return answer
