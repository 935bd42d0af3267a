"""Calls of a launch: what reaches the device, whatever form the call has."""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from launch_kit import (
    KEY,
    STREAM,
    OneElement,
    Pointer,
    RecordingDriver,
    Submitted,
    dispatch,
    launch,
    plan,
)

from mono_runtime.errors import ArgumentMismatch, DriverError, InvalidValue, Released
from mono_runtime.expressions import Arg
from mono_runtime.launching import Launch

ABC = "a:i64 b:i32 c:i64"
# 1, 2 and four bytes of padding, 3, all little-endian.
PACKED_123 = bytes.fromhex("0100000000000000 02000000 00000000 0300000000000000")
# The arguments of vLLM 0.33's deepseek_v41 K2 in its order; i32 where its launcher says Int32.
K2 = """
q swa swa_stride swa_block:i32 comp comp_stride comp_block:i32 kt klen slot swa_idx swa_lens t2r topk
comp_bt bt_stride:i32 pos sink qk_scale:i32 cos_sin woa woa_s wob wob_s zrec res_in post_in comb_in
pre_in hc_fn hc_scale hc_base ffn_w res_out post_out comb_out pre_out gate_w bias w13 w13_s w2 w2_s
sgu sgu_s sw2 sw2_s out scratch sym peers rank:i32 epoch tl
"""
K2_ARGUMENTS = " ".join(a if ":" in a else f"{a}:i64" for a in K2.split())
K2_FORMAT = "<3q i4x 2q i4x 8q i4x 2q i4x 32q i4x 2q"


def test_a_call_of_k2_reaches_the_device_byte_for_byte(recorder: RecordingDriver) -> None:
    k2 = launch(K2_ARGUMENTS, recorder)
    narrow = [3, 6, 15, 18, 51]
    values = [100 + i if i in narrow else 0x7F00_0000_0000 + 4096 * i for i in range(54)]
    k2(*values, stream=STREAM)
    k2(*values, stream=STREAM)
    expected = Submitted(1, (256, 1, 1), (512, 1, 1), 0, STREAM, struct.pack(K2_FORMAT, *values))
    assert len(expected.kernargs) == 432
    assert recorder.submitted == [expected, expected]


@pytest.mark.parametrize("earlier_calls", [0, 1, 2])
def test_arguments_come_by_position_by_name_or_mixed(
    recorder: RecordingDriver, earlier_calls: int
) -> None:
    k2 = launch(ABC, recorder)
    for _ in range(earlier_calls):
        k2(9, 9, 9, stream=STREAM)
    recorder.submitted.clear()
    k2(1, 2, 3, stream=STREAM)
    k2(c=3, a=1, b=2, stream=STREAM)
    k2(1, c=3, b=2, stream=STREAM)
    k2(1, 2, 3, STREAM)
    k2(1, 2, c=3, stream=STREAM)
    assert [s.kernargs for s in recorder.submitted] == [PACKED_123] * 5
    assert {s.stream for s in recorder.submitted} == {STREAM}


def test_sub_word_types_and_floats_are_packed_with_their_padding(
    recorder: RecordingDriver,
) -> None:
    mixed = launch("a:i8 b:i16 c:i8 d:f32 e:i8 f:f64 g:i8 h:ptr", recorder)
    expected = bytes.fromhex(
        "ff00 3412 7f000000 0000c03f 80000000 000000000000f4bf 0100000000000000 8877665544332211"
    )
    for _ in range(2):
        mixed(-1, 0x1234, 127, 1.5, -128, -1.25, 1, 0x1122334455667788, STREAM)
        assert recorder.last == expected


def test_gaps_that_alignment_does_not_ask_for_are_kept(recorder: RecordingDriver) -> None:
    for wide, bits in (("i64", "0200000000000000"), ("f32", "00000040 00000000")):
        taken = plan(f"a:i8 b:{wide} c:i16")
        spread = [
            replace(field, offset=offset)
            for field, offset in zip(taken.dispatches[0].arguments, (3, 16, 30), strict=True)
        ]
        held = replace(taken.dispatches[0], arguments=tuple(spread[::-1]), kernarg_size=32)
        step = launch(replace(taken, dispatches=(held,)), recorder)
        step(1, 2, 3)
        expected = f"000000 01 {'00' * 12} {bits} 000000000000 0300"
        assert recorder.last == bytes.fromhex(expected)


