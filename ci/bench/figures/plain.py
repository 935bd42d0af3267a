"""FlyDSL as an engine uses it, in one plain process a core: the baseline of the ratios."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.bench import Bench, inherited
from figures.errors import BenchError
from figures.process import Command
from figures.samples import dealt
from mono_build.families.base import Family
from mono_build.toolbox import Toolbox, identify_meanwhile
from mono_runtime.launch_key import LaunchKey

_SCRIPT = Path(__file__).with_name("plain_worker.py")
_HELPERS = "aiter.ops.flydsl.kernels"


@dataclass(frozen=True, slots=True)
class PlainRun:
    """What plain processes took for some launches.

    Attributes:
        cpu: CPU seconds of all of them, as the kernel accounts them: start and imports included.
        wall: seconds until the last had ended.
        by_launch: (CPU, wall) seconds of each launch, in the order they were given.
    """

    cpu: float
    wall: float
    by_launch: tuple[tuple[float, float], ...]

    def to_json(self) -> dict[str, Any]:
        return {"cpu": self.cpu, "wall": self.wall, "launches": [list(b) for b in self.by_launch]}


@dataclass(frozen=True, slots=True)
class Plain:
    """Runs plain processes for one family and architecture.

    Attributes:
        environment: of a compile process, as a build has it: the same tools, the same code.
        roots: packages that get an empty body, and the directories of their modules.
    """

    bench: Bench
    family: Family
    environment: dict[str, str]
    roots: dict[str, str]
    processes: int

    def run(self, keys: Sequence[LaunchKey], cache: Path | None = None) -> PlainRun:
        """Compile ``keys``, dealt to the processes by cost.

        Args:
            cache: FlyDSL's disk cache for this run; None switches it off.
        """
        costs = [(self.family.cost(key), number) for number, key in enumerate(keys)]
        work = self.bench.directory("plain")
        commands, answers = [], []
        for hand, numbers in enumerate(dealt(costs, self.processes)):
            task, answer = work / f"task.{hand}.json", work / f"answer.{hand}.json"
            task.write_text(json.dumps(self.task({n: keys[n] for n in numbers})))
            arguments = [sys.executable, str(_SCRIPT), str(task), str(answer)]
            commands.append(Command(arguments, self._environment(cache), work))
            answers.append(answer)
        measured = self.bench.measured(commands)
        return _merged([json.loads(a.read_text()) for a in answers], measured.cpu, measured.wall)

    def task(self, keys: dict[int, LaunchKey]) -> dict[str, Any]:
        """What a worker is told of ``keys``, by number: how each launcher is made."""
        launches = []
        for number, key in keys.items():
            spec = self.family.spec(key.launch)
            if spec is None:
                raise BenchError(f"the family has no launch {key.launch}")
            launches.append(
                {
                    "number": number,
                    "key_class": spec.key_class,
                    "factory": spec.factory,
                    "arguments": self.family.arguments(key),
                }
            )
        return {"roots": self.roots, "modules": self.family.modules(), "launches": launches}

    def _environment(self, cache: Path | None) -> dict[str, str]:
        if cache is None:
            return {**self.environment, "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
        made = {**self.environment, "FLYDSL_RUNTIME_CACHE_DIR": str(cache)}
        return {**made, "FLYDSL_RUNTIME_ENABLE_CACHE": "1"}


@contextmanager
def plain(bench: Bench, family: str, arch: str, processes: int) -> Iterator[Plain]:
    """A `Plain` with the tools and kernel sources that mono-build would use."""
    environ = inherited()
    toolbox = Toolbox(identify_meanwhile(environ), bench.kernels, (), environ, bench.report)
    known, source, helpers = toolbox.family(family), toolbox.source(family), toolbox.helpers(family)
    roots = _parents(known.packages, source.root)
    if helpers is not None:
        roots |= _parents((f"{_HELPERS}.module",), helpers.root)
    with toolbox.environment(family, arch) as environment:
        yield Plain(bench, known, environment, roots, processes)


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _parents(packages: Sequence[str], root: Path) -> dict[str, str]:
    found = {}
    for package in packages:
        parts = package.split(".")[:-1]
        for end in range(1, len(parts) + 1):
            found[".".join(parts[:end])] = str(root.joinpath(*parts[:end]))
    return found


def _merged(answers: Sequence[dict[str, Any]], cpu: float, wall: float) -> PlainRun:
    launches = sorted((e for a in answers for e in a["launches"]), key=lambda e: int(e["number"]))
    by_launch = tuple((float(e["cpu"]), float(e["wall"])) for e in launches)
    return PlainRun(cpu, wall, by_launch)
