"""Step widths against lists worked out by hand from vLLM's configuration code."""

from __future__ import annotations

import pytest

from mono_build.families.base import Setting
from mono_build.families.registry import family
from mono_runtime.families.widths import Serving, capture_sizes

EIGHTS = [8, 16, 24, 32, 40, 48]


def widths(name: str = "deepseek_v41", **settings: Setting) -> list[int]:
    known = family(name)
    arch, tp = ("gfx950", 8 if name == "deepseek_v4" else 4)
    return list(known.widths(known.deployment(arch, tp, settings)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"speculative_tokens": 0}, [1, 2, 4, *EIGHTS]),
        ({"speculative_tokens": 5}, [6, 12, 18, 24, 36, 42, 48]),
        # 8 requests of 6 rows are the 48 that the kernels take.
        ({"speculative_tokens": 5, "max_num_seqs": 8}, [6, 12, 18, 24, 36, 42, 48]),
        # 3 requests: at most 18 rows.
        ({"speculative_tokens": 5, "max_num_seqs": 3}, [6, 12, 18]),
        # vLLM adds the size of a full batch to its list.
        ({"speculative_tokens": 0, "max_num_seqs": 20}, [1, 2, 4, 8, 16, 20]),
        ({"speculative_tokens": 3}, [4, 8, 16, 24, 32, 40, 48]),
        (
            {"speculative_tokens": 0, "performance_mode": "interactivity"},
            [*range(1, 33), 40, 48],
        ),
        (
            {"speculative_tokens": 5, "performance_mode": "interactivity"},
            [6, 12, 18, 24, 30, 36, 42, 48],
        ),
        (
            {"speculative_tokens": 5, "adaptive_verification": True},
            [1, 2, 4, 6, 8, 12, *EIGHTS[1:]],
        ),
    ],
)
def test_default_graph_sizes(settings: dict[str, Setting], expected: list[int]) -> None:
    assert widths(**settings) == expected


def test_v4_widths_without_drafts_reach_64_rows() -> None:
    assert widths("deepseek_v4", speculative_tokens=0) == [1, 2, 4, *EIGHTS, 56, 64]
    assert widths("deepseek_v4", speculative_tokens=6) == [7, 14, 21, 28, 35, 42, 49, 56]


def test_eager_serving_builds_every_width_up_to_the_limit() -> None:
    assert widths(eager=True) == list(range(1, 49))
    assert widths(eager=True, max_num_seqs=2) == list(range(1, 13))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Every step has one row a request, so all that are captured are whole.
        ({"speculative_tokens": 0}, [1, 2, 4, *EIGHTS]),
        # A request may verify fewer drafts than it can, and then no graph fits.
        ({"speculative_tokens": 5}, list(range(1, 49))),
        ({"speculative_tokens": 5, "max_num_seqs": 2}, list(range(1, 13))),
        # Graphs of 16 rows for at most 20 requests: a step of more is eager, there is no piecewise one.
        (
            {"speculative_tokens": 0, "capture_sizes": (16, 32), "max_num_seqs": 20},
            [16, 17, 18, 19, 20],
        ),
    ],
)
def test_without_piecewise_graphs_what_finds_no_full_one_is_eager(
    settings: dict[str, Setting], expected: list[int]
) -> None:
    assert widths(cudagraph_mode="FULL_DECODE_ONLY", **settings) == expected


def test_piecewise_graphs_leave_only_steps_above_the_largest() -> None:
    sizes = (8, 16)
    assert widths(cudagraph_mode="PIECEWISE", capture_sizes=sizes, max_num_seqs=3) == [17, 18]
    assert widths(cudagraph_mode="PIECEWISE", max_num_seqs=8) == []


def test_no_graphs_at_all_are_as_eager_as_asking_for_it() -> None:
    assert widths(cudagraph_mode="NONE") == widths(eager=True) == list(range(1, 49))


def draft_widths(**settings: Setting) -> list[int]:
    v41 = family("deepseek_v41")
    keys = v41.deployment_keys(v41.deployment("gfx950", 4, {"draft": True, **settings}))
    found = {k.values["tokens"] for k in keys if k.values.get("experts") == 128}
    return sorted(found, key=int)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [5, 10, 15, 20, 25, 35, 40]),
        # The draft has full graphs alone, and all its requests have five rows.
        ({"cudagraph_mode": "FULL_DECODE_ONLY"}, [5, 10, 15, 20, 25, 35, 40]),
        # 48 is rounded to 50, which passes the largest size: nine requests find no graph.
        ({"capture_sizes": (6, 12, 24, 36, 40, 48)}, [10, 15, 25, 40, 45]),
        ({"cudagraph_mode": "PIECEWISE"}, [5, 10, 15, 20, 25, 30, 35, 40, 45]),
        ({"eager": True}, [5, 10, 15, 20, 25, 30, 35, 40, 45]),
    ],
)
def test_a_draft_runs_whole_requests(settings: dict[str, Setting], expected: list[int]) -> None:
    assert draft_widths(**settings) == expected


def test_own_graph_sizes_are_rounded_to_whole_requests() -> None:
    assert widths(capture_sizes=(6, 10, 48)) == [6, 12, 48]


def test_steps_above_the_largest_graph_are_eager_and_therefore_planned() -> None:
    assert widths(capture_sizes=(6, 12), max_num_seqs=4) == [6, 12, *range(13, 25)]
    # A ceiling of 12 rows leaves vLLM's list 1, 2, 4, 8: one request a graph, and eager from 9 on.
    assert widths(max_capture_size=12, max_num_seqs=4) == [6, *range(9, 25)]


def test_a_graph_smaller_than_one_request_still_gives_its_width() -> None:
    assert widths(capture_sizes=(4,), max_num_seqs=1) == [5, 6]


def test_explicit_rows_replace_the_computed_widths() -> None:
    v41 = family("deepseek_v41")
    assert v41.widths(v41.deployment("gfx950", 4, {}, rows=(12, 6, 6))) == (6, 12)


def test_capture_sizes_stop_at_the_batch_and_at_512() -> None:
    serving = Serving(0, 1024, 8192, (), 0, False, False, "FULL_AND_PIECEWISE")
    sizes = capture_sizes(serving)
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512)
    small = Serving(0, 1024, 20, (), 0, False, False, "FULL_AND_PIECEWISE")
    assert capture_sizes(small) == (1, 2, 4, 8, 16, 20)


def test_one_request_with_many_drafts_adds_no_larger_batch() -> None:
    # One request of 17 rows may be captured up to 34; vLLM adds 17 itself and the grid, not 34.
    serving = Serving(16, 1, 50, (), 0, False, False, "FULL_AND_PIECEWISE")
    assert capture_sizes(serving) == (1, 2, 4, 8, 16, 17, 24, 32)
