"""Vector integer instructions on edges of the number ranges, with every lane on, some and none.

What each does is written here with Python's integers, after the CDNA3 and CDNA4 ISA documents.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asm_kit import Machine
from table_kit import (
    ARCHS,
    LANES,
    OLD,
    A,
    B,
    C,
    Placed,
    Row,
    lanes,
    signed,
    table_machine,
    vector_kernels,
    wrong_rows,
)

S, LITERAL = 0x80000003, 0x89ABCDEF


def _u24(value: int) -> int:
    return value & 0xFFFFFF


def _i24(value: int) -> int:
    return signed(value, 24)


def _low(value: int) -> int:
    return value & 0xFFFF


def _limited(value: int) -> int:
    return min(max(value, 0), 0xFFFFFFFF)


# One source, or two (these have encodings with a literal).
SHORT: dict[str, Callable[..., int]] = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a & 31),
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min_u32": lambda a, b: min(a, b),
    "v_max_u32": lambda a, b: max(a, b),
    "v_mul_i32_i24": lambda a, b: _i24(a) * _i24(b),
    "v_mul_u32_u24": lambda a, b: _u24(a) * _u24(b),
    "v_mul_hi_u32_u24": lambda a, b: _u24(a) * _u24(b) >> 32,
    # 16 bits: the upper half of the result is 0.
    "v_lshlrev_b16": lambda a, b: _low(b << (a & 15)),
    "v_lshrrev_b16": lambda a, b: _low(b) >> (a & 15),
    "v_ashrrev_i16": lambda a, b: _low(signed(b, 16) >> (a & 15)),
    "v_add_u16": lambda a, b: _low(a + b),
    "v_sub_u16": lambda a, b: _low(a - b),
    "v_mul_lo_u16": lambda a, b: _low(a * b),
}
# Two or three sources, no literal.
LONG: dict[str, Callable[..., int]] = {
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b,
    "v_mad_i32_i24": lambda a, b, c: _i24(a) * _i24(b) + c,
    "v_mad_u32_u24": lambda a, b, c: _u24(a) * _u24(b) + c,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_min3_i32": lambda a, b, c: min(signed(a), signed(b), signed(c)),
    "v_max3_i32": lambda a, b, c: max(signed(a), signed(b), signed(c)),
    "v_min3_u32": lambda a, b, c: min(a, b, c),
    "v_max3_u32": lambda a, b, c: max(a, b, c),
    "v_med3_i32": lambda a, b, c: sorted((signed(a), signed(b), signed(c)))[1],
    "v_med3_u32": lambda a, b, c: sorted((a, b, c))[1],
    "v_bfe_u32": lambda a, b, c: (a >> (b & 31)) & ((1 << (c & 31)) - 1),
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
}


def _rows() -> list[Row]:
    rows = []
    for name, function in (SHORT | LONG).items():
        count = function.__code__.co_argcount
        forms = {"v1": A, "s4": [S] * 64, "-7": [0xFFFFFFF9] * 64}
        if name in SHORT:
            literal = LITERAL & 0x7FFF if name.endswith("16") else LITERAL
            forms[hex(literal)] = [literal] * 64
        rest = ", ".join(["v2", "v3"][: count - 1])
        for first, values in forms.items():
            sources = [values, B, C][:count]
            text = f"{name} {{d}}, {first}" + (f", {rest}" if rest else "")
            rows.append(Row(text, (lanes(function, *sources),)))
    for name, function in LONG.items():
        if function.__code__.co_argcount == 3:
            # The same scalar register twice, and a constant as the last source.
            want = lanes(lambda b, f=function: f(S, b, S), B)
            rows.append(Row(f"{name} {{d}}, s4, v2, s4", (want,)))
            want = lanes(lambda a, b, f=function: f(a, b, 5), A, B)
            rows.append(Row(f"{name} {{d}}, v1, v2, 5", (want,)))
    # A carry beside the result; the masks are in test_table_comparisons.py.
    rows.append(Row("v_subrev_co_u32 {d}, vcc, v1, v2", (lanes(lambda a, b: b - a, A, B),)))
    rows.append(Row("v_subrev_co_u32 {d}, s[30:31], s4, v2", (lanes(lambda b: b - S, B),)))
    products = lanes(lambda a, b: _low(a * b) | _low((a >> 16) * (b >> 16)) << 16, A, B)
    rows.append(Row("v_pk_mul_lo_u16 {d}, v1, v2", (products,)))
    products = lanes(lambda a, b: _low((a >> 16) * b) | _low(a * (b >> 16)) << 16, A, B)
    rows.append(Row("v_pk_mul_lo_u16 {d}, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", (products,)))
    return rows


def _table(table: int, a: int, b: int, c: int) -> int:
    """Bit 4 a + 2 b + c of the table, for each of 16 bits."""
    bits = ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1 for k in range(16))
    return sum((table >> index & 1) << k for k, index in enumerate(bits))


def _gfx950_rows() -> list[Row]:
    rows = []
    for table in (0x01, 0x10, 0x54, 0x96, 0xCA):
        want = lanes(lambda a, b, c, t=table: _table(t, a, b, c) | OLD & 0xFFFF0000, A, B, C)
        rows.append(Row(f"v_bitop3_b16 {{d}}, v1, v2, v3 bitop3:{table:#x}", (want,)))
    upper = lanes(lambda a, b, c: _table(0xCA, a >> 16, b, c >> 16) << 16 | OLD & 0xFFFF, A, B, C)
    rows.append(Row("v_bitop3_b16 {d}, v1, v2, v3 bitop3:0xca op_sel:[1,0,1,1]", (upper,)))
    return rows


def _kernels(arch: str) -> dict[str, Placed]:
    rows = _rows() + (_gfx950_rows() if arch == "gfx950" else [])
    return dict(vector_kernels(rows, {1: A, 2: B, 3: C}, {4: S}))


KERNELS = {arch: _kernels(arch) for arch in ARCHS}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return {a: table_machine(KERNELS[a], a, tmp_path_factory.mktemp(a)) for a in ARCHS}


@pytest.mark.parametrize(("arch", "name"), [(a, n) for a in ARCHS for n in KERNELS[a]])
def test_integers(machines: dict[str, Machine], arch: str, name: str) -> None:
    assert wrong_rows(machines[arch], name, KERNELS[arch][name]) == {}


def test_the_inputs_pair_every_edge_with_every_other() -> None:
    assert len(set(zip(A, B, strict=True))) == len(LANES)
