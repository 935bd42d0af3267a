"""Reading JSON texts that have long parts in common, each part once.

The artefacts of a family's launches have the same few argument lists, nine tenths of their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

from mono_runtime.canonical import Json, json_value

T = TypeVar("T")

# Many times what a store's families have; a hostile store must not fill the memory.
_KEPT = 64
_FIELD = '"arguments":'
# The value of such a field, when it is a list of objects without a list in it.
_PART = re.compile(_FIELD + r"(\[\{[^\]]*\}\])")


class Fragment(list[Json]):
    """A list that several JSON texts have in common. It must not be changed.

    Attributes:
        made: what was made of it, by the `OnceEach` that made it.
    """

    def __init__(self, value: list[Json]) -> None:
        super().__init__(value)
        self.made: dict[object, object] = {}


class OnceEach(Generic[T]):
    """A function of JSON that is called once for each `Fragment`; its results have to be immutable."""

    def __init__(self, parse: Callable[[Json], T]) -> None:
        self._parse = parse

    def __call__(self, value: Json) -> T:
        if not isinstance(value, Fragment):
            return self._parse(value)
        if self not in value.made:
            value.made[self] = self._parse(value)
        return cast(T, value.made[self])


class FragmentReader:
    """Parses JSON texts as `json_value` does, but argument lists come as `Fragment`, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, Fragment] = {}

    def __call__(self, text: str) -> Json:
        """The value of ``text``; raises as `json_value` does."""
        # The rest is read with a NaN for each list. JSON has none, so a text with one of its own is
        # read as a whole, and refused. A NaN after the field's quotes and colon cannot be part of a
        # string, so the whole is JSON, with this value, when the lists and the rest are.
        if "NaN" in text:
            return json_value(text)
        pieces = _PART.split(text)
        try:
            parts = [self._fragment(part) for part in pieces[1::2]]
        except ValueError:
            # A list with another list in it was cut too early.
            return json_value(text)
        rest = (_FIELD + "NaN").join(pieces[::2])
        return json.loads(rest, parse_constant=_in_turn(iter(parts)))

    def _fragment(self, text: str) -> Fragment:
        found = self._known.get(text)
        if found is None:
            found = Fragment(json_value(text))
            if len(self._known) < _KEPT:
                self._known[text] = found
        return found


def _in_turn(parts: Iterator[Fragment]) -> Callable[[str], Fragment]:
    def constant(text: str) -> Fragment:
        if text != "NaN":
            raise ValueError(f"{text} is no JSON number")
        return next(parts)

    return constant
