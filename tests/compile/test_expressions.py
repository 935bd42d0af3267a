"""Integer expressions against hand-computed values of LLVM's semantics."""

from __future__ import annotations

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import (
    Arg,
    Const,
    Op,
    argument_names,
    evaluate,
    expression_from_json,
    expression_to_json,
)

# Values worked out by hand from the LLVM language reference ("Binary Operations" and following).
CASES = [
    ("add", 32, 2147483647, 1, -2147483648),
    ("sub", 32, -2147483648, 1, 2147483647),
    ("mul", 32, 65536, 65536, 0),
    ("mul", 64, 65536, 65536, 4294967296),
    ("sdiv", 32, -7, 2, -3),
    ("sdiv", 32, 7, -2, -3),
    ("srem", 32, -7, 2, -1),
    ("udiv", 32, -1, 2, 2147483647),
    ("urem", 32, -1, 10, 5),
    ("and", 32, 12, 10, 8),
    ("or", 32, 12, 10, 14),
    ("xor", 32, 12, 10, 6),
    ("shl", 32, 1, 31, -2147483648),
    ("lshr", 32, -1, 28, 15),
    ("ashr", 32, -16, 2, -4),
    ("smax", 32, -1, 1, 1),
    ("umax", 32, -1, 1, -1),
    ("smin", 32, -1, 1, -1),
    ("umin", 32, -1, 1, 1),
    ("slt", 32, -1, 1, 1),
    ("ult", 32, -1, 1, 0),
    ("sge", 32, 1, 1, 1),
    ("ne", 1, 1, -1, 0),
]


@pytest.mark.parametrize(("name", "width", "left", "right", "expected"), CASES)
def test_operations_have_llvm_semantics(
    name: str, width: int, left: int, right: int, expected: int
) -> None:
    assert evaluate(Op(name, width, (Const(left), Arg("x"))), {"x": right}) == expected


def test_casts_keep_or_drop_the_sign() -> None:
    value = Const(-1)
    assert evaluate(Op("zext", 64, (value, Const(32))), {}) == 4294967295
    assert evaluate(Op("sext", 64, (value,)), {}) == -1
    assert evaluate(Op("trunc", 8, (Const(384),)), {}) == -128


def test_select_takes_the_branch_of_its_condition() -> None:
    chosen = Op("select", 32, (Op("sgt", 32, (Arg("n"), Const(0))), Const(5), Const(7)))
    assert evaluate(chosen, {"n": 1}) == 5
    assert evaluate(chosen, {"n": 0}) == 7


def test_a_missing_argument_and_a_zero_divisor_are_errors() -> None:
    with pytest.raises(InvalidValue, match="no argument named 'n'"):
        evaluate(Arg("n"), {})
    with pytest.raises(InvalidValue, match="division by zero"):
        evaluate(Op("sdiv", 32, (Const(1), Arg("n"))), {"n": 0})
    with pytest.raises(InvalidValue, match="shift by 32"):
        evaluate(Op("shl", 32, (Const(1), Const(32))), {})


def test_json_form_is_the_documented_one_and_comes_back() -> None:
    expression = Op("sdiv", 32, (Op("add", 32, (Arg("n"), Const(255))), Const(256)))
    written = {
        "op": "sdiv",
        "width": 32,
        "of": [{"op": "add", "width": 32, "of": [{"arg": "n"}, 255]}, 256],
    }
    assert expression_to_json(expression) == written
    assert expression_from_json(written) == expression
    assert argument_names(expression) == {"n"}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        True,
        1.5,
        "n",
        {"arg": 3},
        {"op": "pow", "width": 32, "of": [1, 2]},
        {"op": "add", "width": 65, "of": [1, 2]},
        {"op": "add", "width": 32, "of": [1]},
        {"op": "select", "width": 32, "of": [1, 2]},
        {"op": "add", "width": 32, "of": [1, 2], "extra": 0},
    ],
)
def test_anything_else_is_not_an_expression(bad: object) -> None:
    with pytest.raises(InvalidValue):
        expression_from_json(bad)
