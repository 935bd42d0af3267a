"""Bound launches: what is fixed is packed once, what moves is written on each call."""

from __future__ import annotations

import gc
import itertools
import struct
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from launch_kit import (
    KEY,
    STREAM,
    OneElement,
    Pointer,
    RecordingDriver,
    dispatch,
    launch,
    plan,
)

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.expressions import Arg

ABCD = "a:i64 b:i32 c:i64 d:i32"


def packed(a: int, b: int, c: int, d: int) -> bytes:
    return struct.pack("<qi4xqi4x", a, b, c, d)


@pytest.mark.parametrize("fixed", [f for n in range(5) for f in itertools.combinations("abcd", n)])
def test_any_arguments_can_be_fixed(recorder: RecordingDriver, fixed: tuple[str, ...]) -> None:
    values = {"a": 0x7F00_0000_0001, "b": 2, "c": 0x7F00_0000_0003, "d": 4}
    bound = launch(ABCD, recorder).bind(**{n: values[n] for n in fixed})
    moving = [n for n in "abcd" if n not in fixed]
    assert [a.name for a in bound.arguments] == moving
    bound(*(values[n] for n in moving), stream=STREAM)
    bound(*(-1 for _ in moving), STREAM)
    bound(**{n: values[n] for n in reversed(moving)}, stream=STREAM)
    expected = packed(0x7F00_0000_0001, 2, 0x7F00_0000_0003, 4)
    assert [recorder.submitted[0].kernargs, recorder.last] == [expected, expected]
    between = packed(*(values[n] if n in fixed else -1 for n in "abcd"))
    assert recorder.submitted[1].kernargs == between
    assert {s.stream for s in recorder.submitted} == {STREAM}


def test_names_of_arguments_may_be_those_of_the_functions_own(recorder: RecordingDriver) -> None:
    bound = launch("a1:i64 a0:i64 last:i64 self:i64 rest:i64 named:i64", recorder).bind(self=4)
    bound(a0=2, a1=1, named=6, rest=5, last=3)
    assert recorder.last == struct.pack("<6q", 1, 2, 3, 4, 5, 6)


def test_all_types_can_move(recorder: RecordingDriver) -> None:
    k2 = launch("a:i8 b:i16 c:i32 d:i64 e:ptr f:f32 g:f64", recorder)
    values = {"a": -2, "b": 300, "c": -70000, "d": 2**40, "e": 2**47, "f": 1.5, "g": -0.25}
    expected = bytes.fromhex(
        "fe00 2c01 90eefeff 0000000000010000 0000000000800000 0000c03f 00000000 000000000000d0bf"
    )
    for name in values:
        rest = {n: v for n, v in values.items() if n != name}
        k2.bind(**rest)(values[name])
        assert recorder.last == expected
    k2.bind(f=1.5, g=-0.25)(-2, 300, -70000, 2**40, 2**47)
    assert recorder.last == expected


def test_moving_integers_have_no_sign(recorder: RecordingDriver) -> None:
    bound = launch("a:i8 b:i16 c:i32 d:i64 e:ptr", recorder).bind()
    bound(255, 65535, 2**32 - 1, 2**64 - 1, 2**64 - 1)
    assert recorder.last == bytes.fromhex("ff00ffff ffffffff" + "ff" * 16)
    bound(-128, -32768, -(2**31), -(2**63), -1)
    assert recorder.last == bytes.fromhex("8000 0080 00000080 0000000000000080" + "ff" * 8)


def test_a_moving_tensor_means_its_address(recorder: RecordingDriver) -> None:
    bound = launch(ABCD, recorder).bind(b=2, d=4)
    bound(1, 3)
    bound(OneElement(0x7F00_0000_2000), 3)
    assert recorder.last == packed(0x7F00_0000_2000, 2, 3, 4)
    bound(OneElement(0x7F00_0000_2000), Pointer(0x7F00_0000_1000))
    assert recorder.last == packed(0x7F00_0000_2000, 2, 0x7F00_0000_1000, 4)


def test_a_moving_argument_may_have_several_fields_or_none(recorder: RecordingDriver) -> None:
    spread = plan(
        "a:i64 b:i32 c:i64",
        dispatch([("x", "i64", Arg("a")), ("y", "i32", Arg("b")), ("z", "i64", Arg("a"))]),
    )
    bound = launch(spread, recorder).bind(c=0, b=2)
    bound(1)
    assert recorder.last == struct.pack("<qi4xq", 1, 2, 1)
    unused = launch(spread, recorder).bind(b=2)
    unused(1, 9)
    assert recorder.last == struct.pack("<qi4xq", 1, 2, 1)
    with pytest.raises(ArgumentMismatch, match="'c' is of type i64 and cannot take str"):
        unused(1, "nine")
    assert len(recorder.submitted) == 2


