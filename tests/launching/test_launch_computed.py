"""Grids and kernel arguments that are expressions, and launches of several dispatches."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from launch_kit import STREAM, RecordingDriver, Submitted, dispatch, launch, plan

from mono_runtime.errors import ArgumentMismatch, InvalidValue, Released
from mono_runtime.expressions import Arg, Const, Op

TOKENS = Arg("tokens")
# (tokens + 15) / 16
TILES = Op("udiv", 32, (Op("add", 32, (TOKENS, Const(15))), Const(16)))
COMPUTED = plan(
    "x:i64 tokens:i32",
    dispatch(
        [("x", "i64", Arg("x")), ("bytes", "i64", Op("mul", 64, (Op("zext", 64, (TOKENS, Const(32))), Const(10240)))), ("n", "i32", TOKENS)],
        grid=(TILES, Const(2), Const(1)),
        block=(Const(64), Const(1), Const(1)),
        dynamic_lds=Op("shl", 32, (TOKENS, Const(2))),
    ),
)  # fmt: skip


def test_grid_lds_and_kernel_arguments_follow_the_call(recorder: RecordingDriver) -> None:
    step = launch(COMPUTED, recorder)
    step(4096, 17, stream=STREAM)
    step(4096, tokens=16, stream=STREAM)
    assert recorder.submitted == [
        Submitted(1, (2, 2, 1), (64, 1, 1), 68, STREAM, struct.pack("<qqi4x", 4096, 174080, 17)),
        Submitted(1, (1, 2, 1), (64, 1, 1), 64, STREAM, struct.pack("<qqi4x", 4096, 163840, 16)),
    ]


def test_an_argument_that_feeds_an_expression_can_move(recorder: RecordingDriver) -> None:
    bound = launch(COMPUTED, recorder).bind(x=4096)
    bound(17, STREAM)
    bound(tokens=SimpleNamespace(value=16), stream=STREAM)
    assert [s.grid for s in recorder.submitted] == [(2, 2, 1), (1, 2, 1)]
    assert recorder.last == struct.pack("<qqi4x", 4096, 163840, 16)


def test_each_grid_is_prepared_once(recorder: RecordingDriver) -> None:
    step = launch(COMPUTED, recorder)
    for tokens in (16, 32, 16, 32, 16):
        step(1, tokens)
    assert recorder.prepared == 2


def test_many_grids_do_not_pile_up(recorder: RecordingDriver) -> None:
    step = launch(COMPUTED, recorder)
    for tokens in range(1, 200):
        step(1, tokens)
    assert [s.dynamic_lds for s in recorder.submitted] == [4 * n for n in range(1, 200)]


@pytest.mark.parametrize(
    ("tokens", "what"),
    [
        (0, r"kernel would run on a grid of \(0, 2, 1\)"),
        (2**32, "argument 'tokens' = 4294967296 does not fit in i32"),
        (2**29, "kernel would run with -2147483648 bytes of dynamic LDS"),
    ],
)
def test_what_gives_no_grid_is_refused(recorder: RecordingDriver, tokens: int, what: str) -> None:
    step = launch(COMPUTED, recorder)
    with pytest.raises(ArgumentMismatch, match=what):
        step(1, tokens)
    assert recorder.submitted == []


def test_an_undefined_expression_is_refused(recorder: RecordingDriver) -> None:
    quotient = Op("sdiv", 32, (Const(100), Arg("n")))
    step = launch(plan("n:i32", dispatch([("q", "i32", quotient)])), recorder)
    with pytest.raises(ArgumentMismatch, match="division by zero in sdiv"):
        step(0)
    step(-7)
    assert [s.kernargs for s in recorder.submitted] == [struct.pack("<i4x", -14)]


def test_a_constant_grid_that_is_none_is_found_at_load(recorder: RecordingDriver) -> None:
    for bad in (Const(0), Const(-1), Const(2**32)):
        with pytest.raises(InvalidValue, match="would run on a grid of"):
            launch(plan("n:i32", dispatch([], grid=(Const(1), bad, Const(1)))), recorder)


def test_a_value_copied_into_a_narrower_field_has_to_fit(recorder: RecordingDriver) -> None:
    step = launch(plan("n:i64", dispatch([("n", "i32", Arg("n"))])), recorder)
    step(2**32 - 1)
    assert recorder.last == bytes.fromhex("ffffffff 00000000")
    with pytest.raises(ArgumentMismatch, match=r"'kernel\(n\)' = 4294967296 does not fit in i32"):
        step(2**32)
    assert len(recorder.submitted) == 1


class TestSeveralDispatches:
    PLAN = plan(
        "a:i64 b:i64",
        dispatch([("x", "i64", Arg("a"))], symbol="first"),
        dispatch([("x", "i64", Arg("b")), ("y", "i64", Arg("a"))], symbol="second"),
        dispatch([("x", "i64", Op("sub", 64, (Arg("a"), Arg("b"))))], symbol="third"),
    )

    def test_all_are_submitted_in_order_on_one_stream(self, recorder: RecordingDriver) -> None:
        step = launch(self.PLAN, recorder)
        for _ in range(2):
            step(5, 3, stream=STREAM)
        one = [(1, STREAM, "05"), (2, STREAM, "03"), (3, STREAM, "02")]
        seen = [(s.function, s.stream, s.kernargs[:1].hex()) for s in recorder.submitted]
        assert seen == one * 2
        assert recorder.submitted[1].kernargs == struct.pack("<qq", 3, 5)
        assert step.calls == 2

    def test_none_is_submitted_when_one_cannot_be(self, recorder: RecordingDriver) -> None:
        odd = plan(
            "a:i64",
            dispatch([("x", "i64", Arg("a"))]),
            dispatch([("x", "i64", Op("udiv", 64, (Const(8), Arg("a"))))]),
        )
        with pytest.raises(ArgumentMismatch, match="division by zero"):
            launch(odd, recorder)(0)
        assert recorder.submitted == []

    def test_a_call_inside_a_call_has_buffers_of_its_own(self, recorder: RecordingDriver) -> None:
        step = launch(self.PLAN, recorder)
        step(7, 7)
        recorder.submitted.clear()
        inner = iter([lambda: step(50, 30)] + [lambda: None] * 10)
        recorder.during = lambda: next(inner)()
        step(5, 3)
        seen = [(s.function, s.kernargs[0]) for s in recorder.submitted]
        assert seen == [(1, 50), (2, 30), (3, 20), (1, 5), (2, 3), (3, 2)]

    def test_closing_ends_it(self, recorder: RecordingDriver) -> None:
        step = launch(self.PLAN, recorder)
        bound = step.bind(a=5)
        step(5, 3)
        bound(3)
        recorder.submitted.clear()
        step.close()
        for call in (lambda: step(5, 3), lambda: bound(3)):
            with pytest.raises(Released):
                call()
        assert recorder.submitted == []
