"""YAML documents as nodes that know their line and column, within limits of size and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mono_build.errors import NotFound, UsageError
from mono_build.manifest.problem import Mark, Problems

# A manifest is a page of text; anything far larger is a mistake or an attack on the parser.
MAX_BYTES = 128 * 1024
MAX_DEPTH = 16


def read_text(path: Path, shown: str, problems: Problems) -> str | None:
    """The text of a manifest; what cannot be read raises, what cannot be a manifest is a problem."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound("there is no such manifest", where=shown) from error
    except OSError as error:
        raise UsageError(f"the manifest cannot be read: {error.strerror}", where=shown) from error
    if len(data) > MAX_BYTES:
        problems.add(Mark(shown, 1, 1), f"larger than {MAX_BYTES} bytes")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        problems.add(Mark(shown, line, column), "not UTF-8 text")
        return None


def documents(text: str, shown: str, problems: Problems) -> list[yaml.Node]:
    """The root node of each document in ``text``; bad syntax is one problem and yields none."""
    try:
        if not _within_depth(text, shown, problems):
            return []
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node]
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        problems.add(_mark(shown, at), f"bad YAML: {error.problem or error.context}")
        return []
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        problems.add(Mark(shown, line, column), "bad YAML: a character that is not allowed")
        return []
    if not nodes:
        problems.add(Mark(shown, 1, 1), "an empty manifest")
    return nodes


def _within_depth(text: str, shown: str, problems: Problems) -> bool:
    # Composing recurses, so the depth is counted on the flat event stream before.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark = _mark(shown, event.start_mark)
                problems.add(mark, f"nested more than {MAX_DEPTH} levels deep")
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return True


def _mark(shown: str, at: Any) -> Mark:
    # The C and the Python parser have mark classes of their own, with the same attributes.
    return Mark(shown, at.line + 1, at.column + 1) if at else Mark(shown, 1, 1)