class TestMismatches:
    @pytest.mark.parametrize(
        ("call", "what"),
        [
            (lambda b: b(), "takes 2 arguments and was given 0; missing: a, c"),
            (lambda b: b(1), "takes 2 arguments and was given 1; missing: c"),
            (lambda b: b(1, stream=STREAM), "takes 2 arguments and was given 1; missing: c"),
            (lambda b: b(c=1), "takes 2 arguments and was given 1; missing: a"),
            (lambda b: b(1, 3, STREAM, 4), "takes 2 arguments and was given 4"),
            (lambda b: b(1, 3, STREAM, stream=STREAM), "two streams, or one argument too many"),
            (lambda b: b(1, 3, a=1), "'a' both by position and by name"),
            (lambda b: b(1, 3, b=2), "was given 'b' and has it bound already"),
            (lambda b: b(1, 3, e=2), "was given 'e' and does not have it"),
            (lambda b: b(1, None), "'c' is of type i64 and cannot take NoneType None"),
            (lambda b: b(1.0, 3), "'a' is of type i64 and cannot take float 1.0"),
            (lambda b: b(1, 2**64), "argument 'c' = 18446744073709551616 does not fit in i64"),
            (lambda b: b(1, 3, stream="x"), "not a stream: str 'x'"),
            (lambda b: b.bind(b=3), "was given 'b' and has it bound already"),
            (lambda b: b.bind(e=3), "was given 'e' and does not have it"),
            (lambda b: b.bind(a="x"), "'a' is of type i64 and cannot take str 'x'"),
        ],
    )
    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_a_call_that_does_not_fit_is_refused(
        self,
        recorder: RecordingDriver,
        call: Callable[[Any], None],
        what: str,
        earlier_calls: int,
    ) -> None:
        bound = launch(ABCD, recorder).bind(b=2, d=4)
        for _ in range(earlier_calls):
            bound(1, 3)
        recorder.submitted.clear()
        with pytest.raises(ArgumentMismatch) as caught:
            call(bound)
        assert what in str(caught.value)
        assert caught.value.where == str(KEY)
        assert recorder.submitted == []
        bound(1, 3)
        assert recorder.last == packed(1, 2, 3, 4)

    def test_a_launch_refuses_to_bind_what_it_does_not_have(
        self, recorder: RecordingDriver
    ) -> None:
        k2 = launch(plan(ABCD, stream="queue"), recorder)
        with pytest.raises(ArgumentMismatch, match="was given 'e' and does not have it"):
            k2.bind(e=1)
        with pytest.raises(ArgumentMismatch, match="two streams"):
            k2.bind(queue=STREAM, stream=STREAM)

    def test_a_moving_float_that_is_too_large_is_refused(self, recorder: RecordingDriver) -> None:
        bound = launch("x:f32 n:i32", recorder).bind(n=1)
        bound(1.0)
        with pytest.raises(ArgumentMismatch, match="'x' = 1e\\+39 does not fit in f32"):
            bound(1e39)
        assert len(recorder.submitted) == 1


class TestStreams:
    @pytest.mark.parametrize(
        ("stream", "raw"),
        [(None, 0), (STREAM, STREAM), (SimpleNamespace(cuda_stream=77), 77)],
    )
    def test_it_can_be_bound(self, recorder: RecordingDriver, stream: object, raw: int) -> None:
        k2 = launch(plan(ABCD, stream="queue"), recorder)
        for bound in (
            k2.bind(stream=stream, b=2, d=4),
            k2.bind(queue=stream, b=2, d=4),
            k2.bind(b=2).bind(queue=stream, d=4),
            k2.bind(b=2, stream=stream).bind(d=4),
        ):
            recorder.submitted.clear()
            bound(1, 3)
            bound(c=3, a=1)
            bound(1, Pointer(3))
            assert [(s.stream, s.kernargs) for s in recorder.submitted] == [
                (raw, packed(1, 2, 3, 4))
            ] * 3
            for call in (
                lambda bound=bound: bound(1, 3, STREAM),
                lambda bound=bound: bound(1, 3, stream=STREAM),
                lambda bound=bound: bound(1, 3, queue=STREAM),
                lambda bound=bound: bound.bind(stream=STREAM),
                lambda bound=bound: bound.bind(queue=STREAM),
            ):
                with pytest.raises(ArgumentMismatch, match=r"bound already|was given 3"):
                    call()
            assert len(recorder.submitted) == 3

    def test_it_can_be_given_on_each_call(self, recorder: RecordingDriver) -> None:
        bound = launch(plan(ABCD, stream="queue"), recorder).bind(b=2, d=4)
        torch_stream = SimpleNamespace(cuda_stream=77)
        bound(1, 3)
        bound(1, 3, STREAM)
        bound(1, 3, None)
        bound(1, 3, stream=torch_stream)
        bound(1, 3, queue=torch_stream)
        bound(1, 3, torch_stream)
        assert [s.stream for s in recorder.submitted] == [0, STREAM, 0, 77, 77, 77]

    def test_a_launcher_without_a_stream_takes_one_by_name_only(
        self, recorder: RecordingDriver
    ) -> None:
        bound = launch(plan(ABCD, stream=None), recorder).bind(b=2, d=4)
        bound(1, 3, stream=STREAM)
        with pytest.raises(ArgumentMismatch, match="takes 2 arguments and was given 3"):
            bound(1, 3, STREAM)
        assert [s.stream for s in recorder.submitted] == [STREAM]

    @pytest.mark.parametrize("bind", [{}, {"stream": None}, {"stream": 2}])
    def test_the_default_stream_of_another_device_is_refused(self, bind: dict[str, object]) -> None:
        recorder = RecordingDriver(devices=2, current=1)
        bound = launch(ABCD, recorder, device=1).bind(b=2, d=4, **bind)
        bound(1, 3)
        recorder.current = 0
        with pytest.raises(ArgumentMismatch, match=r"current device 0.*runs on device 1"):
            bound(1, 3)
        assert len(recorder.submitted) == 1


