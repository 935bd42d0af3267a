"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mono_build.plan import Selection
from mono_build.store.default import default_store, resolve_read
from mono_runtime.arch import KNOWN, parse_architecture
from mono_runtime.errors import StoreMissing
from mono_runtime.oci import StoreReader

F = TypeVar("F", bound=Callable[..., Any])


def _families(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from mono_build.families.registry import families

    return [CompletionItem(n) for n in families() if n.startswith(incomplete)]


def _archs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(n) for n in KNOWN if n.startswith(incomplete)]


def _launches(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from mono_build.families.registry import families

    names = {s.name for f in families().values() for s in f.launches}
    return [CompletionItem(n) for n in sorted(names) if n.startswith(incomplete)]


def store_option(function: F) -> F:
    """``--store DIR``."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path, file_okay=False),
        help="The store. Default: the writable end of MONO_STORE, else the user's cache.",
    )(function)


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(
        function
    )


def selection_options(function: F) -> F:
    """``--arch --tp --family --launch --rows``, each repeatable; the command takes ``selection``."""
    options = (
        click.option("--arch", multiple=True, shell_complete=_archs, help="gfx942 or gfx950."),
        click.option("--tp", multiple=True, type=int, help="Tensor-parallel size."),
        click.option("--family", multiple=True, shell_complete=_families, help="Model family."),
        click.option(
            "--launch", multiple=True, shell_complete=_launches, help="Launch of a family."
        ),
        click.option("--rows", multiple=True, type=int, help="Step width (tokens)."),
    )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        archs = tuple(parse_architecture(a).name for a in kwargs.pop("arch"))
        selection = Selection(
            archs=tuple(dict.fromkeys(archs)),
            tps=kwargs.pop("tp"),
            families=kwargs.pop("family"),
            rows=kwargs.pop("rows"),
            launches=kwargs.pop("launch"),
        )
        return function(*args, selection=selection, **kwargs)

    wrapped.__doc__ = function.__doc__
    wrapped.__name__ = getattr(function, "__name__", "command")
    wrapped.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def writable_store(store: Path | None) -> Path:
    """The store that a command writes to."""
    return (store or default_store(os.environ)).absolute()


def open_store(store: Path | None) -> StoreReader:
    """The first store of those that may be meant which is there."""
    places = resolve_read(os.environ, store)
    missing: StoreMissing | None = None
    for place in places:
        try:
            return StoreReader.open(place.absolute())
        except StoreMissing as error:
            missing = missing or error
    raise missing or StoreMissing("no store is named", fix="name one with --store or MONO_STORE")
