"""``mono-build build``: compile what is planned into a store."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from mono_build.build import build
from mono_build.cli.building import Request, make_plan, make_toolbox, request_options
from mono_build.cli.limits import limits_options
from mono_build.cli.options import json_option, store_option, writable_store
from mono_build.cli.output import Output, amount, duration, named, styled
from mono_build.cli.progress import make_progress
from mono_build.compile.job import Outcome
from mono_build.errors import INTERRUPTED
from mono_build.limits import Limits
from mono_build.plan import BuildPlan
from mono_build.report import BuildReport
from mono_build.toolbox import Toolbox


@click.command("build")
@store_option
@request_options
@limits_options
@click.option(
    "--device",
    multiple=True,
    metavar="GPU",
    help="Prove residency for this GPU (MI300X, MI355X ...).",
)
@click.option(
    "--check", is_flag=True, help="Build twice and compare: equal keys must give equal bytes."
)
@click.option("--plain", is_flag=True, help="Progress as lines, also on a terminal.")
@json_option
def command(
    store: Path | None,
    request: Request,
    limits: Limits,
    device: tuple[str, ...],
    check: bool,
    plain: bool,
    as_json: bool,
) -> int:
    """Build every planned launch that the store does not have yet.

    With no manifest named, builds the standard deployment of --family (deepseek_v41 by default).
    """
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _stop)
    output = Output(json=as_json)
    plan, pins = make_plan(request, output)
    place = writable_store(store)
    toolbox = make_toolbox(plan, pins, request, output, device)
    progress = make_progress(output, plain=plain)
    report = build(plan, place, toolbox, limits, progress, started)
    _show(output, report, place)
    for outcome in report.failures:
        output.note(_failure(outcome))
    answer = {"store": str(place), **report.to_json()}
    if check and not report.failures and not report.interrupted:
        differing = _check(plan, place, toolbox, limits, output)
        answer["check"] = {"differing": differing}
        output.data(answer)
        return 1 if differing else 0
    output.data(answer)
    if report.interrupted:
        output.note("interrupted; what was finished is in the store, the same command goes on")
        return INTERRUPTED
    return 1 if report.failures or report.not_started else 0


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _show(output: Output, report: BuildReport, place: Path) -> None:
    failed = len(report.failures)
    parts = [
        f"{report.compiled} compiled",
        f"{report.reused} reused",
        styled(f"{failed} failed", "red", stream=sys.stdout) if failed else "0 failed",
    ]
    if report.not_started:
        parts.append(f"{report.not_started} not built")
    output.text(f"{amount(report.planned, 'launch')} planned: {', '.join(parts)}")
    output.text(
        f"{amount(report.code_objects, 'code object')}, {report.machine_codes} distinct machine codes;"
        f" {duration(report.wall_seconds)}, {duration(report.cpu_seconds)} of CPU"
    )
    output.text(f"store {place}")
    output.text(f"index {report.index_digest or 'not written: nothing was built'}")


def _failure(outcome: Outcome) -> str:
    failure = outcome.failure
    if failure is None:
        return ""
    lines = [f"{styled('failed:', 'red')} {named(outcome.key)}", f"  why:       {failure.what}"]
    if failure.fix:
        lines.append(f"  do:        {failure.fix}")
    if outcome.log:
        lines.append(f"  log:       {outcome.log}")
    lines.append(f"  reproduce: {_reproduce(outcome)}")
    return "\n".join(lines)


def _reproduce(outcome: Outcome) -> str:
    """This command again, for the failed launch alone."""
    given = [
        a
        for a in sys.argv[1:]
        if a not in ("build", "--json", "--fail-fast", "--keep-going", "--check")
    ]
    short = outcome.key.digest.removeprefix("sha256:")[:12]
    return shlex.join(["mono-build", "build", *given, "--key", short])


def _check(
    plan: BuildPlan, place: Path, toolbox: Toolbox, limits: Limits, output: Output
) -> list[dict[str, object]]:
    """Build everything again in an empty store and list the launches whose artefacts differ."""
    from mono_runtime.oci import StoreReader

    output.note("building a second time, to compare")
    with tempfile.TemporaryDirectory(prefix="mono-build-check-") as other:
        again = build(
            plan, Path(other, "store"), toolbox, limits, make_progress(output, plain=True)
        )
        for outcome in again.failures:
            output.note(_failure(outcome))
        first, second = (
            {e.key: e.artefact for e in StoreReader.open(p).index.entries}
            for p in (place, Path(other, "store"))
        )
    differing = [k for k in plan.keys if first.get(k) != second.get(k)]
    for key in differing:
        output.text(f"differs: {named(key)}: {first.get(key)} and then {second.get(key)}")
    verdict = "equal bytes" if not differing else f"{amount(len(differing), 'launch')} differ"
    output.text(f"check: built twice, {verdict}")
    return [k.to_json() for k in differing]
