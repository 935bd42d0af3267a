"""The options that say how much a build may use, and the bounds within which they make sense."""

from __future__ import annotations

import click

from mono_build.cli.options import gathered
from mono_build.errors import UsageError
from mono_build.limits import Limits
from mono_build.machine import default_workers

# Beyond these a number is a slip of the finger: a launch takes seconds and half a gigabyte.
# Each is the least and the most that is taken, and how they are told.
_BOUNDS = {
    "--jobs": (1, 1024, "1 to 1,024"),
    "--timeout": (0.1, 7 * 24 * 3600.0, "0.1 to 604,800 seconds (7 days)"),
    "--memory": (0.01, 1024.0, "0.01 to 1,024 GiB"),
    "--retries": (0, 100, "0 to 100"),
}

_LIMITS = (
    click.option(
        "-j", "--jobs", type=int, help="Launches at a time. Default: processors and memory."
    ),
    click.option(
        "--timeout", type=float, default=900.0, show_default=True, help="Seconds a launch."
    ),
    click.option(
        "--memory", type=float, default=8.0, show_default=True, help="GiB a launch may allocate."
    ),
    click.option(
        "--retries",
        type=int,
        default=1,
        show_default=True,
        help="Further tries after a process died.",
    ),
    click.option(
        "--fail-fast/--keep-going",
        help="Stop at the first failure, or build the rest (the default).",
    ),
)


def _make_limits(
    jobs: int | None, timeout: float, memory: float, retries: int, fail_fast: bool
) -> Limits:
    given = {"--jobs": jobs, "--timeout": timeout, "--memory": memory, "--retries": retries}
    problems = [
        problem
        for name, value in given.items()
        if value is not None and (problem := _problem(name, value))
    ]
    if problems:
        raise UsageError("\n".join(problems))
    return Limits(
        workers=default_workers() if jobs is None else jobs,
        timeout=timeout,
        memory=int(memory * (1 << 30)),
        retries=retries,
        fail_fast=fail_fast,
    )


def _problem(name: str, value: float) -> str | None:
    least, most, told = _BOUNDS[name]
    # Also false for nan.
    if least <= value <= most:
        return None
    return f"{name} takes {told}, not {value}"


# ``--jobs --timeout --memory --retries --fail-fast``; the command takes ``limits``.
limits_options = gathered("limits", _LIMITS, _make_limits)
