"""Tables of many instructions in a few kernels: each row is one instruction, its operands and what it leaves.

Inputs are the same for a whole table and hold edges of the number ranges against each other, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from asm_kit import ALL, LANES, Lanes, Machine, Snippet

OLD = 0xAAAA5555
PARTIAL = 0x80FF_5555_F00F_0003
EXECS = {"all": ALL, "some": PARTIAL, "none": 0}
ARCHS = ("gfx942", "gfx950")
SCC = 92  # where a scalar row leaves SCC
_FIRST, _LAST = 20, 239
EDGES = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00008000, 0xFFFF7FFF, 0x12345678)
A = [EDGES[n // 8] for n in LANES]
B = [EDGES[n % 8] for n in LANES]
C = [EDGES[(3 * n + n // 8) % 8] for n in LANES]


def signed(value: int, width: int = 32) -> int:
    """The two's complement number of the low ``width`` bits."""
    low = value & ((1 << width) - 1)
    return low - (1 << width) if low >> (width - 1) else low


def lanes(function: Callable[..., int], *sources: Sequence[int]) -> list[int]:
    """``function`` lane by lane, to 32 bits."""
    return [function(*values) & 0xFFFFFFFF for values in zip(*sources, strict=True)]


@dataclass(frozen=True)
class Row:
    """One instruction with ``{d}`` for its result, and the values of each result register."""

    text: str
    want: tuple[list[int], ...]


@dataclass(frozen=True)
class Placed:
    """Rows of one kernel: the result registers and what a machine must leave there."""

    snippet: Snippet
    wanted: tuple[tuple[str, list[int]], ...]


def vector_kernels(
    rows: Sequence[Row], inputs: Mapping[int, Lanes], scalars: Mapping[int, int], **more: object
) -> Iterator[tuple[str, Placed]]:
    """Kernels that run the rows with every lane on, with some and with none; results hold `OLD` before."""
    for start, group in _groups(rows):
        for name, mask in EXECS.items():
            yield f"rows_{start}_{name}", _vector_kernel(group, inputs, scalars, mask, **more)


def _groups(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    group: list[Row] = []
    used = start = 0
    for number, row in enumerate(rows):
        size = len(row.want) + len(row.want) % 2
        if used + size > _LAST - _FIRST:
            yield start, group
            group, used, start = [], 0, number
        group.append(row)
        used += size
    yield start, group


def _vector_kernel(
    rows: Sequence[Row],
    inputs: Mapping[int, Lanes],
    scalars: Mapping[int, int],
    mask: int,
    **more: object,
) -> Placed:
    text, wanted, register = [], [], _FIRST
    for row in rows:
        size = len(row.want)
        if size > 1:
            register += register % 2
        target = f"v{register}" if size == 1 else f"v[{register}:{register + size - 1}]"
        text.append(row.text.format(d=target))
        for part, values in enumerate(row.want):
            now = [v & 0xFFFFFFFF if mask >> n & 1 else OLD for n, v in enumerate(values)]
            wanted.append((register + part, row.text, now))
        register += size
    before = ["s_mov_b64 s[90:91], exec", "s_mov_b64 exec, -1"]
    before += [f"v_mov_b32 v{number}, 0x{OLD:x}" for number, _, _ in wanted]
    body = "\n  ".join(
        [*before, "s_mov_b64 exec, s[90:91]", *text, "s_waitcnt vmcnt(0) lgkmcnt(0)"]
    )
    snippet = Snippet(
        body,
        vector=inputs,
        scalar=scalars,
        exec=mask,
        results=tuple(number for number, _, _ in wanted),
        **more,  # type: ignore[arg-type]
    )
    return Placed(snippet, tuple((name, now) for _, name, now in wanted))


@dataclass(frozen=True)
class ScalarRow:
    """Some text, scalar registers before and after; `SCC` among ``want`` stands for SCC.

    Attributes:
        scc: SCC before.
        exec: the lanes that are on.
    """

    text: str
    before: Mapping[int, int]
    want: Mapping[int, int]
    scc: int = 0
    exec: int = ALL


def scalar_kernel(rows: Sequence[ScalarRow], inputs: Mapping[int, Lanes] | None = None) -> Placed:
    """One kernel; every wanted register goes to a lane of its own (v_writelane ignores EXEC)."""
    text, wanted = [], []
    for row in rows:
        for number, value in row.before.items():
            text.append(f"s_mov_b32 {_name(number)}, 0x{value & 0xFFFFFFFF:x}")
        text.append(f"s_mov_b32 exec_lo, 0x{row.exec & 0xFFFFFFFF:x}")
        text.append(f"s_mov_b32 exec_hi, 0x{row.exec >> 32:x}")
        text.append(f"s_cmp_eq_u32 0, {1 - row.scc}")
        text.append(row.text)
        text.append(f"s_cselect_b32 s{SCC}, 1, 0")
        for number, value in row.want.items():
            place = len(wanted)
            register = _FIRST + place // 64
            text.append(f"v_writelane_b32 v{register}, {_name(number)}, {place % 64}")
            wanted.append((f"{row.text} [{row.before}] {_name(number)}", [value & 0xFFFFFFFF]))
    results = tuple(range(_FIRST, _FIRST + (len(wanted) + 63) // 64))
    return Placed(Snippet("\n  ".join(text), vector=inputs or {}, results=results), tuple(wanted))


def _name(number: int) -> str:
    return {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi"}.get(number, f"s{number}")


def wrong_rows(machine: Machine, name: str, placed: Placed) -> dict[str, tuple[object, object]]:
    """The rows whose results differ: what is there and what must be there, where they differ."""
    result = machine.run(name)
    got = [result.vector[number] for number in placed.snippet.results]
    if placed.wanted and len(placed.wanted[0][1]) == 1:
        got = [[word] for column in got for word in column][: len(placed.wanted)]
    wrong: dict[str, tuple[object, object]] = {}
    for (text, want), values in zip(placed.wanted, got, strict=True):
        places = [n for n in range(len(want)) if want[n] != values[n]]
        if places:
            wrong[text] = (
                {n: hex(values[n]) for n in places[:4]},
                {n: hex(want[n]) for n in places[:4]},
            )
    return wrong


def table_machine(kernels: Mapping[str, Placed], arch: str, directory: Path) -> Machine:
    """A machine with these kernels."""
    return Machine({n: k.snippet for n, k in kernels.items()}, arch, directory)
