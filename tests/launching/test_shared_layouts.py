"""What launches of the same argument lists share, and that nothing else is mixed up by it."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, cast

import pytest
from launch_kit import KEY, STREAM, RecordingDriver, launch, plan

from mono_runtime.driver import Driver
from mono_runtime.errors import ArgumentMismatch
from mono_runtime.launching import Launch
from mono_runtime.launching.shared import OncePer


def test_the_very_same_objects_are_asked_for_once() -> None:
    asked: list[Any] = []

    def length(*parts: tuple[int, ...]) -> int:
        asked.append(parts)
        return sum(map(len, parts))

    once = OncePer(length)
    one, two = tuple(range(3)), tuple(range(5))
    assert [once(one), once(one), once(two), once(one, two), once(two, one), once(one, two)] == [
        3,
        3,
        5,
        8,
        8,
        8,
    ]
    assert asked == [(one,), (two,), (one, two), (two, one)]


def test_equal_objects_that_are_not_the_same_are_asked_for_each() -> None:
    once = OncePer(lambda part: [*part])
    one, two = (tuple([1, 2]) for _ in range(2))  # noqa: C409 - a literal would be one object
    assert once(one) == once(two) == [1, 2]
    assert once(one) is not once(two)


def test_an_object_that_is_gone_is_not_taken_for_one_in_its_place() -> None:
    once = OncePer(lambda part: [*part])
    # The memory of one that is let go is the next one's.
    for number in range(1000):
        assert once((number,)) == [number]


def test_no_more_than_a_few_are_kept() -> None:
    once = OncePer(lambda part: [*part])
    for number in range(1000):
        once((number,))
    assert len(once._made) <= 64


def test_a_failure_is_not_kept() -> None:
    once = OncePer(lambda part: 1 // part)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            once(0)


def test_launches_of_one_list_pack_into_buffers_of_their_own() -> None:
    driver = RecordingDriver()
    shared = plan("x:i64 n:i32")
    one, two = (launch(shared, driver) for _ in range(2))
    for number in range(3):
        one(number, 1, stream=STREAM)
        two(number + 10, 2, stream=STREAM)
    values = [struct.unpack_from("<qi", s.kernargs) for s in driver.submitted]
    assert values == [(0, 1), (10, 2), (1, 1), (11, 2), (2, 1), (12, 2)]


def test_a_message_names_the_launch_that_was_called_and_not_one_of_the_same_list() -> None:
    driver = RecordingDriver()
    shared = plan("x:i64 n:i32")
    launch(shared, driver)
    other = Launch(replace(KEY, launch="k9"), shared, 0, cast(Driver, driver), [1])
    for call in (lambda: other(1), lambda: other(1, "two"), lambda: other(y=1)):
        with pytest.raises(ArgumentMismatch) as caught:
            call()
        assert caught.value.where == "standin/k9 gfx950 tokens=6"
