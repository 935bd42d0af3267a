"""The top of the command line: commands by name, ``build`` when none is named, errors to exit codes."""

from __future__ import annotations

import importlib
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from mono_build import __version__
from mono_build.cli.output import Output
from mono_build.errors import INTERRUPTED, UsageError
from mono_runtime.errors import MonoError

# In the order in which `--help` lists them; each is a module of this package with a ``command``.
COMMANDS = (
    "build",
    "plan",
    "ls",
    "inspect",
    "verify",
    "diff",
    "explain",
    "coverage",
    "gc",
    "export",
    "import",
    "doctor",
)
_MODULES = {"import": "import_"}
_HELP = """Compile an LLM server's FlyDSL launches into a store, with no GPU.

Without a command, options mean `build`: mono-build --arch gfx950 --tp 4

Exit codes: 0 done, 1 a launch failed or the store is corrupt, 2 usage or manifest, 3 missing,
4 environment, 130 interrupted. `verify` and `coverage` have their own, see there."""


class _Commands(click.Group):
    """Loads a command's module when it is used, and takes options without a command for `build`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mono_build.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {option for p in self.get_params(ctx) for option in p.opts}
        if args and args[0].startswith("-") and args[0] not in own:
            args = ["build", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        build = self.get_command(ctx, "build")
        if incomplete.startswith("-") and build is not None:
            with click.Context(build, info_name="build", parent=ctx) as inner:
                known = {item.value for item in items}
                found = build.shell_complete(inner, incomplete)
                items += [item for item in found if item.value not in known]
        return items


@click.command(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="mono-build", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """The group itself does nothing; without a command it says what there is."""
    if ctx.invoked_subcommand is None:
        Output().note(ctx.get_help())
        return UsageError.exit_code
    return 0


def main(args: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Run one command; the exit code. Everything that goes wrong ends in one message."""
    output = Output(json="--json" in args)
    try:
        code: Any = cli.main(args, prog_name="mono-build", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except MonoError as error:
        output.error(error)
        return error.exit_code
    except click.UsageError as error:
        output.error(_usage(error))
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough; what is left in the buffer must not complain.
        sys.stdout = None
        return 0
    except Exception as error:
        output.error(_internal(error))
        return 1


def _usage(error: click.UsageError) -> MonoError:
    command = error.ctx.command_path if error.ctx else "mono-build"
    return UsageError(error.format_message(), fix=f"{command} --help lists what there is")


def _internal(error: Exception) -> MonoError:
    with tempfile.NamedTemporaryFile("w", prefix="mono-build-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    return MonoError(
        f"an error of mono-build itself: {type(error).__name__}: {error}",
        where=str(Path(log.name)),
        fix="report it with that file",
    )
