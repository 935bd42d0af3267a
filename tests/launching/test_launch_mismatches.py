"""Calls that do not fit: the error names what is wrong, and nothing reaches the device."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from launch_kit import KEY, STREAM, OneElement, Pointer, RecordingDriver, launch, plan

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.launching import Launch, require_signature

TORCH_STREAM = SimpleNamespace(cuda_stream=STREAM, device=SimpleNamespace(type="cuda", index=0))


@pytest.fixture(params=[0, 2], ids=["first call", "later call"])
def k2(request: pytest.FixtureRequest, recorder: RecordingDriver) -> Launch:
    """A launch that has been called before or not: the two are packed differently."""
    result = launch("addr:i64 width:i32 small:i8", recorder)
    for _ in range(request.param):
        result(1, 2, 3, stream=STREAM)
    recorder.submitted.clear()
    return result


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda k: k(), "takes 3 arguments and was given 0; missing: addr, width, small"),
        (lambda k: k(1, 2), "takes 3 arguments and was given 2; missing: small"),
        (lambda k: k(1, small=3), "takes 3 arguments and was given 2; missing: width"),
        (lambda k: k(1, 2, 3, STREAM, 4), "takes 3 arguments and was given 5"),
        (lambda k: k(1, 2, 3, STREAM, stream=STREAM), "two streams, or one argument too many"),
        (lambda k: k(1, 2, 3, 4, 5, 6), "takes 3 arguments and was given 6"),
        (lambda k: k(1, 2, 3, addr=1), "'addr' both by position and by name"),
        (lambda k: k(1, 2, width=2, small=3, addr=4), "'width' both by position and by name"),
        (lambda k: k(1, 2, 3, height=4), "was given 'height' and does not have it"),
        (lambda k: k(1, 2, smal=4), "was given 'smal' and does not have it"),
    ],
)
def test_a_wrong_count_or_name_is_named(
    k2: Launch, recorder: RecordingDriver, call: Callable[[Launch], None], what: str
) -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        call(k2)
    assert what in str(caught.value)
    assert caught.value.where == str(KEY)
    assert "addr: i64, width: i32, small: i8, then its stream 'stream'" in str(caught.value)
    assert recorder.submitted == []


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ((None, 2, 3), "argument 'addr' is of type i64 and cannot take NoneType None"),
        ((1.0, 2, 3), "argument 'addr' is of type i64 and cannot take float 1.0"),
        (("12", 2, 3), "argument 'addr' is of type i64 and cannot take str '12'"),
        (([1], 2, 3), "argument 'addr' is of type i64 and cannot take list [1]"),
        ((1, None, 3), "argument 'width' is of type i32 and cannot take NoneType None"),
        ((1, 2.5, 3), "argument 'width' is of type i32 and cannot take float 2.5"),
        ((1, Pointer(4096), 3), "argument 'width' is of type i32 and cannot take Pointer of shape"),
        ((TORCH_STREAM, 2, 3), "argument 'addr' is of type i64 and cannot take SimpleNamespace"),
        (
            (SimpleNamespace(value=1, _is_stream_param=True), 2, 3),
            "argument 'addr' is of type i64 and cannot take SimpleNamespace",
        ),
        ((SimpleNamespace(value=1.5), 2, 3), "'addr' is of type i64 and cannot take"),
        ((2**64, 2, 3), "argument 'addr' = 18446744073709551616 does not fit in i64"),
        ((-(2**63) - 1, 2, 3), "argument 'addr' = -9223372036854775809 does not fit in i64"),
        ((1, 2**32, 3), "argument 'width' = 4294967296 does not fit in i32"),
        ((1, -(2**31) - 1, 3), "argument 'width' = -2147483649 does not fit in i32"),
        ((1, 2, 256), "argument 'small' = 256 does not fit in i8"),
        ((1, 2, -129), "argument 'small' = -129 does not fit in i8"),
        ((10**400, 2, 3), "does not fit in i64"),
    ],
)
def test_a_wrong_value_is_named(
    k2: Launch, recorder: RecordingDriver, values: tuple[object, ...], what: str
) -> None:
    for call in (
        lambda: k2(*values, stream=STREAM),
        lambda: k2(small=values[2], addr=values[0], width=values[1]),
        lambda: k2.check(*values),
        lambda: k2.bind(addr=values[0], width=values[1], small=values[2]),
    ):
        with pytest.raises(ArgumentMismatch) as caught:
            call()
        assert what in caught.value.what
        assert caught.value.where == str(KEY)
        assert caught.value.fix is not None
        assert caught.value.fix.startswith("pass ")
    assert recorder.submitted == []


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "argument 'x' is of type f32 and cannot take NoneType None"),
        ("1", "argument 'x' is of type f32 and cannot take str '1'"),
        (1e39, "argument 'x' = 1e+39 does not fit in f32"),
        (OneElement(4096), "argument 'x' is of type f32 and cannot take OneElement"),
    ],
)
def test_a_wrong_float_is_named(recorder: RecordingDriver, value: object, what: str) -> None:
    k2 = launch("x:f32", recorder)
    k2(1.0)
    recorder.submitted.clear()
    for call in (lambda: k2(value), lambda: k2.check(value), lambda: k2.bind(x=value)):
        with pytest.raises(ArgumentMismatch) as caught:
            call()
        assert what in caught.value.what
    assert recorder.submitted == []


def test_whatever_a_value_raises_reaches_the_caller(k2: Launch, recorder: RecordingDriver) -> None:
    class Broken:
        def __index__(self) -> int:
            raise RuntimeError("the device is lost")

    with pytest.raises(RuntimeError, match="the device is lost"):
        k2(1, Broken(), 3)
    assert recorder.submitted == []
    k2(1, 2, 3)
    assert len(recorder.submitted) == 1


def test_a_mismatch_survives_a_process_boundary(k2: Launch) -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        k2(None, 2, 3)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (ArgumentMismatch, str(caught.value))


def tensor(kind: str, index: int | None, address: int = 4096) -> object:
    class Place(SimpleNamespace):
        def __str__(self) -> str:
            return kind if index is None else f"{kind}:{index}"

    return SimpleNamespace(
        device=Place(type=kind, index=index), shape=(2, 3), data_ptr=lambda: address
    )


class TestFullCheck:
    """What every call is checked for, and tensors, streams and bools beside it."""

    @pytest.mark.parametrize(
        ("value", "what"),
        [
            (tensor("cpu", None), "'addr' is a tensor on cpu, and the launch runs on device 1"),
            (tensor("cuda", 0), "'addr' is a tensor on cuda:0, and the launch runs on device 1"),
            (tensor("meta", None, 0), "'addr' is a tensor on meta"),
            (tensor("cuda", 1, 0), "'addr' is a tensor without memory"),
            (True, "'addr' is of type i64 and was given True"),
        ],
    )
    def test_it_refuses(self, value: object, what: str) -> None:
        recorder = RecordingDriver(devices=2, current=1)
        k2 = launch("addr:i64", recorder, device=1)
        always = launch("addr:i64", recorder, device=1, always_check=True)
        with pytest.raises(ArgumentMismatch) as caught:
            k2.check(value)
        assert what in caught.value.what
        for call in (
            lambda: always(value),
            lambda: always(addr=value),
            lambda: always.bind()(value),
            lambda: always.bind(addr=value)(),
            lambda: k2.bind(addr=value).check(),
            lambda: k2.bind().check(value),
        ):
            with pytest.raises(ArgumentMismatch) as caught:
                call()
            assert what in caught.value.what
        assert recorder.submitted == []
        k2(value)
        assert len(recorder.submitted) == 1

    def test_it_lets_a_right_call_pass_without_launching_it(self) -> None:
        recorder = RecordingDriver(devices=2, current=1)
        k2 = launch("addr:i64 n:i32", recorder, device=1)
        k2.check(tensor("cuda", 1), 5, stream=STREAM)
        k2.check(0, n=2**32 - 1)
        k2.check(Pointer(0x1000), 5, STREAM)
        assert recorder.submitted == []
        assert k2.calls == 0

    def test_it_refuses_a_stream_of_another_device(self) -> None:
        recorder = RecordingDriver(devices=2, current=1)
        k2 = launch("addr:i64", recorder, device=1)
        always = launch("addr:i64", recorder, device=1, always_check=True)
        for call in (
            lambda: k2.check(1, stream=TORCH_STREAM),
            lambda: k2.check(1, SimpleNamespace(value=TORCH_STREAM)),
            lambda: always(1, stream=TORCH_STREAM),
            lambda: k2.bind(stream=TORCH_STREAM).check(1),
        ):
            with pytest.raises(ArgumentMismatch, match="stream belongs to device 0"):
                call()
        assert recorder.submitted == []

    def test_real_tensors_of_the_cpu_and_without_memory_are_refused(
        self, recorder: RecordingDriver
    ) -> None:
        torch = pytest.importorskip("torch")
        k2 = launch("addr:i64", recorder)
        for value in (torch.zeros(4), torch.empty(4, device="meta")):
            with pytest.raises(ArgumentMismatch, match=f"tensor on {value.device}"):
                k2.check(value)

    def test_always_checking_launches_what_is_right_every_time(
        self, recorder: RecordingDriver
    ) -> None:
        k2 = launch("addr:i64 n:i32", recorder, always_check=True)
        bound = k2.bind(n=5)
        for _ in range(2):
            k2(1, 5, STREAM)
            bound(1, stream=STREAM)
        assert {s.kernargs.hex() for s in recorder.submitted} == {"01" + "00" * 7 + "05" + "00" * 7}
        assert k2.calls == 4


class TestExpectedSignature:
    PLAN = plan("q:i64 swa:i64 stride:i32")

    def test_equal_names_and_types_pass(self) -> None:
        require_signature(self.PLAN, ["q", "swa", "stride"], where="k2")
        require_signature(self.PLAN, [("q", "i64"), ("swa", "i64"), ("stride", "i32")], where="k2")

    def test_a_launch_that_gained_an_argument_shows_both_lists(self) -> None:
        with pytest.raises(ArgumentMismatch) as caught:
            require_signature(self.PLAN, ["q", "stride"], where=str(KEY))
        assert str(caught.value).splitlines() == [
            "the caller's arguments are not those of the launch; they differ from number 2 on",
            "  caller (2): q, stride",
            "  launch (3): q, swa, stride",
            "  where: standin/k2 gfx950 tokens=6",
            "  do:    rebuild the store from the kernels that the caller belongs to",
        ]

    @pytest.mark.parametrize(
        ("expected", "number"),
        [
            (["q", "swa", "stride", "tl"], 4),
            (["swa", "q", "stride"], 1),
            ([("q", "i64"), ("swa", "i64"), ("stride", "i64")], 3),
            ([], 1),
        ],
    )
    def test_the_first_difference_is_numbered(
        self, expected: list[str] | list[tuple[str, str]], number: int
    ) -> None:
        with pytest.raises(ArgumentMismatch, match=f"differ from number {number} on"):
            require_signature(self.PLAN, expected, where="k2")

    def test_types_are_shown_when_they_are_expected(self) -> None:
        with pytest.raises(ArgumentMismatch, match=r"launch \(3\): q: i64, swa: i64, stride: i32"):
            require_signature(self.PLAN, [("q", "i64")], where="k2")
