"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mono_build.cli.output import Output
from mono_build.plan import Selection
from mono_build.store.default import default_store
from mono_runtime.arch import KNOWN, parse_architecture
from mono_runtime.layers import layered
from mono_runtime.oci import StoreReader

F = TypeVar("F", bound=Callable[..., Any])


def _families(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from mono_build.families.registry import families

    return [CompletionItem(n) for n in families() if n.startswith(incomplete)]


def complete_archs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
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


def counts_option(function: F) -> F:
    """``--counts FILE``, for reading."""
    return click.option(
        "--counts",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Figures of executed launches, which `verify --execute --counts` wrote.",
    )(function)


def gathered(
    name: str, options: Sequence[Callable[[Any], Any]], make: Callable[..., Any]
) -> Callable[[F], F]:
    """A decorator that adds ``options`` to a command and passes ``make`` of their values as ``name``."""

    def decorate(function: F) -> F:
        present = list(getattr(function, "__click_params__", []))

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            values = {p: kwargs.pop(p) for p in own}
            return function(*args, **{name: make(**values)}, **kwargs)

        wrapped.__doc__ = function.__doc__
        wrapped.__name__ = getattr(function, "__name__", "command")
        wrapped.__click_params__ = list(present)  # type: ignore[attr-defined]
        decorated: Any = wrapped
        for option in reversed(options):
            decorated = option(decorated)
        own = [p.name for p in decorated.__click_params__[len(present) :]]
        made: F = decorated
        return made

    return decorate


SELECTION = (
    click.option("--arch", multiple=True, shell_complete=complete_archs, help="gfx942 or gfx950."),
    click.option("--tp", multiple=True, type=int, help="Tensor-parallel size."),
    click.option("--family", multiple=True, shell_complete=_families, help="Model family."),
    click.option("--launch", multiple=True, shell_complete=_launches, help="Launch of a family."),
    click.option("--rows", multiple=True, type=int, help="Step width (tokens)."),
)


def make_selection(
    arch: tuple[str, ...],
    tp: tuple[int, ...],
    family: tuple[str, ...],
    launch: tuple[str, ...],
    rows: tuple[int, ...],
) -> Selection:
    """The selection of `SELECTION`'s options; architectures are checked and normalised."""
    archs = dict.fromkeys(parse_architecture(a).name for a in arch)
    return Selection(archs=tuple(archs), tps=tp, families=family, rows=rows, launches=launch)


# ``--arch --tp --family --launch --rows``, each repeatable; the command takes ``selection``.
selection_options = gathered("selection", SELECTION, make_selection)


def writable_store(store: Path | None) -> Path:
    """The store that a command writes to; the user's cache is never taken for MONO_STORE unsaid."""
    place = (store or default_store(os.environ)).absolute()
    layers = [layer.absolute() for layer in layered(os.environ)]
    if store is None and layers and place not in layers:
        Output().warn(f"no store of MONO_STORE can be written, so {place} is used")
    return place


def readable_store(store: Path | None) -> Path:
    """The store that a command reads: where it would be written, or MONO_STORE's first if read-only."""
    if store is not None:
        return store.absolute()
    layers = layered(os.environ)
    place = default_store(os.environ)
    return (layers[0] if layers and place not in layers else place).absolute()


def open_store(store: Path | None) -> StoreReader:
    """The store that a command reads, opened."""
    return StoreReader.open(readable_store(store))
