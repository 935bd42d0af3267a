"""``verify --execute``: launches on the emulator, what came of each, and their figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mono_build.cli.figures import show_figures
from mono_build.cli.options import gathered
from mono_build.cli.output import Output, amount, duration, named, styled
from mono_build.emulator.figures import FigureTable, read_figures
from mono_build.errors import NotFound, UsageError
from mono_build.plan import Selection, emptied_by
from mono_runtime.canonical import Json
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

if TYPE_CHECKING:
    from mono_build.emulator.cases.compare import Comparison
    from mono_build.emulator.execute import Execution

# Added to the exit code of `verify`, whose own bits are 1, 2 and 4.
FAILED, UNCHECKED = 8, 16
_MATCHES = "matches under an ISA model"
_WORDS = {
    "matches": (_MATCHES, "green"),
    "differs": ("DIFFERS from its reference", "red"),
    "varies": ("VARIES: passes, but its outputs depend on the schedule", "red"),
    "stopped": ("STOPPED", "red"),
    "unchecked": ("not checked", "yellow"),
}
# Places that vary, or schedules that stopped, that are listed in text; --json has them all.
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """What ``--execute`` and the options that belong to it ask for.

    Attributes:
        keys: beginnings of key digests; empty for all that the selection admits.
        cases: how many cases of each launch, from consecutive seeds that begin with ``seed``.
        schedules: in how many schedules each case runs.
        counts: the file that figures are added to, or None.
    """

    execute: bool
    keys: tuple[str, ...]
    seed: int
    cases: int
    schedules: int
    counts: Path | None


_OPTIONS = (
    click.option("--execute", is_flag=True, help="Run the launches on the emulator, too."),
    click.option(
        "--key", multiple=True, metavar="DIGEST", help="Execute only launches whose key begins so."
    ),
    click.option("--seed", type=int, help="What the inputs are made from. Default: 1."),
    click.option("--cases", type=int, help="Cases a launch, of consecutive seeds. Default: 1."),
    click.option("--schedules", type=int, help="Schedules a case, to find races. Default: 1."),
    click.option(
        "--counts",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Add the figures of what was executed to this file.",
    ),
)


def _make_wish(
    execute: bool,
    key: tuple[str, ...],
    seed: int | None,
    cases: int | None,
    schedules: int | None,
    counts: Path | None,
) -> Wish:
    given = {
        "--key": key or None,
        "--seed": seed,
        "--cases": cases,
        "--schedules": schedules,
        "--counts": counts,
    }
    used = [name for name, value in given.items() if value is not None]
    if used and not execute:
        raise UsageError(f"{', '.join(used)} belong to --execute", fix="add --execute")
    least = {"--seed": 0, "--cases": 1, "--schedules": 1}
    most = {"--seed": 2**32, "--cases": 1000, "--schedules": 1000}
    for name, value in (("--seed", seed), ("--cases", cases), ("--schedules", schedules)):
        if value is not None and not least[name] <= value <= most[name]:
            raise UsageError(f"{name} takes {least[name]} to {most[name]:,}, not {value}")
    return Wish(
        execute,
        key,
        1 if seed is None else seed,
        cases or 1,
        schedules or 1,
        counts.absolute() if counts else None,
    )


# ``--execute --key --seed --cases --schedules --counts``; the command takes ``wish``.
execution_options = gathered("wish", _OPTIONS, _make_wish)


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of all launches: the bits for the exit code, and the answer as data."""

    exit_code: int
    data: Json


