"""``mono-build build``: compile what is planned into a store."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import click

from mono_build.build import build
from mono_build.cli.building import Request, make_plan, make_toolbox, request_options
from mono_build.cli.checking import Check
from mono_build.cli.checking import check as second_build
from mono_build.cli.failure import failure_text
from mono_build.cli.limits import limits_options
from mono_build.cli.options import json_option, store_option, writable_store
from mono_build.cli.output import Output, amount, duration, styled
from mono_build.cli.progress import make_progress
from mono_build.errors import INTERRUPTED
from mono_build.limits import Limits
from mono_build.report import BuildReport
from mono_build.toolbox import identify_meanwhile


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
    tools = identify_meanwhile(os.environ)
    plan, pins = make_plan(request, output)
    place = writable_store(store)
    toolbox = make_toolbox(plan, pins, request, output, tools, device)
    progress = make_progress(output, plain=plain)
    report = build(plan, place, toolbox, limits, progress, started)
    _show(output, report, place)
    ctx = click.get_current_context()
    for outcome in report.failures:
        output.note(failure_text(outcome, ctx))
    answer = {"store": str(place), **report.to_json()}
    if check and not report.failures and not report.interrupted:
        checked = second_build(plan, place, toolbox, limits, output)
        _show_check(output, checked, ctx)
        output.data({**answer, "check": checked.to_json()})
        return checked.exit_code
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


def _show_check(output: Output, checked: Check, ctx: click.Context) -> None:
    for outcome in checked.failures:
        output.note(failure_text(outcome, ctx, check=True))
    output.text(checked.verdict)
    if checked.error:
        output.complain(checked.error)
    if checked.interrupted:
        output.note("interrupted; the first build is in the store")
