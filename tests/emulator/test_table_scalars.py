"""Scalar arithmetic, logic, comparisons and branches: results and SCC on edges of the number ranges.

What each does is written here with Python's integers, after the CDNA3 and CDNA4 ISA documents.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from asm_kit import Machine
from table_kit import ARCHS, EDGES, SCC, ScalarRow, scalar_kernel, signed, table_machine, wrong_rows

OLD = 0xAAAA5555
MASK = 0xFFFFFFFF
PAIRS = [(a, EDGES[(n + k) % 8]) for n, a in enumerate(EDGES) for k in (1, 4)]
PAIRS += [(a, a) for a in (0, 0x7FFFFFFF)] + [(0x80000000, 0x1F), (5, 7), (0xFFFFFFF0, 0x2F)]
Result = tuple[int, int | None]  # the value, and SCC or None where it stays


def _logic(value: int) -> Result:
    return value & MASK, int(value & MASK != 0)


def _shifted(shift: int) -> Callable[[int, int], Result]:
    return lambda a, b: (((a << shift) + b) & MASK, int((a << shift) + b > MASK))


def _difference(a: int, b: int) -> Result:
    exact = signed(a) - signed(b)
    return exact & MASK, int(exact != signed(exact))


def _sum(a: int, b: int) -> Result:
    exact = signed(a) + signed(b)
    return exact & MASK, int(exact != signed(exact))


TWO: dict[str, Callable[[int, int], Result]] = {
    "s_and_b32": lambda a, b: _logic(a & b),
    "s_or_b32": lambda a, b: _logic(a | b),
    "s_xor_b32": lambda a, b: _logic(a ^ b),
    "s_andn2_b32": lambda a, b: _logic(a & ~b),
    "s_lshl_b32": lambda a, b: _logic(a << (b & 31)),
    "s_lshr_b32": lambda a, b: _logic(a >> (b & 31)),
    "s_ashr_i32": lambda a, b: _logic(signed(a) >> (b & 31)),
    "s_add_u32": lambda a, b: ((a + b) & MASK, int(a + b > MASK)),
    "s_sub_u32": lambda a, b: ((a - b) & MASK, int(b > a)),
    "s_add_i32": _sum,
    "s_sub_i32": _difference,
    "s_mul_i32": lambda a, b: (a * b & MASK, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (signed(a) * signed(b) >> 32 & MASK, None),
    "s_min_i32": lambda a, b: (min(a, b, key=signed), int(signed(a) < signed(b))),
    "s_min_u32": lambda a, b: (min(a, b), int(a < b)),
    # The first counts as the larger of two that are equal.
    "s_max_i32": lambda a, b: (max(a, b, key=signed), int(signed(a) >= signed(b))),
    "s_max_u32": lambda a, b: (max(a, b), int(a >= b)),
    "s_lshl1_add_u32": _shifted(1),
    "s_lshl2_add_u32": _shifted(2),
    "s_lshl3_add_u32": _shifted(3),
    "s_lshl4_add_u32": _shifted(4),
}
WIDE: dict[str, Callable[[int, int], int]] = {
    "s_and_b64": lambda a, b: a & b,
    "s_or_b64": lambda a, b: a | b,
    "s_xor_b64": lambda a, b: a ^ b,
    "s_andn2_b64": lambda a, b: a & ~b,
}
RELATIONS = {
    "eq": operator.eq,
    "lg": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
COMPARISONS = [
    "s_cmp_eq_i32",
    "s_cmp_lg_i32",
    "s_cmp_gt_i32",
    "s_cmp_ge_i32",
    "s_cmp_lt_i32",
    "s_cmp_le_i32",
    "s_cmp_eq_u32",
    "s_cmp_lg_u32",
    "s_cmp_gt_u32",
    "s_cmp_ge_u32",
    "s_cmp_lt_u32",
    "s_cmp_le_u32",
]
CONSTANT_COMPARISONS = [
    "s_cmpk_eq_i32",
    "s_cmpk_lg_i32",
    "s_cmpk_gt_i32",
    "s_cmpk_ge_i32",
    "s_cmpk_lt_i32",
    "s_cmpk_le_i32",
    "s_cmpk_eq_u32",
    "s_cmpk_lg_u32",
    "s_cmpk_gt_u32",
    "s_cmpk_ge_u32",
    "s_cmpk_lt_u32",
    "s_cmpk_le_u32",
]


def _two_source_rows() -> list[ScalarRow]:
    rows = []
    for name, function in TWO.items():
        for number, (a, b) in enumerate(PAIRS):
            value, scc = function(a, b)
            before = 1 - scc if scc is not None else number & 1
            want = {5: value, SCC: before if scc is None else scc}
            # In turn: two registers, a literal first, a literal second, and the result over a source.
            form, inputs = (
                ("s5, s6, s7", {6: a, 7: b}),
                (f"s5, {a:#x}, s7", {7: b}),
                (f"s5, s6, {b:#x}", {6: a}),
                ("s5, s5, s7", {5: a, 7: b}),
            )[number % 4]
            rows.append(ScalarRow(f"{name} {form}", {5: OLD} | inputs, want, before))
        value, scc = function(0xFFFFFFFD, 9)
        before = 1 - scc if scc is not None else 1
        want = {5: value, SCC: before if scc is None else scc}
        rows.append(ScalarRow(f"{name} s5, -3, 9", {5: OLD}, want, before))
    return rows


def _wide_rows() -> list[ScalarRow]:
    rows = []
    values = (0, 1, 1 << 32, 0x8000000000000001, 0x123456789ABCDEF0)
    for name, function in WIDE.items():
        for a in values:
            for b in values:
                value = function(a, b) & ((1 << 64) - 1)
                before = {6: a & MASK, 7: a >> 32, 8: b & MASK, 9: b >> 32, 4: OLD, 5: OLD}
                want = {4: value & MASK, 5: value >> 32, SCC: int(value != 0)}
                text = f"{name} s[4:5], s[6:7], s[8:9]"
                rows.append(ScalarRow(text, before, want, int(value == 0)))
    for scc, want in ((1, {4: 11, 5: 12}), (0, {4: 13, 5: 14})):
        text = "s_cselect_b64 s[4:5], s[6:7], s[8:9]"
        rows.append(ScalarRow(text, {6: 11, 7: 12, 8: 13, 9: 14}, {**want, SCC: scc}, scc))
        constants = {4: 0xFFFFFFFE, 5: MASK} if scc else {4: 3, 5: 0}
        rows.append(ScalarRow("s_cselect_b64 s[4:5], -2, 3", {}, {**constants, SCC: scc}, scc))
        text = f"s_bitset0_b32 s5, {35 if scc else 's6'}"
        kept = {5: 0xFFFFFFF7 if scc else 0x7FFFFFFF, SCC: scc}
        rows.append(ScalarRow(text, {5: MASK, 6: 0xFF}, kept, scc))
    return rows


def _compare_rows() -> list[ScalarRow]:
    rows = []
    for name in COMPARISONS:
        relation, kind = RELATIONS[name.split("_")[2]], name[-3]
        for number, (a, b) in enumerate(PAIRS):
            first, second = (signed(a), signed(b)) if kind == "i" else (a, b)
            want = int(relation(first, second))
            form = ("s6, s7", f"s6, {b:#x}", f"{a:#x}, s7")[number % 3]
            rows.append(ScalarRow(f"{name} {form}", {6: a, 7: b}, {SCC: want}, 1 - want))
    for name in CONSTANT_COMPARISONS:
        relation, kind = RELATIONS[name.split("_")[2]], name[-3]
        for a in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x8000, 0xFFFF8000):
            for constant in (1, 0x8000, 0xFFFF):
                # Signed constants are extended, unsigned ones are not.
                first, second = (signed(a), signed(constant, 16)) if kind == "i" else (a, constant)
                want = int(relation(first, second))
                text = f"{name} s6, {constant:#x}"
                rows.append(ScalarRow(text, {6: a}, {SCC: want}, 1 - want))
    return rows


def _jump(branch: str, label: str) -> str:
    return f"s_mov_b32 s5, 0\n  {branch} .L{label}\n  s_mov_b32 s5, 1\n.L{label}:"


def _control_rows() -> list[ScalarRow]:
    rows = []
    for number, (lanes, source) in enumerate(((0x50000000F, 0xF0), (0, 0), (0, 1 << 63))):
        result = lanes | source
        want = {4: lanes & MASK, 5: lanes >> 32, 126: result & MASK, 127: result >> 32}
        text = "s_or_saveexec_b64 s[4:5], s[6:7]"
        before = {4: OLD, 5: OLD, 6: source & MASK, 7: source >> 32}
        scc = int(result != 0)
        rows.append(ScalarRow(text, before, {**want, SCC: scc}, 1 - scc, lanes))
        # Whether the mask is read as 64 bits: each half decides once.
        halves = ((0, 0), (1, 0), (0, 1))[number]
        mask = halves[0] | halves[1] << 32
        vcc = {106: halves[0], 107: halves[1]}
        text = _jump("s_cbranch_vccz", f"vccz{number}")
        rows.append(ScalarRow(text, vcc, {5: int(mask != 0), SCC: 1}, 1))
        text = _jump("s_cbranch_vccnz", f"vccnz{number}")
        rows.append(ScalarRow(text, vcc, {5: int(mask == 0), SCC: 0}, 0))
        text = _jump("s_cbranch_execnz", f"execnz{number}")
        rows.append(ScalarRow(text, {}, {5: int(mask == 0)}, exec=mask))
        text = _jump("s_cbranch_execz", f"execz{number}")
        rows.append(ScalarRow(text, {}, {5: int(mask != 0)}, exec=mask))
    rows.append(ScalarRow(_jump("s_branch", "always"), {}, {5: 0, SCC: 1}, 1))
    back = "s_branch .Lthere\n.Lback:\n  s_mov_b32 s5, 3\n  s_branch .Lend\n.Lthere:\n  s_branch .Lback\n.Lend:"
    rows.append(ScalarRow(back, {5: 0}, {5: 3}))
    # Waits and hints leave registers, SCC and masks as they are.
    hints = "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\n  s_nop 7\n  s_setprio 3\n  s_setprio 0\n  s_sleep 1"
    for scc in (0, 1):
        kept = {4: 1, 5: OLD, 106: 7, 107: 8}
        rows.append(ScalarRow(hints, kept, {**kept, 126: 5, 127: 0, SCC: scc}, scc, 5))
    return rows


KERNELS = {
    "two_sources": scalar_kernel(_two_source_rows()),
    "wide": scalar_kernel(_wide_rows()),
    "comparisons": scalar_kernel(_compare_rows()),
    "control": scalar_kernel(_control_rows()),
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return {a: table_machine(KERNELS, a, tmp_path_factory.mktemp(a)) for a in ARCHS}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("arch", ARCHS)
def test_scalars(machines: dict[str, Machine], arch: str, name: str) -> None:
    assert wrong_rows(machines[arch], name, KERNELS[name]) == {}
