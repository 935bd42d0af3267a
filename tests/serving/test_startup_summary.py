"""The line that a server's log has when its launches are ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mono_runtime.errors import StoreDamaged
from mono_runtime.hooks.summary import StartupSummary, ranges
from mono_runtime.launch_key import LaunchKey
from mono_runtime.preload import Failure, Summary


def key(tokens: int) -> LaunchKey:
    return LaunchKey.of("deepseek_v41", "k1", "gfx950", {"tokens": tokens})


def summary(*failures: Failure, policy: str = "strict", missing: int = 0) -> StartupSummary:
    preloaded = Summary(60, 24, failures, 63, 4_900_000, 0.2)
    return StartupSummary.of(
        preloaded,
        family="deepseek_v41",
        arch="gfx950",
        tp=4,
        policy=policy,
        digest="sha256:c3db",
        widths=(6, 12, 18),
        served=(6, 12, 18) if not failures else (6,),
        missing=[f.key for f in failures[:missing]],
        seconds=0.25,
    )


def test_one_line_says_what_was_needed_found_and_loaded() -> None:
    assert str(summary()) == (
        "deepseek_v41 on gfx950, TP 4, steps of 6, 12, 18 rows: 84 launches needed, 84 found, 84"
        " loaded (63 code objects, 4.9 MB) in 0.25 s; policy strict, store sha256:c3db; nothing is"
        " compiled; without the store 84 launches would be"
    )


def test_what_is_missing_and_what_is_damaged_is_listed_apart() -> None:
    damaged = StoreDamaged("bytes differ\nfrom their digest", where="a file")
    found = summary(
        *(Failure(key(n), KeyError(n)) for n in range(1, 8)),
        Failure(key(9), damaged),
        policy="stock",
        missing=7,
    )
    assert (found.needed, found.found, found.loaded, found.complete) == (92, 85, 84, False)
    first, *lines = str(found).splitlines()
    assert first.endswith("; 8 launches would have to be compiled, and will not be")
    assert lines == [
        "  steps served from the store: 6 rows",
        *(f"  not in the store: deepseek_v41/k1 gfx950 tokens={n}" for n in range(1, 6)),
        "  not loaded: deepseek_v41/k1 gfx950 tokens=9: bytes differ",
        "  and 2 more",
    ]


def test_under_jit_it_says_what_this_process_will_compile() -> None:
    found = summary(Failure(key(1), KeyError(1)), policy="jit", missing=1)
    assert "1 launch will be compiled in this process, when first used" in str(found)


def test_as_data_it_has_everything() -> None:
    assert summary(Failure(key(1), KeyError(1)), missing=1).to_json() == {
        "family": "deepseek_v41",
        "arch": "gfx950",
        "tp": 4,
        "policy": "strict",
        "store": "sha256:c3db",
        "widths": [6, 12, 18],
        "served": [6],
        "needed": 85,
        "found": 84,
        "loaded": 84,
        "code_objects": 63,
        "bytes": 4_900_000,
        "seconds": 0.25,
        "missing": ["deepseek_v41/k1 gfx950 tokens=1"],
        "failed": [],
    }
    assert replace(summary(), loaded=83).complete is False


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), "no"),
        ((4,), "4"),
        ((1, 2, 3, 5, 8, 9), "1-3, 5, 8-9"),
        ((6, 12), "6, 12"),
    ],
)
def test_rows_are_told_as_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text
