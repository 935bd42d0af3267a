"""Argument lists that artefacts have in common are read once, and never otherwise than as a whole."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from reading_kit import ROWS, opened
from store_kit import key

from mono_runtime.canonical import json_value
from mono_runtime.fragments import Fragment, FragmentReader, OnceEach


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


LIST = [{"name": "a", "type": "i64"}, {"name": "b", "type": "i32"}]
PLAN = {
    "arguments": LIST,
    "dispatches": [{"arguments": [{"name": "a", "value": {"arg": "a"}}], "grid": [1, 2, 3]}],
}


def test_a_text_has_the_value_that_json_gives_it() -> None:
    read = FragmentReader()
    for _ in range(2):
        value = read(text(PLAN))
        assert value == PLAN
        assert isinstance(value["arguments"], Fragment)
        assert type(value["dispatches"]) is list


def test_equal_lists_of_several_texts_are_one_object() -> None:
    read = FragmentReader()
    first, second = read(text(PLAN)), read(text({"other": 1, "arguments": LIST}))
    assert first["arguments"] is second["arguments"]
    assert read(text({"arguments": LIST[:1]}))["arguments"] is not first["arguments"]
    assert FragmentReader()(text(PLAN))["arguments"] is not first["arguments"]


TEXTS = [
    '{"arguments":[{"of":[1,2]}],"x":[3]}',
    '{"arguments":[{"a":"]"}],"b":"[{"}',
    '{"arguments":[{"a":1}],"arguments":[{"a":2}]}',
    '{"\\"arguments":[{"a":1}]}',
    '["\\\\","arguments",[{"a":1}]]',
    '{"a":"\\"arguments\\":[{}]"}',
    '{"arguments": [{"a":1}]}',
    '{"arguments":[]}',
    '{"arguments":[1,2]}',
    '{"arguments":{"arguments":[{"arguments":[{}]}]}}',
    '[[{"arguments":[{"a":1}]}]]',
    '{"NaN":"Infinity","arguments":[{"a":"NaN"}]}',
]
NO_TEXTS = [
    '{"arguments":NaN}',
    '{"arguments":[{"a":1}],"b":NaN}',
    '{"arguments":[{"a":1}],"b":Infinity}',
    '{"arguments":[{"a":-Infinity}]}',
    '{"arguments":[{"a":NaN}]}',
    '"arguments":[{"a":1}]',
    '{"x":"arguments":[{"a":1}]}',
    '{"x":""arguments":[{"a":1}]}',
    '{"x":"[{"a":1}]"}',
    '{"arguments":[{"a":1}]',
    '{"arguments":[{"a":1}]]}',
    '{"arguments":[{"a":1},]}',
    '{"arguments":[{"a" 1}]}',
    '{"arguments":[{"a":1}]"b":2}',
    '{"arguments":[{"a":1}][{"a":1}]}',
    "",
]


@pytest.mark.parametrize("case", TEXTS)
def test_odd_texts_are_read_as_json_reads_them(case: str) -> None:
    assert FragmentReader()(case) == json.loads(case)


@pytest.mark.parametrize("case", NO_TEXTS)
def test_what_is_no_json_stays_none(case: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of json's own
        FragmentReader()(case)


def test_texts_that_are_cut_or_altered_anywhere_are_read_as_json_reads_them() -> None:
    chance = random.Random(4)
    read, whole = FragmentReader(), text(PLAN)
    valid = 0
    for _ in range(3000):
        at = chance.randrange(len(whole))
        piece = chance.choice(
            ["", '"', "\\", "[", "]", "{", "}", ",", ":", "1", "NaN", "arguments"]
        )
        altered = whole[:at] + piece + whole[at + chance.choice((0, 1)) :]
        try:
            expected = json_value(altered)
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 - any of json's own
                read(altered)
        else:
            valid += 1
            assert read(altered) == expected
    assert 100 < valid < 2900


def test_no_more_than_a_few_lists_are_kept() -> None:
    read = FragmentReader()
    for number in range(1000):
        value = {"arguments": [{"name": f"a{number}"}]}
        assert read(text(value)) == value
    assert len(read._known) == 64
    assert read(text({"arguments": [{"name": "a999"}]})) == {"arguments": [{"name": "a999"}]}


def test_what_is_made_of_a_list_is_made_once_for_each_maker() -> None:
    calls: list[Any] = []

    def length(value: Any) -> int:
        calls.append(value)
        return len(value)

    one, two = OnceEach(length), OnceEach(length)
    shared = Fragment(LIST)
    assert [one(shared), one(shared), two(shared), one(LIST), one(LIST)] == [2] * 5
    assert len(calls) == 4


def test_artefacts_of_a_store_share_their_arguments(store: Any) -> None:
    layers = opened(store)
    plans = [layers.artefact(layers.find(key(rows))).plan for rows in ROWS]
    assert len({id(plan.arguments) for plan in plans}) == 1
    assert len({id(plan.dispatches[0].arguments) for plan in plans}) == 1
    assert [a.name for a in plans[0].arguments] == ["x", "n"]
    assert len({plan.dispatches[0].code_object for plan in plans}) == 3
