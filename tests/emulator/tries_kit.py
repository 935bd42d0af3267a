"""Tables of single instructions: what registers hold, the text, and what must be there afterwards."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from asm_kit import ALL, LANES, Machine, Result, Snippet

OLD = 0xAAAA5555  # what a result register holds that must stay
EVEN = 0x5555555555555555
ARCHS = ("gfx942", "gfx950")


def f32(value: float) -> int:
    """The bits of a float."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def mask_of(condition: Callable[[int], bool]) -> int:
    """The bits of the lanes for which ``condition`` holds."""
    return sum(1 << n for n in LANES if condition(n))


@dataclass(frozen=True)
class Try:
    """A snippet and what must be true of its result."""

    snippet: Snippet
    check: Callable[[Result], None]
    archs: tuple[str, ...] = ARCHS


class Tries(dict[str, Try]):
    """Tries by name; each method adds one."""

    def vector(
        self, name: str, text: str, inputs: dict[int, object], want: object, **more: object
    ) -> None:
        """``text`` leaves ``want`` (64 values, or one for all lanes) in v10."""
        archs = more.pop("archs", ARCHS)
        values = _spread(want)
        snippet = Snippet(text, vector={10: OLD, **inputs}, results=(10,), **more)  # type: ignore[arg-type]

        def check(result: Result) -> None:
            assert result.vector[10] == [v & 0xFFFFFFFF for v in values]

        self[name] = Try(snippet, check, archs)  # type: ignore[arg-type]

    def pair(
        self, name: str, text: str, inputs: dict[int, object], want: object, **more: object
    ) -> None:
        """``text`` leaves 64-bit values in v[10:11]."""
        archs = more.pop("archs", ARCHS)
        values = _spread(want)
        snippet = Snippet(text, vector={10: OLD, 11: OLD, **inputs}, results=(10, 11), **more)  # type: ignore[arg-type]

        def check(result: Result) -> None:
            got = [low | high << 32 for low, high in zip(*result.vector.values(), strict=True)]
            assert got == [v & ALL for v in values]

        self[name] = Try(snippet, check, archs)  # type: ignore[arg-type]

    def scalar(
        self, name: str, text: str, inputs: dict[int, int], want: dict[int, int], **more: object
    ) -> None:
        """``text`` leaves ``want`` in scalar registers; s20 stands for SCC."""
        text += "\n  s_cselect_b32 s20, 1, 0"
        snippet = Snippet(text, scalar=inputs, scalars=tuple(want), **more)  # type: ignore[arg-type]

        def check(result: Result) -> None:
            assert result.scalar == want

        self[name] = Try(snippet, check)

    def masked(
        self, name: str, text: str, inputs: dict[int, object], want: int, **more: object
    ) -> None:
        """``text`` leaves a lane mask in s[30:31]."""
        snippet = Snippet(text, vector=inputs, scalars=(30, 31), **more)  # type: ignore[arg-type]

        def check(result: Result) -> None:
            assert result.scalar[30] | result.scalar[31] << 32 == want

        self[name] = Try(snippet, check)


def _spread(want: object) -> list[int]:
    return [want] * 64 if isinstance(want, int) else list(want)  # type: ignore[call-overload]


def machines(tries: Mapping[str, Try], directory: Path) -> dict[str, Machine]:
    """A machine of each architecture with the snippets that it has."""
    found = {}
    for arch in ARCHS:
        snippets = {n: t.snippet for n, t in tries.items() if arch in t.archs}
        place = directory / arch
        place.mkdir()
        found[arch] = Machine(snippets, arch, place)
    return found


def names(tries: Mapping[str, Try]) -> list[tuple[str, str]]:
    """Every (architecture, name)."""
    return [(arch, name) for name, item in tries.items() for arch in item.archs]
