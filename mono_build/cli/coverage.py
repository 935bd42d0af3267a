"""``mono-build coverage``: whether a store has every launch that a server can ask for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from mono_build.cli.options import complete_archs, json_option, readable_store
from mono_build.cli.output import Output, amount, named
from mono_build.errors import NotFound, UsageError
from mono_build.manifest.writing import manifest_text
from mono_runtime.arch import parse_architecture
from mono_runtime.hooks.coverage import Coverage, coverage
from mono_runtime.hooks.deployments import Planned, family_of, plan_deployment
from mono_runtime.hooks.engine_config import (
    EngineConfig,
    EngineConfigError,
    read_engine_config,
    unread,
)
from mono_runtime.layers import Layers, layered
from mono_runtime.oci import StoreReader

# As many missing launches as are worth reading; --json has all.
_LISTED = 10
_MISSING = 1


@click.command("coverage")
@click.option(
    "--vllm-config",
    "config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON description of the server's configuration, as a server writes it (MONO_CONFIG_FILE).",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A store; several count as one. Default: all of MONO_STORE, else the user's cache.",
)
@click.option(
    "--arch",
    shell_complete=complete_archs,
    help="gfx942 or gfx950. Default: the one that the store has this model's launches for.",
)
@json_option
def command(config: Path, stores: tuple[Path, ...], arch: str | None, as_json: bool) -> int:
    """Prove that a store has every launch that a vLLM server can ask for, or list what is missing.

    Exit codes: 0 nothing is missing, 1 something is, 2 the configuration cannot be read or asks for no
    launches of ours.
    """
    output = Output(json=as_json)
    description = _read(config)
    layers = Layers([StoreReader.open(path) for path in _places(stores)])
    try:
        for name in unread(description):
            output.warn(f"{config}: nothing reads {name}")
        facts = read_engine_config(description)
        planned = _planned(facts, _architecture(facts, arch, layers), config)
    except EngineConfigError as error:
        raise EngineConfigError(error.what, where=config, fix=error.fix) from error
    found = coverage(layers.keys(), planned)
    manifest = (
        "" if found.covered else manifest_text(planned.family, planned.deployment, planned.keys)
    )
    _show(output, found, layers)
    if manifest:
        _show_manifest(output, manifest, layers)
    output.data(
        {
            "stores": [
                {"path": str(r.path), "index_digest": r.index_digest} for r in layers.readers
            ],
            "manifest": manifest or None,
            **found.to_json(),
        }
    )
    return 0 if found.covered else _MISSING


def _read(path: Path) -> Mapping[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound("there is no such file", where=path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"it cannot be read: {error}", where=path) from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {error}", where=path) from error
    if not isinstance(value, dict):
        raise UsageError(
            f"it is not a description of a configuration: {type(value).__name__}",
            where=path,
            fix='it has to be a JSON object with sections such as "model_config"',
        )
    return value


def _places(stores: Sequence[Path]) -> list[Path]:
    if stores:
        return [path.absolute() for path in stores]
    named_layers = [path.absolute() for path in layered(os.environ)]
    return named_layers or [readable_store(None)]


def _architecture(facts: EngineConfig, arch: str | None, layers: Layers) -> str:
    if arch is not None:
        return parse_architecture(arch).name
    family, held = family_of(facts), layers.keys()
    if family is None:
        # Its model has no launches, whatever the device is; that is what will be told.
        return ""
    found = sorted({k.arch for k in held if k.family == family})
    if len(found) == 1:
        return found[0]
    have = f"for {' and '.join(found)}" if found else "for no architecture"
    raise UsageError(
        f"the store has launches of {family} {have}, so the server's is not known",
        where=":".join(str(r.path) for r in layers.readers),
        fix="name it with --arch",
    )


def _planned(facts: EngineConfig, arch: str, config: Path) -> Planned:
    planned = plan_deployment(facts, arch)
    if isinstance(planned, Planned):
        return planned
    head = (
        "this server cannot run its mono kernels"
        if planned.asked
        else "this server asks for no launches"
    )
    raise UsageError(
        "\n".join([head, *[f"  {reason}" for reason in planned.reasons]]),
        where=config,
        fix="correct the configuration, or check that it is the one that the server starts with",
    )


def _show(output: Output, found: Coverage, layers: Layers) -> None:
    planned = found.planned
    deployment = planned.deployment
    output.text(f"{planned.family.title} on {deployment.arch}, TP {deployment.tp}")
    for note in planned.notes:
        output.text(f"note: {note}")
    rows = [(w.rows, w.needed, w.needed - w.missing, w.missing) for w in found.widths]
    output.table(("rows", "launches", "found", "missing"), rows)
    for miss in found.missing[:_LISTED]:
        output.text(f"missing {named(miss.key)}")
        for entry in miss.nearest[:1]:
            output.text(f"  nearest: {entry}")
    if len(found.missing) > _LISTED:
        output.text(f"and {len(found.missing) - _LISTED} more (--json has all)")
    where = ":".join(str(r.path) for r in layers.readers)
    output.text(
        f"{amount(found.needed, 'launch')} needed: {len(found.found)} found,"
        f" {len(found.missing)} missing in {where}"
    )


def _show_manifest(output: Output, manifest: str, layers: Layers) -> None:
    output.text("this manifest builds them:")
    output.text()
    output.text(manifest.rstrip())
    output.text()
    store = layers.readers[-1].path
    output.text(f"mono-build build --manifest FILE --store {store}")
