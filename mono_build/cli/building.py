"""What ``build``, ``plan`` and ``explain`` have in common: the plan, the tools and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mono_build.cli.output import Output
from mono_build.errors import NotFound, UsageError
from mono_build.manifest import manifest_for, plan_for, ready_manifests
from mono_build.plan import BuildPlan, Pins, Selection
from mono_build.targets import check_devices
from mono_build.toolbox import Toolbox
from mono_build.toolchain import (
    check_pins,
    device_arch,
    environment_arch,
    environment_conflicts,
    identify,
    ignored_variables,
)
from mono_runtime.launch_key import LaunchKey

F = TypeVar("F", bound=Callable[..., Any])


def _manifests(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    ready = [CompletionItem(n) for n in ready_manifests() if n.startswith(incomplete)]
    # The shell itself completes file names.
    return [*ready, CompletionItem(incomplete, type="file")]


def plan_options(function: F) -> F:
    """``--manifest`` and ``--key``: what to plan, besides the selection."""
    manifest = click.option(
        "--manifest",
        multiple=True,
        metavar="FILE|NAME",
        shell_complete=_manifests,
        help="A manifest file, or the name of a ready one. Repeatable; they are merged.",
    )
    key = click.option(
        "--key",
        multiple=True,
        metavar="DIGEST",
        help="Only launches whose key begins so. Repeatable.",
    )
    return manifest(key(function))


def kernels_option(function: F) -> F:
    """``--kernels``."""
    return click.option(
        "--kernels",
        metavar="SOURCE",
        help="'installed', 'vllm==0.33.0', or the path of a wheel or tree."
        " Default: installed when present, else the pinned wheel.",
    )(function)


def make_plan(
    manifests: tuple[str, ...], selection: Selection, keys: tuple[str, ...], output: Output
) -> tuple[BuildPlan, Pins]:
    """The plan that options, manifests and the environment ask for, and the manifests' pins."""
    selection = _with_arch(manifests, selection, output)
    manifest = manifest_for(manifests, selection)
    plan = plan_for(manifest, selection)
    if keys:
        plan = BuildPlan(tuple(k for k in plan.keys if _begins(k, keys)))
        if not plan.keys:
            raise NotFound(
                f"no planned launch has a key that begins with {' or '.join(keys)}",
                fix="mono-build plan --json shows the keys",
            )
    for arch in dict.fromkeys(k.arch for k in plan.keys):
        for line in environment_conflicts(arch, os.environ):
            output.warn(line)
    for line in ignored_variables(os.environ):
        output.warn(line)
    return plan, manifest.pins


def _with_arch(manifests: tuple[str, ...], selection: Selection, output: Output) -> Selection:
    """Without an explicit architecture the environment names it, then the GPUs of this machine."""
    if selection.archs or manifests:
        return selection
    named = environment_arch(os.environ)
    arch = named or device_arch(os.environ)
    if arch is None:
        return selection
    origin = "the environment" if named else "the GPU of this machine"
    output.note(f"architecture {arch} from {origin}")
    return replace(selection, archs=(arch,))


def _begins(key: LaunchKey, prefixes: tuple[str, ...]) -> bool:
    digest = key.digest.removeprefix("sha256:")
    return any(digest.startswith(p.removeprefix("sha256:").lower()) for p in prefixes)


def make_toolbox(
    plan: BuildPlan, pins: Pins, kernels: str | None, devices: tuple[str, ...], output: Output
) -> Toolbox:
    """The tools for ``plan``, checked against the pins; `MonoError`s say what is missing."""
    check_devices(devices, tuple(dict.fromkeys(k.arch for k in plan.keys)))
    toolchain = identify(os.environ)
    toolbox = Toolbox(toolchain, kernels, devices, os.environ, output.note)
    for name in dict.fromkeys(k.family for k in plan.keys):
        source = toolbox.source(name)
        check_pins(pins, toolchain, source.version)
    return toolbox


def positive(name: str, value: float) -> None:
    """Refuse a limit that is not positive."""
    if value <= 0:
        raise UsageError(f"{name} must be positive, not {value:g}")
