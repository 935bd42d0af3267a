"""What ``build``, ``plan`` and ``explain`` have in common: the plan, the tools and the environment."""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import click
from click.shell_completion import CompletionItem

from mono_build.cli.options import SELECTION, gathered, make_selection
from mono_build.cli.output import Output
from mono_build.errors import NotFound
from mono_build.manifest import manifest_for, plan_for, ready_manifests
from mono_build.plan import BuildPlan, Pins, Selection
from mono_build.targets import check_devices
from mono_build.toolbox import Toolbox, identify_meanwhile
from mono_build.toolchain import (
    Toolchain,
    check_pins,
    device_arch,
    environment_arch,
    environment_conflicts,
    ignored_variables,
)
from mono_runtime.launch_key import LaunchKey


def _manifests(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    ready = [CompletionItem(n) for n in ready_manifests() if n.startswith(incomplete)]
    # The shell itself completes file names.
    return [*ready, CompletionItem(incomplete, type="file")]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be planned and from which kernels, as the command line says it.

    Attributes:
        manifests: files and names of ready ones; empty for the standard deployment.
        selection: what narrows or overrides them.
        keys: beginnings of key digests that a launch must have; empty for all.
        kernels: ``--kernels``, or None for the default.
    """

    manifests: tuple[str, ...]
    selection: Selection
    keys: tuple[str, ...]
    kernels: str | None


kernels_option = click.option(
    "--kernels",
    metavar="SOURCE",
    help="'installed', 'vllm==0.33.0', or the path of a wheel or tree."
    " Default: installed when present, else the pinned wheel.",
)
_REQUEST = (
    click.option(
        "--manifest",
        multiple=True,
        metavar="FILE|NAME",
        shell_complete=_manifests,
        help="A manifest file, or the name of a ready one. Repeatable; they are merged.",
    ),
    click.option(
        "--key",
        multiple=True,
        metavar="DIGEST",
        help="Only launches whose key begins so. Repeatable.",
    ),
    *SELECTION,
    kernels_option,
)


def _make_request(
    manifest: tuple[str, ...], key: tuple[str, ...], kernels: str | None, **selection: Any
) -> Request:
    return Request(manifest, make_selection(**selection), key, kernels)


# The options of planning; the command takes ``request``.
request_options = gathered("request", _REQUEST, _make_request)


def make_plan(request: Request, output: Output) -> tuple[BuildPlan, Pins]:
    """The plan that options, manifests and the environment ask for, and the manifests' pins."""
    selection = _with_arch(request, output)
    manifest = manifest_for(request.manifests, selection)
    plan = plan_for(manifest, selection)
    if request.keys:
        plan = BuildPlan(tuple(k for k in plan.keys if _begins(k, request.keys)))
        if not plan.keys:
            raise NotFound(
                f"no planned launch has a key that begins with {' or '.join(request.keys)}",
                fix="mono-build plan --json shows the keys",
            )
    for arch in dict.fromkeys(k.arch for k in plan.keys):
        for line in environment_conflicts(arch, os.environ):
            output.warn(line)
    for line in ignored_variables(os.environ):
        output.warn(line)
    return plan, manifest.pins


def _with_arch(request: Request, output: Output) -> Selection:
    """Without an explicit architecture the environment names it, then the GPUs of this machine."""
    selection = request.selection
    if selection.archs or request.manifests:
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
    plan: BuildPlan,
    pins: Pins,
    request: Request,
    output: Output,
    tools: Future[Toolchain] | None = None,
    devices: tuple[str, ...] = (),
) -> Toolbox:
    """The tools for ``plan``, checked against the pins; `MonoError`s say what is missing.

    ``tools`` is what `identify_meanwhile` returned when the command began, if it was called.
    """
    check_devices(devices, tuple(dict.fromkeys(k.arch for k in plan.keys)))
    found = tools or identify_meanwhile(os.environ)
    toolbox = Toolbox(found, request.kernels, devices, os.environ, output.note)
    needed = dict.fromkeys(k.family for k in plan.keys if toolbox.needs_source([k]))
    # Tools are pinned also where no engine is needed.
    versions: list[str | None] = [toolbox.source(name).version for name in needed]
    for version in versions or [None]:
        check_pins(pins, toolbox.toolchain, version)
    return toolbox
