"""The function behind a bound launch, with one statement for each value that moves.

A loop over the values would take as long as the rest of the call, so the statements are written out. The
text is made of small integers alone: nothing that a store or a caller says gets into it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from mono_runtime.launching.streams import FIRST_OWN

# Which view, which element of it, and which of the moving arguments is written there.
Write = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What two bound launches have to agree in to share their function's text.

    Attributes:
        moving: how many arguments a call gives.
        writes: where they go.
        stream: ``bound``; ``default`` for a bound stream that is a device's default one, which is looked
            at on each call; ``last`` if a call may give it as the last positional argument; ``named`` if
            a call can only give it by name.
    """

    moving: int
    writes: tuple[Write, ...]
    stream: Literal["bound", "default", "last", "named"]


@functools.lru_cache(maxsize=256)
def call_maker(shape: Shape) -> Callable[..., Callable[..., None]]:
    """What makes the function of ``shape`` of these parts, given by name.

    ``pop`` and ``push`` are those of a `SlotPool`, ``new`` adds a slot to it; ``raw`` makes a raw stream;
    ``tick`` counts; ``bound`` is the raw stream that was bound; ``unset`` stands for an argument that was
    not given; ``careful(values, rest, named, stream)`` launches any call that is not of the plain form:
    values with ``unset`` at their end, further positional arguments, arguments by name.
    """
    namespace: dict[str, Any] = {}
    exec(compile(_source(shape), "<a bound launch's call>", "exec"), namespace)
    return cast(Callable[..., Callable[..., None]], namespace["make"])


def _source(shape: Shape) -> str:
    names = [f"a{i:d}" for i in range(shape.moving)]
    views = [f"view{i:d}" for i in range(1 + max((v for v, _, _ in shape.writes), default=-1))]
    values = "".join(f"{n}, " for n in names)
    given = "stream" if shape.stream in ("last", "named") else "None"
    rest = "(last, *rest)" if shape.stream == "last" else "rest"
    careful = f"return careful(({values}), {rest}, named, {given})"
    text = [
        "def make(*, pop, push, new, raw, careful, tick, bound, unset):",
        f"    def call({_parameters(names, shape.stream)}):",
        f"        if {' or '.join(['rest', 'named', *(f'{n} is unset' for n in names[-1:])])}:",
        f"            {careful}",
        *_stream_lines(shape.stream, careful),
        "        try:",
        "            slot = pop()",
        "        except IndexError:",
        "            slot = new()",
        "        submit = slot.submit",
    ]
    if views:
        text += [
            "        try:",
            f"            {''.join(f'{v}, ' for v in views)}= slot.views",
            *(f"            view{v:d}[{e:d}] = a{a:d}" for v, e, a in shape.writes),
            "        except Exception:",
            "            push(slot)",
            f"            return careful(({values}), (), named, {given})",
        ]
    text += [
        "        try:",
        f"            submit({'stream' if given == 'stream' else 'bound'})",
        "        finally:",
        "            push(slot)",
        "        next(tick)",
        "    return call",
    ]
    return "\n".join(text)


def _parameters(names: list[str], stream: str) -> str:
    positional = [f"{n}=unset" for n in names]
    if stream == "last":
        positional.append("last=None")
    if positional:
        # Positional alone: an argument of the launch may be called a0.
        positional.append("/")
    by_name = ["stream=None"] if stream in ("last", "named") else []
    return ", ".join([*positional, "*rest", *by_name, "**named"])


def _stream_lines(stream: str, careful: str) -> list[str]:
    if stream == "bound":
        return []
    if stream == "default":
        return ["        raw(bound)"]
    merge = [
        "        if stream is None:",
        "            stream = last",
        "        elif last is not None:",
        f"            {careful}",
    ]
    return [
        *(merge if stream == "last" else []),
        f"        if type(stream) is not int or stream < {FIRST_OWN:d}:",
        "            stream = raw(stream)",
    ]
