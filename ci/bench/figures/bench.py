"""What every part of the bench works with: options, a scratch directory, and mono-build itself."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.errors import BenchError
from figures.process import Command, Measured, measure, successful
from mono_runtime.launch_key import LaunchKey

PROJECT = Path(__file__).resolve().parents[3]
# Settings of the caller's that would change what is built or measured.
_DROPPED = ("MONO_STORE", "ARCH", "FLYDSL_GPU_ARCH", "HSA_OVERRIDE_GFX_VERSION")


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the bench.

    Attributes:
        scratch: a directory that goes away with the run.
        kernels: what ``--kernels`` says, or None for mono-build's default.
        store: an existing store of the 84-key deployment, or None to build one.
        repeats: rounds of what is repeated.
        quick: reduced samples, which are not judged.
        report: gets a line before anything that takes long.
    """

    scratch: Path
    kernels: str | None
    store: Path | None
    repeats: int
    quick: bool
    report: Callable[[str], None]

    def directory(self, name: str) -> Path:
        """A new directory in the scratch directory."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))

    def mono_build(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        kernels: str | None = None,
        project: Path = PROJECT,
        directory: Path | None = None,
        umask: int = -1,
    ) -> Command:
        """The command ``mono-build ARGUMENTS``, run from this clone.

        Args:
            environment: the whole environment, without ``PYTHONPATH``; this process's by default.
            kernels: replaces the bench's own; an empty text leaves the option out.
            project: the directory that holds ``mono_build``.
        """
        spec = self.kernels if kernels is None else kernels
        options = ["--kernels", spec] if spec else []
        return Command(
            arguments=[sys.executable, "-m", "mono_build", *arguments, *options],
            environment={**(environment or inherited()), "PYTHONPATH": str(project)},
            directory=directory or self.scratch,
            umask=umask,
        )

    def measured(self, commands: Sequence[Command]) -> Measured:
        """Run ``commands`` side by side; `BenchError` when one fails."""
        return successful(measure(commands, self.directory("run")))

    def answer(self, command: Command) -> dict[str, Any]:
        """Run one command and read its JSON answer."""
        return parsed(self.measured([command]))

    def planned(self, *arguments: str, store: Path | None = None) -> list[dict[str, Any]]:
        """The keys of ``mono-build plan ARGUMENTS``, each with its ``state`` in ``store``."""
        place = str(store or self.scratch / "no-store")
        command = self.mono_build("plan", *arguments, "--store", place, "--json")
        keys: list[dict[str, Any]] = self.answer(command)["keys"]
        return keys

    def keys(self, *arguments: str) -> list[LaunchKey]:
        """The launch keys that ``mono-build ARGUMENTS`` would build, in plan order."""
        return [LaunchKey.from_json(k["key"]) for k in self.planned(*arguments)]


def inherited() -> dict[str, str]:
    """This process's environment without what would change a measurement."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _DROPPED and not name.startswith("FLYDSL_")
    }


def parsed(measured: Measured, number: int = 0) -> dict[str, Any]:
    """The JSON answer of one of the commands that ran."""
    try:
        answer = json.loads(measured.results[number].stdout)
    except ValueError as error:
        raise BenchError(f"the command's answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise BenchError("the command's answer is no JSON object")
    return answer
