"""Reading the container recipe: its stages, and their instructions with flags, variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DIRECTORY = Path(__file__).parents[2] / "ci" / "container"
FILE = DIRECTORY / "Containerfile"
IGNORE = DIRECTORY / "Containerfile.dockerignore"
_FLAG = re.compile(r"--([a-z]+)=(\S+)\s*")


@dataclass(frozen=True)
class Instruction:
    """One instruction, on one line.

    Attributes:
        flags: pairs of name and value, such as ``("from", "build")``, in their order.
        text: what follows the flags.
    """

    name: str
    flags: tuple[tuple[str, str], ...]
    text: str

    def flag(self, name: str) -> str | None:
        return dict(self.flags).get(name)

    def mounts(self) -> list[dict[str, str]]:
        """The options of every ``--mount``."""
        options = (value.split(",") for name, value in self.flags if name == "mount")
        return [dict(o.split("=", 1) for o in one) for one in options]


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)

    def of(self, name: str) -> list[Instruction]:
        return [i for i in self.instructions if i.name == name]


@dataclass(frozen=True)
class Recipe:
    """The file as data; ``arguments`` are those ahead of the first stage."""

    arguments: dict[str, str]
    stages: dict[str, Stage]

    def based_on(self, name: str) -> list[Stage]:
        """A stage after the stages that it starts from."""
        stage = self.stages[name]
        return [*(self.based_on(stage.base) if stage.base in self.stages else ()), stage]

    def environment(self, name: str, arguments: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the ENV lines of a stage, and of those it starts from, set."""
        found: dict[str, str] = {}
        for stage in self.based_on(name):
            known = dict(arguments or {})
            for instruction in stage.instructions:
                if instruction.name == "ARG":
                    known = {**argument(instruction), **known}
                if instruction.name == "ENV":
                    pairs = (pair.split("=", 1) for pair in instruction.text.split())
                    found |= {key: filled(value, known) for key, value in pairs}
        return found


def argument(instruction: Instruction) -> dict[str, str]:
    """The name and default of an ARG; no default is an empty one."""
    name, _, default = instruction.text.partition("=")
    return {name: default}


def filled(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with ``${NAME}`` replaced where NAME is known."""
    return re.sub(r"\$\{(\w+)\}", lambda m: variables.get(m[1], m[0]), text)


def lines(text: str) -> list[str]:
    """Instructions without comments, each joined to one line."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(kept))
    return [line.strip() for line in joined.splitlines() if line.strip()]


def instruction(line: str) -> Instruction:
    name, _, rest = line.partition(" ")
    flags, rest = [], rest.lstrip()
    while match := _FLAG.match(rest):
        flags.append((match[1], match[2]))
        rest = rest[match.end() :]
    return Instruction(name, tuple(flags), rest)


def read(text: str) -> Recipe:
    """The recipe in ``text``; bases have their arguments filled in."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for line in lines(text):
        one = instruction(line)
        if one.name == "FROM":
            base, _, name = one.text.partition(" AS ")
            current = Stage(name or str(len(stages)), filled(base, arguments))
            stages[current.name] = current
        elif current is None:
            arguments |= argument(one)
        else:
            current.instructions.append(one)
    return Recipe(arguments, stages)


def ignored_but(text: str) -> tuple[list[str], list[str]]:
    """The patterns of an ignore file that lets everything out: what stays in, and what of that is left out."""
    patterns = [line for line in text.splitlines() if line and not line.startswith("#")]
    if patterns[0] != "*":
        raise ValueError("the ignore file does not begin with leaving everything out")
    kept = [p[1:] for p in patterns if p.startswith("!")]
    return kept, [p for p in patterns[1:] if not p.startswith("!")]
