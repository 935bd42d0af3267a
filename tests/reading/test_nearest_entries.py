"""What is said of a launch that a store lacks, against literal texts."""

from __future__ import annotations

from typing import Any

import pytest
from reading_kit import opened
from store_kit import add

from mono_build.store.writer import StoreWriter
from mono_runtime.errors import InvalidValue, LaunchMissing
from mono_runtime.launch_key import LaunchKey
from mono_runtime.nearest import FieldDifference, explain


def key(
    launch: str = "k2", arch: str = "gfx950", family: str = "deepseek_v41", **build: Any
) -> LaunchKey:
    fields = {"tokens": 6, "tp": 4, "ratio": 0, "fold": False, **build}
    return LaunchKey.of(family, launch, arch, {n: v for n, v in fields.items() if v is not None})


STORED = [
    *(key(tokens=tokens, fold=fold) for tokens in (1, 6, 12, 24) for fold in (False, True)),
    key("k1"),
    key(arch="gfx942"),
    key("ffn", family="kimi_k3"),
]


def test_the_entries_with_the_fewest_differing_fields_come_first_then_the_closest_numbers() -> None:
    miss = explain(key(tokens=8), STORED)
    assert miss.reason == "fields"
    assert miss.what == (
        "the store does not have deepseek_v41/k2 gfx950 fold=false ratio=0 tokens=8 tp=4\n"
        "  nearest: tokens is 6, not 8\n"
        "  nearest: tokens is 12, not 8\n"
        "  nearest: tokens is 1, not 8"
    )
    assert [entry.key for entry in miss.nearest] == [key(tokens=t) for t in (6, 12, 1)]
    assert miss.nearest[0].differences == (FieldDifference("tokens", wanted=8, stored=6),)
    assert miss.fix == (
        "build a store for what this server asks for (mono-build plan lists it), or start the server"
        " with what was built"
    )


def test_of_equally_near_entries_the_order_is_always_the_same() -> None:
    stored = [key(tokens=4), key(tokens=8)]
    for keys in (stored, stored[::-1]):
        assert [str(n) for n in explain(key(), keys).nearest] == [
            "tokens is 4, not 6",
            "tokens is 8, not 6",
        ]


def test_several_fields_that_differ_are_all_named() -> None:
    (nearest,) = explain(key(tp=8, fold=True, ratio=2), [key()]).nearest
    assert str(nearest) == "fold is false, not true; ratio is 0, not 2; tp is 4, not 8"


def test_another_architecture_is_the_reason_when_there_is_no_other() -> None:
    miss = explain(key("k1", arch="gfx942", tokens=8), STORED)
    assert miss.reason == "arch"
    assert miss.what == (
        "the store does not have deepseek_v41/k1 gfx942 fold=false ratio=0 tokens=8 tp=4\n"
        "  it has this launch for gfx950 alone\n"
        '  nearest: arch is "gfx950", not "gfx942"; tokens is 6, not 8'
    )
    assert miss.fix == "build a store for this architecture (--arch), or open the one that was"


def test_an_unknown_launch_is_told_with_those_of_the_family() -> None:
    miss = explain(key("k3"), STORED)
    assert (miss.reason, miss.nearest) == ("launch", ())
    assert miss.what == (
        "the store does not have deepseek_v41/k3 gfx950 fold=false ratio=0 tokens=6 tp=4\n"
        "  its deepseek_v41 has no launch k3; it has k1, k2"
    )


def test_an_unknown_family_is_told_with_those_that_there_are() -> None:
    miss = explain(key(family="minimax_m3"), STORED)
    assert (miss.reason, miss.nearest) == ("family", ())
    assert miss.what == (
        "the store does not have minimax_m3/k2 gfx950 fold=false ratio=0 tokens=6 tp=4\n"
        "  it has no family minimax_m3; it has deepseek_v41, kimi_k3"
    )


def test_a_field_that_the_stored_keys_do_not_have_is_told() -> None:
    miss = explain(key(seats=3), [key(), key(tokens=7)])
    assert miss.reason == "build"
    assert [str(n) for n in miss.nearest] == [
        "no seats, which is 3 here",
        "no seats, which is 3 here; tokens is 7, not 6",
    ]
    assert miss.fix == "build the store with the release whose build keys the server asks for"


def test_a_field_that_was_not_given_is_told() -> None:
    miss = explain(key(ratio=None), [key()])
    assert miss.reason == "build"
    assert [str(n) for n in miss.nearest] == ["ratio is 0, which was not given"]


def test_a_store_without_launches_says_so() -> None:
    miss = explain(key(), [])
    assert (miss.reason, miss.nearest) == ("empty", ())
    assert miss.what.endswith("\n  it has no launches at all")


def test_numbers_and_texts_of_one_field_are_told_apart() -> None:
    (nearest,) = explain(key(tokens="6"), [key()]).nearest
    assert str(nearest) == 'tokens is 6, not "6"'


def test_values_of_other_kinds_do_not_disturb_the_order() -> None:
    stored = [key(tokens=v) for v in (1e308, -(2**63), "many", True, 6.5)]
    shown = [str(n) for n in explain(key(), stored).nearest]
    assert shown == ["tokens is 6.5, not 6", "tokens is true, not 6", 'tokens is "many", not 6']


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 10**400, float("nan"), float("inf"), None, [1]]
)
def test_a_build_value_that_no_store_can_hold_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="build parameter tokens"):
        LaunchKey.of("deepseek_v41", "k2", "gfx950", {"tokens": value})  # type: ignore[dict-item]


def test_layers_name_their_stores_and_look_at_all_of_them(tmp_path: Any) -> None:
    from mono_runtime.layers import open_layers

    for name, tokens in (("a", 1), ("b", 8)):
        with StoreWriter(tmp_path / name) as writer:
            writer.publish([add(writer, 1, launch_key=key(tokens=tokens))])
    layers = open_layers([tmp_path / "a", tmp_path / "b"], environ={})
    with pytest.raises(LaunchMissing) as caught:
        layers.find(key(tokens=9))
    assert str(caught.value) == (
        "the store does not have deepseek_v41/k2 gfx950 fold=false ratio=0 tokens=9 tp=4\n"
        "  nearest: tokens is 8, not 9\n"
        "  nearest: tokens is 1, not 9\n"
        f"  where: {tmp_path / 'a'}:{tmp_path / 'b'}\n"
        "  do:    build a store for what this server asks for (mono-build plan lists it), or start the"
        " server with what was built"
    )
    with pytest.raises(LaunchMissing, match="no launch k9"):
        opened(tmp_path / "a").find(key("k9"))
