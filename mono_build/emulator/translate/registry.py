"""Which emitter translates which instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context

# Adds the C of one instruction to the context; raises `NotModelled` for a form that it does not know.
Emitter = Callable[[Instruction, Context], None]


def names(text: str) -> tuple[str, ...]:
    """The mnemonics in ``text``, which are separated by white space."""
    return tuple(text.split())


@cache
def emitters() -> Mapping[str, Emitter]:
    """Every emitter, by mnemonic (without ``_e32`` and ``_e64``)."""
    from mono_build.emulator.translate import (
        buffer,
        convert,
        halves,
        lanes,
        lds,
        matrix,
        memory,
        packed,
        scalar,
        vector,
    )

    groups = (scalar, memory, vector, lanes, packed, halves, convert, matrix, lds, buffer)
    found: dict[str, Emitter] = {}
    for group in groups:
        twice = found.keys() & group.EMITTERS.keys()
        if twice:
            raise ValueError(f"two emitters for {', '.join(sorted(twice))}")
        found.update(group.EMITTERS)
    return found