def execute_launches(place: Path, selection: Selection, wish: Wish, output: Output) -> Executed:
    """Execute what is wished for of the store at ``place``, telling of each launch as it ends.

    Raises:
        ToolchainError: the emulator's tools are not installed.
        NotFound: nothing is left to execute.
        StoreError: the store cannot be opened.
    """
    # The emulator brings torch along, which no other command needs.
    from mono_build.emulator.execute import execute, require_emulator, schedules, told

    require_emulator()
    keys = _chosen(StoreReader.open(place), selection, wish)
    table = _table(wish.counts)
    sweep = schedules(wish.schedules, wish.seed)
    output.note(
        f"executing {amount(len(keys), 'launch')} under an ISA model:"
        f" {amount(wish.cases, 'case')} each, {amount(len(sweep), 'schedule')} each case"
    )
    outcomes: Counter[str] = Counter()
    launches: list[Json] = []
    for key in keys:
        for seed in range(wish.seed, wish.seed + wish.cases):
            found = execute(place, key, seed, sweep)
            outcomes[found.outcome.value] += 1
            _show(output, found)
            output.flush()
            launches.append(found.to_json())
            if found.figures is not None and seed == wish.seed:
                table.add(found.figures)
            if found.reason is not None:
                break
    if wish.counts is not None and len(table):
        table.write(wish.counts)
    output.text(_verdict(outcomes))
    failed = outcomes["differs"] + outcomes["varies"] + outcomes["stopped"]
    code = (FAILED if failed else 0) + (UNCHECKED if outcomes["unchecked"] else 0)
    data = {
        "seed": wish.seed,
        "cases": wish.cases,
        "schedules": [told(s) for s in sweep],
        "outcomes": {name: outcomes[name] for name in _WORDS},
        "launches": launches,
    }
    return Executed(code, data)


def _chosen(reader: StoreReader, selection: Selection, wish: Wish) -> list[LaunchKey]:
    held = [e.key for e in reader.index.entries]
    keys = [k for k in held if selection.accepts(k)]
    if held and not keys:
        raise NotFound(emptied_by(held, selection), where=str(reader.path))
    if wish.keys:
        prefixes = tuple(p.removeprefix("sha256:").lower() for p in wish.keys)
        keys = [k for k in keys if k.digest.removeprefix("sha256:").startswith(prefixes)]
        if not keys:
            raise NotFound(
                f"no launch has a key that begins with {' or '.join(wish.keys)}",
                where=str(reader.path),
                fix="mono-build ls shows the keys",
            )
    return sorted(keys, key=lambda k: k.sort_key)


def _table(path: Path | None) -> FigureTable:
    return read_figures(path) if path is not None and path.exists() else FigureTable()


def _show(output: Output, found: Execution) -> None:
    words, style = _WORDS[found.outcome.value]
    if found.reason is not None:
        output.text(f"{named(found.key)}: {styled(words, style)}: {found.reason}")
        return
    ranks = f", {amount(found.ranks, 'rank')}" if found.ranks else ""
    output.text(f"{named(found.key)}, seed {found.seed}{ranks}: {styled(words, style)}")
    for text, error in found.stops()[:_LISTED]:
        output.text(f"  {text}: {error}".replace("\n", "\n  "))
    for place in found.varying[:_LISTED]:
        output.text(f"  varies: {place}")
    if len(found.varying) > _LISTED:
        output.text(f"  and {len(found.varying) - _LISTED} more places")
    rows = [_row(c, text) for c, text in found.outputs()]
    if rows:
        header = ("  output", "format", "elements", "differ", "error", "allowed", "of it", "in")
        many = len(found.trials) > 1
        output.table(header if many else header[:-1], rows if many else [r[:-1] for r in rows])
    if found.figures is not None:
        show_figures(output, found.figures.total, f"first of {amount(len(found.trials), 'run')}")
    if found.trials:
        seconds = sum(t.seconds for t in found.trials)
        output.text(
            f"  ran {duration(seconds)} on this machine, which says nothing of a GPU's time"
        )


def _row(found: Comparison, schedule: str) -> tuple[object, ...]:
    verdict = "" if found.passed else " FAILS"
    return (
        f"  {found.name}",
        found.format,
        found.elements,
        found.differing,
        f"{found.error:.3g}",
        f"{found.tolerance:.3g}",
        f"{100 * found.excess:.3g}%{verdict}",
        schedule,
    )


def _verdict(outcomes: Mapping[str, int]) -> str:
    texts = {
        "matches": "match",
        "differs": "differ",
        "varies": "vary with the schedule",
        "stopped": "stopped",
        "unchecked": "not checked",
    }
    parts = [f"{outcomes[n]} {text}" for n, text in texts.items() if outcomes[n]]
    return f"executed under an ISA model: {', '.join(parts) or 'nothing'}"