@pytest.mark.parametrize("earlier_calls", [0, 2])
def test_integers_have_no_sign(recorder: RecordingDriver, earlier_calls: int) -> None:
    wide = launch("a:i8 b:i16 c:i32 d:i64 e:ptr", recorder)
    for _ in range(earlier_calls):
        wide(1, 1, 1, 1, 1)
    wide(255, 65535, 2**32 - 1, 2**64 - 1, 2**64 - 1)
    assert recorder.last == bytes.fromhex("ff00ffff ffffffff" + "ff" * 16)
    wide(-128, -32768, -(2**31), -(2**63), -1)
    assert recorder.last == bytes.fromhex("8000 0080 00000080 0000000000000080" + "ff" * 8)


def test_kernel_arguments_may_have_another_order_and_leave_some_out(
    recorder: RecordingDriver,
) -> None:
    swapped = launch(
        plan(
            "a:i32 b:i64 c:i32 d:i64",
            dispatch([("x", "i64", Arg("d")), ("y", "i32", Arg("a")), ("z", "i32", Arg("a"))]),
        ),
        recorder,
    )
    lone = launch(plan("a:i32 b:i64", dispatch([("x", "i64", Arg("b"))])), recorder)
    none = launch(plan("a:i32", dispatch([])), recorder)
    for _ in range(2):
        swapped(1, 2, 3, 4)
        lone(5, 6)
        none(7)
    expected = [
        bytes.fromhex("0400000000000000 01000000 01000000"),
        bytes.fromhex("0600000000000000"),
        b"",
    ]
    assert [s.kernargs for s in recorder.submitted] == expected * 2


