"""Vector comparisons and carries: lane masks on edges of the number ranges, with all lanes on, some and none.

What each does is written here with Python's integers and floats, after the CDNA3 and CDNA4 ISA documents.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import pytest
from asm_kit import Machine
from table_kit import (
    ARCHS,
    EDGES,
    EXECS,
    LANES,
    PARTIAL,
    A,
    B,
    ScalarRow,
    scalar_kernel,
    signed,
    table_machine,
    wrong_rows,
)
from tries_kit import f32

MASK = 0xFFFFFFFF
INTEGERS = [
    "v_cmp_lt_i16",
    "v_cmp_eq_i16",
    "v_cmp_le_i16",
    "v_cmp_gt_i16",
    "v_cmp_ne_i16",
    "v_cmp_ge_i16",
    "v_cmp_lt_u16",
    "v_cmp_eq_u16",
    "v_cmp_le_u16",
    "v_cmp_gt_u16",
    "v_cmp_ne_u16",
    "v_cmp_ge_u16",
    "v_cmp_lt_i32",
    "v_cmp_eq_i32",
    "v_cmp_le_i32",
    "v_cmp_gt_i32",
    "v_cmp_ne_i32",
    "v_cmp_ge_i32",
    "v_cmp_lt_u32",
    "v_cmp_eq_u32",
    "v_cmp_le_u32",
    "v_cmp_gt_u32",
    "v_cmp_ne_u32",
    "v_cmp_ge_u32",
    "v_cmp_lt_i64",
    "v_cmp_eq_i64",
    "v_cmp_le_i64",
    "v_cmp_gt_i64",
    "v_cmp_ne_i64",
    "v_cmp_ge_i64",
    "v_cmp_lt_u64",
    "v_cmp_eq_u64",
    "v_cmp_le_u64",
    "v_cmp_gt_u64",
    "v_cmp_ne_u64",
    "v_cmp_ge_u64",
]
FLOATS = [
    "v_cmp_lt_f32",
    "v_cmp_eq_f32",
    "v_cmp_le_f32",
    "v_cmp_gt_f32",
    "v_cmp_lg_f32",
    "v_cmp_ge_f32",
    "v_cmp_o_f32",
    "v_cmp_nlt_f32",
    "v_cmp_neq_f32",
    "v_cmp_nle_f32",
    "v_cmp_ngt_f32",
    "v_cmp_nlg_f32",
    "v_cmp_nge_f32",
    "v_cmp_u_f32",
]
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "ne": operator.ne,
    "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: not (math.isnan(a) or math.isnan(b)),
    "u": lambda a, b: math.isnan(a) or math.isnan(b),
    "nlt": lambda a, b: not a < b,
    "neq": operator.ne,
    "nle": lambda a, b: not a <= b,
    "ngt": lambda a, b: not a > b,
    "nlg": lambda a, b: not (a < b or a > b),
    "nge": lambda a, b: not a >= b,
}
NUMBERS = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.0**-149)
X = [NUMBERS[n // 8] for n in LANES]
Y = [NUMBERS[n % 8] for n in LANES]
# 64 bits: v[4:5] and v[6:7] agree in the upper half, in the lower half, in both or in neither.
HIGH = [EDGES[(n // 8 + (n % 3 == 0)) % 8] for n in LANES]
LOW = [EDGES[5 * n % 8] for n in LANES]
WIDE = [b | a << 32 for a, b in zip(A, B, strict=True)]
OTHER = [low | high << 32 for low, high in zip(LOW, HIGH, strict=True)]
INPUTS = {1: A, 2: B, 4: B, 5: A, 6: LOW, 7: HIGH, 8: [f32(x) for x in X], 9: [f32(y) for y in Y]}


def _mask(relation: Callable[[float, float], bool], a: Sequence[float], b: Sequence[float]) -> int:
    return sum(1 << n for n, (x, y) in enumerate(zip(a, b, strict=True)) if relation(x, y))


def _rows_of(
    text: str, mask: int, *, to_vcc: bool, before: dict[int, int] | None = None
) -> list[ScalarRow]:
    """The mask with all lanes on, some and none: lanes that are off give 0.

    With ``before`` it is the operand that matters, and some lanes are enough.
    """
    low, high = (106, 107) if to_vcc else (30, 31)
    return [
        ScalarRow(
            text,
            {low: 0x5A5A5A5A, high: 0xA5A5A5A5} | (before or {}),
            {low: mask & on & MASK, high: (mask & on) >> 32},
            exec=on,
        )
        for on in (EXECS.values() if before is None else (PARTIAL,))
    ]


def _integer_rows(names: Sequence[str]) -> list[ScalarRow]:
    rows = []
    for name in names:
        relation, width = RELATIONS[name.split("_")[2]], int(name[-2:])
        sources = ("v[4:5]", "v[6:7]", WIDE, OTHER) if width == 64 else ("v1", "v2", A, B)

        def typed(values: Sequence[int], kind: str = name[-3], width: int = width) -> list[int]:
            low = [v & ((1 << width) - 1) for v in values]
            return [signed(v, width) for v in low] if kind == "i" else low

        first, second, a, b = sources
        mask = _mask(relation, typed(a), typed(b))
        rows += _rows_of(f"{name} vcc, {first}, {second}", mask, to_vcc=True)
        rows += _rows_of(f"{name} s[30:31], {first}, {second}", mask, to_vcc=False)
        # A constant, a literal and a scalar register in the place of a source.
        constant = _mask(relation, typed([-1] * 64), typed(b))
        rows += _rows_of(f"{name} vcc, -1, {second}", constant, to_vcc=True, before={})
        if width != 64:
            value = 0x12345678 if width == 32 else 0x5678
            literal = _mask(relation, typed([value] * 64), typed(b))
            rows += _rows_of(f"{name} vcc, {value:#x}, v2", literal, to_vcc=True, before={})
        pair = 0x12345678_00000001 if width == 64 else 0x80000000
        register = "s[10:11]" if width == 64 else "s10"
        before = {10: pair & MASK, 11: pair >> 32}
        scalar = _mask(relation, typed(a), typed([pair] * 64))
        text = f"{name} s[30:31], {first}, {register}"
        rows += _rows_of(text, scalar, to_vcc=False, before=before)
    return rows


def _float_rows() -> list[ScalarRow]:
    rows = []
    for name in FLOATS:
        relation = RELATIONS[name.split("_")[2]]
        mask = _mask(relation, X, Y)
        rows += _rows_of(f"{name} vcc, v8, v9", mask, to_vcc=True)
        rows += _rows_of(f"{name} s[30:31], v8, v9", mask, to_vcc=False)
        signs = _mask(relation, [-abs(x) for x in X], [-y for y in Y])
        rows += _rows_of(f"{name} s[30:31], -|v8|, -v9", signs, to_vcc=False, before={})
        constant = _mask(relation, [1.0] * 64, Y)
        rows += _rows_of(f"{name} vcc, 1.0, v9", constant, to_vcc=True, before={})
        scalar = _mask(relation, X, [-1.5] * 64)
        before = {10: f32(-1.5)}
        rows += _rows_of(f"{name} s[30:31], v8, s10", scalar, to_vcc=False, before=before)
        literal = _mask(relation, [-math.inf] * 64, Y)
        rows += _rows_of(f"{name} vcc, 0xff800000, v9", literal, to_vcc=True, before={})
    return rows


def _carry_rows() -> list[ScalarRow]:
    rows = []
    borrow = _mask(operator.gt, A, B)
    for target in ("vcc", "s[30:31]"):
        to_vcc = target == "vcc"
        text = f"v_subrev_co_u32 v12, {target}, v1, v2"
        rows += _rows_of(text, borrow, to_vcc=to_vcc)
        text = f"v_sub_co_u32 v12, {target}, v1, v2"
        rows += _rows_of(text, _mask(operator.lt, A, B), to_vcc=to_vcc)
        text = f"v_add_co_u32 v12, {target}, v1, v2"
        carry = _mask(lambda a, b: a + b > MASK, A, B)
        rows += _rows_of(text, carry, to_vcc=to_vcc)
    return rows


KERNELS = {
    "narrow": scalar_kernel(_integer_rows(INTEGERS[:12]), INPUTS),
    "words": scalar_kernel(_integer_rows(INTEGERS[12:24]), INPUTS),
    "wide": scalar_kernel(_integer_rows(INTEGERS[24:]), INPUTS),
    "floats": scalar_kernel(_float_rows(), INPUTS),
    "carries": scalar_kernel(_carry_rows(), INPUTS),
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return {a: table_machine(KERNELS, a, tmp_path_factory.mktemp(a)) for a in ARCHS}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("arch", ARCHS)
def test_comparisons(machines: dict[str, Machine], arch: str, name: str) -> None:
    assert wrong_rows(machines[arch], name, KERNELS[name]) == {}


def test_the_64_bit_inputs_agree_in_each_half_somewhere() -> None:
    halves = {(a == c, b == d) for a, b, c, d in zip(A, B, HIGH, LOW, strict=True)}
    assert halves == {(True, True), (True, False), (False, True), (False, False)}
