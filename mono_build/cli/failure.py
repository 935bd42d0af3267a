"""A failed launch for people: why, what to do, and the command that builds it alone."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource

from mono_build.cli.output import named, styled
from mono_build.compile.job import Outcome
from mono_runtime.launch_key import LaunchKey

# Options of a build that its reproduction has no use for, or replaces.
_LEFT_OUT = frozenset({"as_json", "plain", "fail_fast", "check", "key"})


def failure_text(outcome: Outcome, ctx: click.Context, *, check: bool = False) -> str:
    """What happened to a launch, in lines; nothing when it did not fail.

    Args:
        ctx: of the ``build`` command that failed.
        check: whether the launch failed only in the second build of ``--check``.
    """
    failure = outcome.failure
    if failure is None:
        return ""
    lines = [f"{styled('failed:', 'red')} {named(outcome.key)}", f"  why:       {failure.what}"]
    if failure.fix:
        lines.append(f"  do:        {failure.fix}")
    if outcome.log:
        lines.append(f"  log:       {outcome.log}")
    words = [*_given(ctx), *_key(outcome.key), *(["--check"] if check else [])]
    lines.append(f"  reproduce: {shlex.join(['mono-build', 'build', *words])}")
    return "\n".join(lines)


def _given(ctx: click.Context) -> list[str]:
    """The options of the command line that decide what is built, where, and within which limits."""
    words = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if name in _LEFT_OUT or source is not ParameterSource.COMMANDLINE:
            continue
        option, value = max(parameter.opts, key=len), ctx.params[name]
        for each in value if parameter.multiple else (value,):
            words += [option, str(each)]
    return words


def _key(key: LaunchKey) -> list[str]:
    return ["--key", key.digest.removeprefix("sha256:")[:12]]