class TestWhatStaysAlive:
    def test_fixed_tensors_and_the_stream_live_as_long_as_the_bound_launch(
        self, recorder: RecordingDriver
    ) -> None:
        class Stream:
            cuda_stream = 77

        k2 = launch(ABCD, recorder)
        tensor, stream = Pointer(4096), Stream()
        alive = [weakref.ref(tensor), weakref.ref(stream)]
        first = k2.bind(a=tensor, stream=stream)
        second = first.bind(b=2)
        del tensor, stream, first
        gc.collect()
        assert all(r() is not None for r in alive)
        second(3, 4)
        assert recorder.last == packed(4096, 2, 3, 4)
        # At once, not when the garbage collector comes by: tensors are device memory.
        gc.disable()
        try:
            del second
            assert [r() for r in alive] == [None, None]
        finally:
            gc.enable()

    def test_closing_the_launch_lets_go_of_them(self, recorder: RecordingDriver) -> None:
        k2 = launch(ABCD, recorder)
        tensor = Pointer(4096)
        alive = weakref.ref(tensor)
        bound = k2.bind(a=tensor)
        del tensor
        assert alive() is not None
        k2.close()
        assert alive() is None
        assert bound.launch is k2


def test_binding_more_leaves_the_first_as_it_was(recorder: RecordingDriver) -> None:
    first = launch(ABCD, recorder).bind(b=2)
    second = first.bind(d=4)
    second(1, 3)
    first(5, 6, 7)
    assert [s.kernargs for s in recorder.submitted] == [packed(1, 2, 3, 4), packed(5, 2, 6, 7)]


def test_what_is_fixed_is_packed_and_prepared_once(recorder: RecordingDriver) -> None:
    bound = launch(ABCD, recorder).bind(a=1, b=2, c=3)
    for n in range(5):
        bound(n)
    assert recorder.prepared == 1
    assert [s.kernargs for s in recorder.submitted] == [packed(1, 2, 3, n) for n in range(5)]


def test_nothing_left_to_give_is_a_call_without_arguments(recorder: RecordingDriver) -> None:
    bound = launch(ABCD, recorder).bind(a=1, b=2, c=3, d=4, stream=STREAM)
    bound()
    bound()
    assert [(s.stream, s.kernargs) for s in recorder.submitted] == [
        (STREAM, packed(1, 2, 3, 4))
    ] * 2
    with pytest.raises(ArgumentMismatch, match="takes 0 arguments and was given 1"):
        bound(1)


def test_it_describes_itself(recorder: RecordingDriver) -> None:
    bound = launch(ABCD, recorder).bind(a=1, c=3)
    assert repr(bound).startswith("<function k2(b, d) at ")
    assert bound.__doc__ == "standin/k2 gfx950 tokens=6, on which everything is fixed but: b, d"


def test_the_check_covers_what_is_fixed_and_what_moves(recorder: RecordingDriver) -> None:
    bound = launch(ABCD, recorder).bind(a=1, c=3)
    bound.check(2, 4)
    bound.check(d=4, b=2, stream=STREAM)
    with pytest.raises(ArgumentMismatch, match="missing: d"):
        bound.check(2)
    with pytest.raises(ArgumentMismatch, match="'d' = 4294967296 does not fit in i32"):
        bound.check(2, 2**32)
    assert recorder.submitted == []


def test_a_call_that_fails_in_the_driver_leaves_it_as_it_was(recorder: RecordingDriver) -> None:
    k2 = launch(ABCD, recorder)
    bound = k2.bind(b=2, d=4)
    recorder.failure = OSError("lost")
    with pytest.raises(OSError, match="lost"):
        bound(9, 9)
    recorder.failure = None
    bound(1, 3)
    assert [s.kernargs for s in recorder.submitted] == [packed(1, 2, 3, 4)]
    assert (recorder.prepared, k2.calls) == (1, 1)


def test_threads_never_share_a_buffer(recorder: RecordingDriver) -> None:
    """Every call waits, half read, until the other thread has started one."""
    k2 = launch(ABCD, recorder)
    bound = k2.bind(b=2)
    together = threading.Barrier(2, timeout=30)
    recorder.during = together.wait

    def run(number: int) -> None:
        for _ in range(100):
            bound(number, number, number, STREAM)

    threads = [threading.Thread(target=run, args=(n,)) for n in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = sorted(s.kernargs for s in recorder.submitted)
    assert seen == [packed(5, 2, 5, 5)] * 100 + [packed(6, 2, 6, 6)] * 100
    assert recorder.prepared == 2
    assert k2.calls == 200
