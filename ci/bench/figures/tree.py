"""Two directory trees compared: names, kinds, modes and every byte."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two trees have in common.

    Attributes:
        entries: files, directories and links in either.
        differing: a line for each entry that is not the same in both.
    """

    entries: int
    differing: tuple[str, ...]


def compare(a: Path, b: Path) -> Comparison:
    """Compare everything below ``a`` with everything below ``b``; times and owners do not count."""
    ours, theirs = _entries(a), _entries(b)
    names = sorted(ours | theirs)
    found = []
    for name in names:
        if name not in ours or name not in theirs:
            found.append(f"{name}: only in the {'first' if name in ours else 'second'}")
        elif difference := _difference(a / name, b / name):
            found.append(f"{name}: {difference}")
    return Comparison(len(names), tuple(found))


def _entries(root: Path) -> set[str]:
    found = {"."}
    for directory, directories, files in os.walk(root):
        base = Path(directory).relative_to(root)
        found |= {(base / name).as_posix() for name in (*directories, *files)}
    return found


def _difference(a: Path, b: Path) -> str | None:
    modes = a.lstat().st_mode, b.lstat().st_mode
    if modes[0] != modes[1]:
        return f"mode {stat.filemode(modes[0])} and {stat.filemode(modes[1])}"
    if stat.S_ISLNK(modes[0]):
        return None if a.readlink() == b.readlink() else "links to different places"
    if stat.S_ISREG(modes[0]) and a.read_bytes() != b.read_bytes():
        return f"different content ({a.stat().st_size} and {b.stat().st_size} bytes)"
    return None