class TestValues:
    def test_what_has_data_ptr_stands_for_its_address(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64 b:ptr n:i32", recorder)
        k2(Pointer(0x7F00_0000_1000), OneElement(0x7F00_0000_2000), 5)
        assert recorder.last == struct.pack("<QQi4x", 0x7F00_0000_1000, 0x7F00_0000_2000, 5)

    def test_tensors_may_follow_integers(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64 n:i32", recorder)
        k2(1, 5)
        k2(1, 5)
        k2(Pointer(0x7F00_0000_1000), 5)
        assert recorder.last == struct.pack("<Qi4x", 0x7F00_0000_1000, 5)
        k2(2, 6)
        assert recorder.last == struct.pack("<Qi4x", 2, 6)

    def test_a_launch_that_has_seen_a_tensor_never_reads_one(
        self, recorder: RecordingDriver
    ) -> None:
        k2 = launch("a:i64 n:i32", recorder)
        k2(Pointer(0x7F00_0000_1000), 5)
        k2(1, 5)
        k2(OneElement(0x7F00_0000_2000), 5)
        assert recorder.last == struct.pack("<Qi4x", 0x7F00_0000_2000, 5)

    def test_real_tensors_stand_for_their_addresses(self, recorder: RecordingDriver) -> None:
        torch = pytest.importorskip("torch")
        element = torch.tensor([7], dtype=torch.int64)
        view = torch.zeros(4, 4)[:, 1]
        launch("a:i64 b:i64", recorder)(element, view)
        assert recorder.last == struct.pack("<QQ", element.data_ptr(), view.data_ptr())

    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_numbers_of_numpy_ctypes_and_flydsl_are_taken(
        self, recorder: RecordingDriver, earlier_calls: int
    ) -> None:
        numpy = pytest.importorskip("numpy")
        k2 = launch("a:i64 b:i32 c:i32 d:i64", recorder)
        for _ in range(earlier_calls):
            k2(0, 0, 0, 0)
        k2(numpy.int64(1), numpy.uint8(2), ctypes.c_int32(3), SimpleNamespace(value=4))
        assert recorder.last == struct.pack("<qiiq", 1, 2, 3, 4)

    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_a_bool_counts_as_0_or_1(self, recorder: RecordingDriver, earlier_calls: int) -> None:
        k2 = launch("a:i64 b:i32", recorder)
        for _ in range(earlier_calls):
            k2(9, 9)
        k2(True, False)
        assert recorder.last == struct.pack("<qi4x", 1, 0)

    def test_floats_come_from_ints_numpy_and_flydsl(self, recorder: RecordingDriver) -> None:
        numpy = pytest.importorskip("numpy")
        k2 = launch("a:f32 b:f32 c:f64 d:f32", recorder)
        for _ in range(2):
            k2(3, numpy.float32(0.5), SimpleNamespace(value=0.1), float("inf"))
            assert recorder.last == struct.pack("<ff d f4x", 3.0, 0.5, 0.1, float("inf"))


class TestStreams:
    @pytest.mark.parametrize(
        ("stream", "raw"),
        [
            (None, 0),
            (0, 0),
            (STREAM, STREAM),
            (2**64 - 1, 2**64 - 1),
            (SimpleNamespace(cuda_stream=77), 77),
            (SimpleNamespace(value=78), 78),
            (SimpleNamespace(value=None), 0),
            (SimpleNamespace(value=SimpleNamespace(cuda_stream=79)), 79),
            (ctypes.c_void_p(80), 80),
        ],
    )
    def test_a_stream_has_many_forms(
        self, recorder: RecordingDriver, stream: object, raw: int
    ) -> None:
        k2 = launch(plan("a:i64", stream="queue"), recorder)
        for _ in range(2):
            k2(1, stream=stream)
            k2(1, stream)
            k2(1, queue=stream)
            k2(a=1, queue=stream)
        assert [s.stream for s in recorder.submitted] == [raw] * 8

    def test_flydsls_stream_is_taken(self, recorder: RecordingDriver) -> None:
        typing = pytest.importorskip("flydsl.expr.typing")
        launch("a:i64", recorder)(1, typing.Stream(STREAM))
        assert recorder.submitted[-1].stream == STREAM

    def test_without_one_it_is_the_default_stream(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64", recorder)
        k2(1)
        k2(1)
        assert [s.stream for s in recorder.submitted] == [0, 0]

    def test_a_launcher_without_a_stream_takes_one_by_name_only(
        self, recorder: RecordingDriver
    ) -> None:
        k2 = launch(plan("a:i64", stream=None), recorder)
        for _ in range(2):
            k2(1, stream=STREAM)
            with pytest.raises(ArgumentMismatch, match="takes 1 argument and was given 2"):
                k2(1, STREAM)
        assert [s.stream for s in recorder.submitted] == [STREAM, STREAM]

    @pytest.mark.parametrize("stream", ["main", -1, True, 1.0, object()])
    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_what_is_no_stream_is_refused(
        self, recorder: RecordingDriver, stream: object, earlier_calls: int
    ) -> None:
        k2 = launch("a:i64", recorder)
        for _ in range(earlier_calls):
            k2(1)
        recorder.submitted.clear()
        with pytest.raises(ArgumentMismatch, match="not a stream"):
            k2(1, stream=stream)
        assert recorder.submitted == []

    @pytest.mark.parametrize("stream", [None, 0, 1, 2])
    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_the_default_stream_of_another_device_is_refused(
        self, stream: object, earlier_calls: int
    ) -> None:
        recorder = RecordingDriver(devices=2, current=1)
        k2 = launch("a:i64", recorder, device=1)
        for _ in range(earlier_calls):
            k2(1, stream=stream)
        recorder.submitted.clear()
        recorder.current = 0
        with pytest.raises(ArgumentMismatch, match=r"current device 0.*runs on device 1"):
            k2(1, stream=stream)
        assert recorder.submitted == []
        k2(1, stream=STREAM)
        assert len(recorder.submitted) == 1


class TestLifeOfALaunch:
    def test_calls_are_counted_however_they_are_made(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64 b:i32", recorder)
        assert k2.calls == 0
        k2(1, 2)
        k2(1, 2)
        k2(b=2, a=1)
        k2.bind(a=1)(2)
        assert [k2.calls, k2.calls] == [4, 4]

    def test_calls_that_fail_are_not_counted(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64", recorder)
        k2(1)
        with pytest.raises(ArgumentMismatch):
            k2("x")
        recorder.failure = DriverError("it did not work")
        for _ in range(2):
            with pytest.raises(DriverError, match="it did not work"):
                k2(1)
        assert k2.calls == 1

    def test_a_failed_call_leaves_the_launch_as_it_was(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64", recorder)
        k2(1)
        recorder.failure = DriverError("it did not work")
        with pytest.raises(DriverError):
            k2(2)
        recorder.failure = None
        k2(3)
        assert [s.kernargs[0] for s in recorder.submitted] == [1, 3]
        assert recorder.prepared == 1

    def test_a_hook_hears_of_every_call_that_was_submitted(self, recorder: RecordingDriver) -> None:
        heard: list[int] = []
        k2 = launch("a:i64", recorder, on_call=lambda: heard.append(len(recorder.submitted)))
        k2(1)
        k2(1)
        k2.bind(a=1)()
        with pytest.raises(ArgumentMismatch):
            k2(None)
        assert heard == [1, 2, 3]
        assert k2.calls == 3

    @pytest.mark.parametrize("earlier_calls", [0, 2])
    def test_a_closed_launch_says_so(self, recorder: RecordingDriver, earlier_calls: int) -> None:
        k2 = launch("a:i64", recorder)
        bound = k2.bind(a=1)
        for _ in range(earlier_calls):
            k2(1)
            bound()
        recorder.submitted.clear()
        k2.close()
        k2.close()
        for call in (lambda: k2(1), lambda: k2(a=1), bound, lambda: k2.bind(a=1)):
            with pytest.raises(Released, match="closed") as caught:
                call()
            assert caught.value.where == str(KEY)
        assert recorder.submitted == []
        assert k2.released

    def test_a_slot_that_comes_back_after_closing_is_dead(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64", recorder)
        recorder.during = k2.close
        k2(1)
        with pytest.raises(Released):
            k2(1)
        assert len(recorder.submitted) == 1

    def test_preparing_happens_once_a_concurrent_call(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64", recorder)
        for _ in range(5):
            k2(1)
        with pytest.raises(ArgumentMismatch):
            k2("x")
        k2(1)
        assert recorder.prepared == 1
        inner = iter([lambda: k2(2), lambda: None])
        recorder.during = lambda: next(inner)()
        k2(3)
        assert recorder.prepared == 2
        assert [s.kernargs[0] for s in recorder.submitted[-2:]] == [2, 3]

    def test_it_describes_itself(self, recorder: RecordingDriver) -> None:
        k2 = launch("a:i64 b:i32", recorder, device=0)
        assert repr(k2) == "<Launch standin/k2 gfx950 tokens=6 on device 0, 2 arguments>"
        assert [a.name for a in k2.arguments] == ["a", "b"]
        assert (k2.key, k2.device) == (KEY, 0)

    def test_functions_have_to_be_those_of_the_plan(self, recorder: RecordingDriver) -> None:
        with pytest.raises(InvalidValue, match="2 functions for a plan of 1 dispatches"):
            Launch(KEY, plan("a:i64"), 0, recorder, [1, 2])  # type: ignore[arg-type]


def test_threads_never_share_a_buffer(recorder: RecordingDriver) -> None:
    """Every call waits, half read, until another thread has started one."""
    k2 = launch("a:i64 b:i64 c:i64 d:i64", recorder)
    together = threading.Barrier(4, timeout=30)
    recorder.during = together.wait

    def run(number: int) -> None:
        for _ in range(25):
            k2(number, number, number, number, STREAM)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [struct.unpack("<4q", s.kernargs) for s in recorder.submitted]
    assert sorted(seen) == sorted((n, n, n, n) for n in range(1, 5) for _ in range(25))
    assert recorder.prepared == 4
    assert k2.calls == 100
