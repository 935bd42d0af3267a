"""The one place that writes: data to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from mono_build.families.base import LaunchSpec
from mono_build.families.registry import family
from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError
from mono_runtime.launch_key import LaunchKey

_STYLES = {"bold": "1", "red": "31", "yellow": "33", "green": "32", "dim": "2"}


class Output:
    """Writes for one command.

    Attributes:
        json: whether data is JSON; then a human's text is left out of standard output.
    """

    def __init__(self, *, json: bool = False) -> None:
        self.json = json

    def data(self, value: Json) -> None:
        """Print ``value`` as JSON, if JSON was asked for."""
        if self.json:
            sys.stdout.write(json.dumps(value, indent=2, sort_keys=True) + "\n")
            sys.stdout.flush()

    def text(self, line: str = "") -> None:
        """Print one line of the answer, unless JSON was asked for."""
        if not self.json:
            sys.stdout.write(line + "\n")

    def flush(self) -> None:
        """Show what was printed so far, also where standard output is a file: the rest takes a while."""
        sys.stdout.flush()

    def note(self, line: str) -> None:
        """Print one line about the work to standard error."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def warn(self, line: str) -> None:
        """Print a warning to standard error."""
        self.note(f"{styled('warning:', 'yellow')} {line}")

    def complain(self, error: MonoError) -> None:
        """Print an error to standard error."""
        self.note(f"{styled('error:', 'red')} {error}")

    def error(self, error: MonoError) -> None:
        """Print an error to standard error, and as data when JSON was asked for."""
        self.complain(error)
        self.data({"error": error_to_json(error)})

    def table(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print aligned columns; numbers are right-aligned."""
        if self.json:
            return
        body = [[str(cell) for cell in row] for row in rows]
        lines = [list(header), *body]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        numeric = [
            bool(body) and all(_is_number(line[i]) for line in body) for i in range(len(header))
        ]
        for number, line in enumerate(lines):
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ]
            text = "  ".join(cells).rstrip()
            self.text(styled(text, "bold", stream=sys.stdout) if number == 0 else text)


def error_to_json(error: MonoError) -> Json:
    """An error as data."""
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "fix": error.fix,
        "exit_code": error.exit_code,
    }


def styled(text: str, style: str, *, stream: object = None) -> str:
    """``text`` with a colour when its stream is a terminal and NO_COLOR is not set."""
    target = stream or sys.stderr
    terminal = bool(getattr(target, "isatty", lambda: False)())
    if not terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).replace("-", "", 1).isdigit() or cell == "-"


def amount(count: int, noun: str) -> str:
    """``1 launch``, ``2 launches``: a count with its noun."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def named(key: LaunchKey) -> str:
    """A launch key for people: the build fields in their family's order, defaults left out."""
    spec = _spec(key)
    if spec is None:
        return str(key)
    values = key.values
    parts = [
        f"{f.name}={str(values[f.name]).lower()}"
        for f in spec.fields
        if f.name in values and values[f.name] != f.default
    ]
    return " ".join([f"{key.family}/{key.launch}", key.arch, *parts])


def _spec(key: LaunchKey) -> LaunchSpec | None:
    try:
        return family(key.family).spec(key.launch)
    except MonoError:
        # A store may hold a family that this installation does not have.
        return None


def size(count: int) -> str:
    """Bytes for people: ``824 B``, ``24.5 kB``, ``1.86 MB``."""
    if count < 1000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB"
    return f"{count / 1_000_000:.2f} MB"


def duration(seconds: float) -> str:
    """Seconds for people: ``0.4 s``, ``12 s``, ``3 min 20 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
