"""Vector floats, scaled conversions and swaps of lanes, with every lane on, some and none.

References are numpy's f32 arithmetic, ``math`` in f64 and torch's fp8 format; functions that hardware only
approximates are held to one unit in the last place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from asm_kit import Machine, Snippet
from table_kit import ARCHS, EXECS, LANES, OLD, Row, table_machine, vector_kernels, wrong_rows
from tries_kit import f32

NUMBERS = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, 3.0e38, 2.0**-149)
X = [NUMBERS[n // 8] for n in LANES]
Y = [NUMBERS[n % 8] for n in LANES]
Z = [NUMBERS[(3 * n + n // 8) % 8] for n in LANES]
NAN = 0x7FC00000
Values = list[float]


def _bits(values: np.ndarray) -> list[int]:
    return [int(v) for v in values.astype(np.float32).view(np.uint32)]


def _with(function: Callable[..., np.ndarray], *sources: Values) -> list[int]:
    with np.errstate(all="ignore"):
        return _bits(function(*(np.array(s, dtype=np.float32) for s in sources)))


# Results without NaN: of inf - inf only that it is NaN is known, so these lanes have other inputs.
def _defined(values: Values, others: Values, same_sign: bool) -> Values:
    return [
        2.5 if math.isinf(x) and math.isinf(y) and ((x == y) == same_sign) else y
        for x, y in zip(values, others, strict=True)
    ]


DIFFERENT = _defined(X, Y, same_sign=True)  # for x - y
ARITHMETIC = [
    ("v_sub_f32 {d}, v1, v2", lambda x, y: x - y),
    ("v_sub_f32 {d}, v1, v2 clamp", lambda x, y: np.clip(x - y, 0, 1) + np.float32(0)),
    ("v_sub_f32 {d}, v1, v2 mul:2", lambda x, y: (x - y) * np.float32(2)),
    ("v_sub_f32 {d}, v1, v2 div:2", lambda x, y: (x - y) * np.float32(0.5)),
    ("v_subrev_f32 {d}, v1, v2", lambda x, y: y - x),
    ("v_sub_f32 {d}, -v1, -v2", lambda x, y: -x - -y),
    ("v_add_f32 {d}, v1, -v2", lambda x, y: x + -y),
    ("v_sub_f32 {d}, 1.0, v2", lambda x, y: 1 - y),
    ("v_sub_f32 {d}, 0x40490fdb, v2", lambda x, y: np.float32(math.pi) - y),
    ("v_sub_f32 {d}, s4, v2", lambda x, y: np.float32(-7.25) - y),
]


def _minimum(*values: float) -> int:
    """IEEE 754-2019 minimum: NaN wins, and -0 is below +0."""
    if any(math.isnan(v) for v in values):
        return NAN
    return f32(min(values, key=lambda v: (v, math.copysign(1, v))))


def _rows(arch: str) -> list[Row]:
    # Denormals with omod are flushed by hardware: lanes whose result is one have no such row.
    rows = []
    for text, function in ARITHMETIC:
        if "mul:" not in text and "div:" not in text:
            rows.append(Row(text, (_with(function, X, DIFFERENT),)))
        else:
            rows.append(Row(text.replace("v1", "v5").replace("v2", "v6"), (_omod(function),)))
    if arch == "gfx950":
        want = [_minimum(*v) for v in zip(X, Y, Z, strict=True)]
        rows.append(Row("v_minimum3_f32 {d}, v1, v3, v4", (want,)))
        want = [_minimum(-abs(x), y, 1.0) for x, y in zip(X, Y, strict=True)]
        rows.append(Row("v_minimum3_f32 {d}, -|v1|, v3, 1.0", (want,)))
        rows.append(Row("v_minimum3_f32 {d}, v1, s5, v3", ([NAN] * 64,)))
        rows += _scaled_rows()
    return rows


PLAIN_X = [float(n) - 30.5 for n in LANES]
PLAIN_Y = [n * n / 8 for n in LANES]


def _omod(function: Callable[..., np.ndarray]) -> list[int]:
    return _with(function, PLAIN_X, PLAIN_Y)


# Codes of e4m3 that are no NaN, four a lane.
CODES = [[(61 * n + 83 * k + 5) % 256 for k in range(4)] for n in LANES]
CODES = [[c if c & 0x7F != 0x7F else 0x38 for c in four] for four in CODES]
SCALES = [2.0 ** (n % 9 - 4) for n in LANES]


def _scaled_rows() -> list[Row]:
    codes = torch.tensor(CODES, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64)
    values = (codes * torch.tensor(SCALES, dtype=torch.float64)[:, None]).to(torch.float32)
    words = [[f32(v) for v in four] for four in values.tolist()]
    rows = []
    for half, selected in enumerate(("", " op_sel:[1,0]")):
        first, second = ([w[2 * half + k] for w in words] for k in range(2))
        # Four significant bits fit bf16: no rounding.
        packed = [a >> 16 | b & 0xFFFF0000 for a, b in zip(first, second, strict=True)]
        rows.append(Row(f"v_cvt_scalef32_pk_f32_fp8 {{d}}, v7, v8{selected}", (first, second)))
        rows.append(Row(f"v_cvt_scalef32_pk_bf16_fp8 {{d}}, v7, v8{selected}", (packed,)))
    return rows


INPUTS = {
    1: [f32(x) for x in X],
    2: [f32(y) for y in DIFFERENT],
    3: [f32(y) for y in Y],
    4: [f32(z) for z in Z],
    5: [f32(x) for x in PLAIN_X],
    6: [f32(y) for y in PLAIN_Y],
    7: [int.from_bytes(bytes(four), "little") for four in CODES],
    8: [f32(s) for s in SCALES],
}
KERNELS = {a: dict(vector_kernels(_rows(a), INPUTS, {4: f32(-7.25), 5: NAN})) for a in ARCHS}

# Approximated functions: (argument, exact value in f64); infinities, zeros and NaN are exact.
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "v_exp_f32": lambda x: 2.0**x,
    "v_log_f32": math.log2,
    "v_sqrt_f32": math.sqrt,
    "v_rsq_f32": lambda x: 1 / math.sqrt(x),
}
# (argument, result), exact: zeros with their signs, infinities, numbers out of range, powers of two.
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "v_exp_f32": [(0.0, 1.0), (-0.0, 1.0), (math.inf, math.inf), (-math.inf, 0.0), (200.0, math.inf), (-200.0, 0.0)],
    "v_log_f32": [(0.0, -math.inf), (-0.0, -math.inf), (math.inf, math.inf), (-1.0, math.nan), (1.0, 0.0)],
    "v_sqrt_f32": [(0.0, 0.0), (-0.0, -0.0), (math.inf, math.inf), (-1.0, math.nan), (4.0, 2.0)],
    "v_rsq_f32": [(0.0, math.inf), (-0.0, -math.inf), (math.inf, 0.0), (-1.0, math.nan), (4.0, 0.5)],
}  # fmt: skip


def _argument(name: str, n: int) -> float:
    """Normal arguments with normal results, of many sizes."""
    value = (n - 31.7) * 2.9 if name == "v_exp_f32" else (1 + n / 77) * 2.0 ** (3 * n - 100)
    return float(np.float32(value))


def _snippets(arch: str) -> dict[str, Snippet]:
    found = {}
    for name in FUNCTIONS:
        special = [f32(x) for x, _ in SPECIAL[name]] + [NAN]
        for on, mask in EXECS.items():
            plain = [f32(_argument(name, n)) for n in LANES]
            found[f"{name}_{on}"] = Snippet(
                f"{name} v10, v1\n  {name} v11, v2\n  {name} v12, s5\n  {name} v13, 2.0",
                vector={1: plain, 2: special + [NAN] * (64 - len(special)), 10: OLD, 11: OLD, 12: OLD, 13: OLD},
                scalar={5: f32(3.0)},
                exec=mask,
                results=(10, 11, 12, 13),
            )  # fmt: skip
    if arch == "gfx950":
        for name in ("v_permlane16_swap_b32", "v_permlane32_swap_b32"):
            inputs = {10: [100 + n for n in LANES], 11: [200 + n for n in LANES]}
            found[name] = Snippet(f"{name} v10, v11", vector=inputs, results=(10, 11))
    return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Machine, Machine]]:
    found = {}
    for arch in ARCHS:
        table = table_machine(KERNELS[arch], arch, tmp_path_factory.mktemp(arch))
        found[arch] = (table, Machine(_snippets(arch), arch, tmp_path_factory.mktemp(arch)))
    return found


@pytest.mark.parametrize(("arch", "name"), [(a, n) for a in ARCHS for n in KERNELS[a]])
def test_floats(machines: dict[str, tuple[Machine, Machine]], arch: str, name: str) -> None:
    assert wrong_rows(machines[arch][0], name, KERNELS[arch][name]) == {}


def _float(code: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", code))[0])


def _is_near(code: int, exact: float) -> bool:
    """Within one unit in the last place, and the same sign; log2 near 1 is not among the arguments."""
    return abs(_float(code) - exact) <= 2.0**-23 * 2.0 ** math.floor(math.log2(abs(exact)))


@pytest.mark.parametrize("on", EXECS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("arch", ARCHS)
def test_approximated_functions(
    machines: dict[str, tuple[Machine, Machine]], arch: str, name: str, on: str
) -> None:
    result = machines[arch][1].run(f"{name}_{on}").vector
    function, special = FUNCTIONS[name], SPECIAL[name]
    for n in LANES:
        if not EXECS[on] >> n & 1:
            assert [result[r][n] for r in (10, 11, 12, 13)] == [OLD] * 4
            continue
        assert _is_near(result[10][n], function(_argument(name, n))), n
        assert _is_near(result[12][n], function(3.0))
        assert _is_near(result[13][n], function(2.0))
        want = special[n][1] if n < len(special) else math.nan
        got = result[11][n]
        assert (math.isnan(_float(got)) and math.isnan(want)) or got == f32(want), (n, got, want)


@pytest.mark.parametrize(
    ("name", "width"), [("v_permlane16_swap_b32", 16), ("v_permlane32_swap_b32", 32)]
)
def test_swaps_of_lanes(
    machines: dict[str, tuple[Machine, Machine]], name: str, width: int
) -> None:
    result = machines["gfx950"][1].run(name).vector
    assert result[10] == [200 + n - width if n & width else 100 + n for n in LANES]
    assert result[11] == [200 + n if n & width else 100 + n + width for n in LANES]
