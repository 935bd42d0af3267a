"""What a launch did under the emulator, as plain figures, and files of such figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from mono_build.errors import NotFound, UsageError
from mono_build.store.files import replace_file
from mono_runtime.canonical import Json
from mono_runtime.launch_key import LaunchKey

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """Dynamic figures: of all waves of all ranks.

    Attributes:
        instructions: wave-instructions, those of waiting included.
        classes: of them by class (`mono_build.emulator.classes`).
        global_read, global_written, lds_read, lds_written: bytes, of active lanes; scalar loads count
            once a wave. The same bytes read twice count twice: there are no caches.
        multiply_adds: of matrix instructions, at their full size.
        polls: ``s_sleep`` executed: how often a wave looked for something and did not find it.
    """

    instructions: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    global_read: int = 0
    global_written: int = 0
    lds_read: int = 0
    lds_written: int = 0
    multiply_adds: int = 0
    polls: int = 0

    def __add__(self, other: Figures) -> Figures:
        names = sorted({*self.classes, *other.classes})
        both = {n: self.classes.get(n, 0) + other.classes.get(n, 0) for n in names}
        plain = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name != "classes"
        }
        return Figures(classes=both, **plain)

    def to_json(self) -> Json:
        return {**asdict(self), "classes": {n: c for n, c in sorted(self.classes.items()) if c}}

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Figures:
        return Figures(**{f.name: value[f.name] for f in fields(Figures)})


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of a kernel between two places where it waits (`mono_build.emulator.counts`).

    Attributes:
        start, end: bytes from the beginning of the code object's instructions; ``end`` is behind the last.
        size: instructions, statically.
    """

    symbol: str
    start: int
    end: int
    size: int
    figures: Figures

    def to_json(self) -> Json:
        plain = {"symbol": self.symbol, "start": self.start, "end": self.end, "size": self.size}
        return {**plain, **self.figures.to_json()}

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Stage:
        plain = {n: value[n] for n in ("symbol", "start", "end", "size")}
        return Stage(figures=Figures.from_json(value), **plain)


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """One launch's figures, and what they were taken of.

    Attributes:
        code_objects: digests, in the order of the artefact.
        case, seed: the inputs; ``ranks`` ran together and are added up.
        schedule: how waves took turns; waiting depends on it.
    """

    key: LaunchKey
    code_objects: tuple[str, ...]
    case: str
    seed: int
    ranks: int
    schedule: str
    total: Figures
    stages: tuple[Stage, ...]

    def to_json(self) -> Json:
        return {
            "key": self.key.to_json(),
            "key_digest": self.key.digest,
            "code_objects": list(self.code_objects),
            "case": self.case,
            "seed": self.seed,
            "ranks": self.ranks,
            "schedule": self.schedule,
            **self.total.to_json(),
            "stages": [s.to_json() for s in self.stages],
        }

    def flat(self) -> dict[str, Json]:
        """The totals by name, and what they depend on besides the code: to compare two builds."""
        value = self.to_json()
        classes = {f"instructions.{n}": c for n, c in value.pop("classes").items()}
        left_out = ("key", "key_digest", "code_objects", "case", "stages")
        return {**{n: v for n, v in value.items() if n not in left_out}, **classes}

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> LaunchFigures:
        plain = {n: value[n] for n in ("case", "seed", "ranks", "schedule")}
        return LaunchFigures(
            key=LaunchKey.from_json(value["key"]),
            code_objects=tuple(value["code_objects"]),
            total=Figures.from_json(value),
            stages=tuple(Stage.from_json(s) for s in value["stages"]),
            **plain,
        )


class FigureTable:
    """Figures of launches, by launch key and code objects: one table can hold several builds."""

    def __init__(self, launches: Iterable[LaunchFigures] = ()) -> None:
        self._launches = {_place(x.key, x.code_objects): x for x in launches}

    def add(self, launch: LaunchFigures) -> None:
        """Add one; figures of the same key and code objects are replaced."""
        self._launches[_place(launch.key, launch.code_objects)] = launch

    def find(self, key: LaunchKey, code_objects: Iterable[str]) -> LaunchFigures | None:
        """The figures of a launch with exactly this code, or None."""
        return self._launches.get(_place(key, code_objects))

    def __len__(self) -> int:
        return len(self._launches)

    def write(self, path: Path) -> None:
        """Write the table as a JSON file, at once."""
        listed = [self._launches[p].to_json() for p in sorted(self._launches)]
        text = json.dumps({"format": FORMAT, "launches": listed}, indent=1, sort_keys=True) + "\n"
        replace_file(path.parent, path, text.encode())


def read_figures(path: Path) -> FigureTable:
    """The table in a file that `FigureTable.write` wrote.

    Raises:
        NotFound: there is no such file.
        UsageError: it is no such file.
    """
    try:
        value = json.loads(path.read_bytes())
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']}, not {FORMAT}")
        return FigureTable(LaunchFigures.from_json(v) for v in value["launches"])
    except FileNotFoundError:
        raise NotFound(
            "there is no file of counts",
            where=str(path),
            fix="mono-build verify --execute --counts FILE writes one",
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"not a file of counts: {type(error).__name__}: {error}",
            where=str(path),
            fix="mono-build verify --execute --counts FILE writes one",
        ) from error


def _place(key: LaunchKey, code_objects: Iterable[str]) -> tuple[str, ...]:
    return key.digest, *code_objects
