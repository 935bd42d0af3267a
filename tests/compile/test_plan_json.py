"""The one form that a launch plan has as JSON."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import Arg, Const, Op
from mono_runtime.launch_plan import (
    Argument,
    Dispatch,
    KernelArgument,
    LaunchPlan,
    Workspace,
)

DIGEST = "sha256:" + "0" * 64
ONE = Const(1)
C_TYPES: dict[str, Any] = {
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "ptr": ctypes.c_void_p,
}


def plan(
    arguments: list[list[str]], taken: list[tuple[str, str, int, Any]], size: int = 64
) -> LaunchPlan:
    kernel_arguments = tuple(KernelArgument(*item) for item in taken)
    dispatch = Dispatch(
        "k",
        DIGEST,
        (Const(256), ONE, ONE),
        (Const(512), ONE, ONE),
        Const(0),
        size,
        kernel_arguments,
    )
    made = LaunchPlan(tuple(Argument(*pair) for pair in arguments), "stream", True, (dispatch,))
    made.check()
    return made


def written(caller: list[list[str]], **more: Any) -> dict[str, Any]:
    return {
        "arguments": ", ".join(f"{name} {type_}" for name, type_ in caller),
        "stream": "stream",
        "persistent": True,
        "dispatches": [
            {
                "symbol": "k",
                "code_object": DIGEST,
                "grid": [256, 1, 1],
                "block": [512, 1, 1],
                "dynamic_lds": 0,
                "kernarg_size": 64,
                **more,
            }
        ],
    }


TYPES = ("i8", "i64", "i16", "i32", "f32", "ptr", "i8", "f64")
MIXED = [[f"a{i}", t] for i, t in enumerate(TYPES)]


def c_layout(arguments: list[list[str]]) -> list[tuple[str, str, int, Any]]:
    """The arguments as the members of a C structure."""

    class Segment(ctypes.Structure):
        _fields_ = tuple((name, C_TYPES[type_]) for name, type_ in arguments)

    return [(n, t, getattr(Segment, n).offset, Arg(n)) for n, t in arguments]


@pytest.mark.parametrize("arguments", [[], [["x", "i64"]], [["n", "i32"], ["x", "ptr"]], MIXED])
def test_arguments_that_go_to_the_kernel_as_they_are_are_written_once(
    arguments: list[list[str]],
) -> None:
    made = plan(arguments, c_layout(arguments))
    assert made.to_json() == written(arguments)
    assert LaunchPlan.from_json(written(arguments)) == made


TWO = [["x", "i64"], ["n", "i32"]]


def test_the_caller_s_arguments_are_one_line() -> None:
    assert plan(TWO, [("x", "i64", 0, Arg("x"))]).to_json()["arguments"] == "x i64, n i32"
    assert plan([], []).to_json()["arguments"] == ""


X, N = ("x", "i64", 0, Arg("x")), ("n", "i32", 8, Arg("n"))
OTHERS: dict[str, list[tuple[str, str, int, Any]]] = {
    "none": [],
    "fewer": [X],
    "later": [X, ("n", "i32", 16, Arg("n"))],
    "other order": [("n", "i32", 0, Arg("n")), ("x", "i64", 8, Arg("x"))],
    "listed in another order": [N, X],
    "another type": [("x", "ptr", 0, Arg("x")), N],
    "another name": [("y", "i64", 0, Arg("x")), N],
    "a constant": [X, ("n", "i32", 8, Const(3))],
    "computed": [X, ("n", "i32", 8, Op("add", 32, (Arg("n"), ONE)))],
    "twice": [X, N, ("m", "i32", 12, Arg("n"))],
}
VALUES = {
    Arg("x"): {"arg": "x"},
    Arg("n"): {"arg": "n"},
    Const(3): 3,
    Op("add", 32, (Arg("n"), ONE)): {"op": "add", "width": 32, "of": [{"arg": "n"}, 1]},
}


@pytest.mark.parametrize("case", OTHERS)
def test_arguments_that_differ_in_anything_are_listed(case: str) -> None:
    taken = OTHERS[case]
    made = plan(TWO, taken)
    listed = [{"name": n, "type": t, "offset": o, "value": VALUES[v]} for n, t, o, v in taken]
    assert made.to_json() == written(TWO, arguments=listed)
    assert LaunchPlan.from_json(written(TWO, arguments=listed)) == made


def test_a_list_that_says_what_goes_without_saying_is_refused() -> None:
    listed = [
        {"name": "x", "type": "i64", "offset": 0, "value": {"arg": "x"}},
        {"name": "n", "type": "i32", "offset": 8, "value": {"arg": "n"}},
    ]
    with pytest.raises(InvalidValue, match="lists arguments that are the caller's as they are"):
        LaunchPlan.from_json(written(TWO, arguments=listed))


def test_each_dispatch_has_its_own_form() -> None:
    first = plan(TWO, [X, N])
    second = replace(first.dispatches[0], arguments=(KernelArgument(*X),))
    made = replace(first, dispatches=(first.dispatches[0], second, first.dispatches[0]))
    value = made.to_json()
    assert ["arguments" in d for d in value["dispatches"]] == [False, True, False]
    assert LaunchPlan.from_json(value) == made


def test_the_arguments_must_fit_in_the_segment_though_they_are_not_listed() -> None:
    with pytest.raises(InvalidValue, match="end past its kernarg segment"):
        LaunchPlan.from_json(written(TWO, kernarg_size=11))
    assert LaunchPlan.from_json(written(TWO, kernarg_size=12)).dispatches[0].kernarg_size == 12


def test_plans_of_equal_arguments_share_them() -> None:
    one, two = (LaunchPlan.from_json(written([[*pair] for pair in TWO])) for _ in range(2))
    other = LaunchPlan.from_json(written([["x", "i64"], ["m", "i32"]]))
    assert one.arguments is two.arguments
    assert one.dispatches[0].arguments is two.dispatches[0].arguments
    assert [a.name for a in other.arguments] == ["x", "m"]
    assert [a.name for a in other.dispatches[0].arguments] == ["x", "m"]


def test_many_other_plans_between_two_do_no_harm() -> None:
    before = LaunchPlan.from_json(written(TWO))
    for number in range(200):
        LaunchPlan.from_json(written([[f"a{number}", "i64"]]))
    assert LaunchPlan.from_json(written(TWO)) == before


THREE = [["part", "ptr"], ["n", "i32"], ["epoch", "i64"]]


@pytest.mark.parametrize(
    ("workspace", "text"),
    [
        ([("part", 64)], "part 64"),
        ([("part", 30001), ("epoch", 3328)], "part 30001, epoch 3328"),
    ],
)
def test_workspace_is_one_line_of_names_and_bytes(
    workspace: list[tuple[str, int]], text: str
) -> None:
    made = replace(plan(THREE, c_layout(THREE)), workspace=tuple(Workspace(*w) for w in workspace))
    made.check()
    assert made.to_json() == {**written(THREE), "workspace": text}
    assert LaunchPlan.from_json({**written(THREE), "workspace": text}) == made


@pytest.mark.parametrize(
    ("workspace", "reason"),
    [
        ([("n", 64)], "'n' with workspace is of type i32"),
        ([("stream", 64)], "'stream' with workspace is not there"),
        ([("part", 0)], "the workspace of part is 0 bytes"),
        ([("part", -8)], "the workspace of part is -8 bytes"),
        ([("epoch", 8), ("part", 8)], "the workspace of part is out of the arguments' order"),
        ([("part", 8), ("part", 8)], "the workspace of part is out of the arguments' order"),
    ],
)
def test_workspace_that_no_caller_could_give_is_refused(
    workspace: list[tuple[str, int]], reason: str
) -> None:
    made = replace(plan(THREE, c_layout(THREE)), workspace=tuple(Workspace(*w) for w in workspace))
    with pytest.raises(InvalidValue, match=reason):
        made.check()
