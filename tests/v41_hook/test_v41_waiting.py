"""What epoch words, scratch and peer memory tell of a launch that waits, on literal words."""

from __future__ import annotations

import struct

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.waiting import (
    Arrived,
    Progress,
    Recovered,
    Stuck,
    Watch,
    arrival_bytes,
    arrived,
    explain,
    progress_of,
    spans,
    width_of,
    width_pushed,
)


def words(epoch: int, marks: list[int]) -> bytes:
    """Epoch words: the epoch, three that nothing uses, a mark for each of 256 workgroups."""
    return struct.pack("<260I", epoch, 0, 0, 0, *marks)


def pairs(count: int, tag: int, value: int = 0x3F803F80) -> bytes:
    return struct.pack("<2I", value, tag) * count


# ---- the epoch words ----


def test_before_the_first_launch_nothing_runs() -> None:
    assert progress_of(words(0, [0] * 256)) == Progress(0, False)


def test_after_a_launch_nothing_runs() -> None:
    assert progress_of(words(12, [12] * 256)) == Progress(12, False)


def test_a_launch_that_all_workgroups_have_begun_runs() -> None:
    assert progress_of(words(12, [13] * 256)) == Progress(12, True)


def test_workgroups_that_have_not_begun_are_told() -> None:
    marks = [13] * 256
    marks[0] = marks[254] = 12
    assert progress_of(words(12, marks)) == Progress(12, True, (0, 254))


def test_epochs_are_counted_modulo_32_bits() -> None:
    assert progress_of(words(0xFFFFFFFF, [0] * 256)) == Progress(0xFFFFFFFF, True)
    assert progress_of(words(0xFFFFFFFF, [0xFFFFFFFF] * 256)) == Progress(0xFFFFFFFF, False)


def test_words_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidValue, match="epoch words are 1040 bytes, and these are 12"):
        progress_of(bytes(12))


# ---- when something is said ----


def test_a_launch_is_reported_once_and_once_more_when_it_ends() -> None:
    watch = Watch(10)
    waits = Progress(7, True, (3,))
    found = [watch.observe(waits, now) for now in (0.0, 5.0, 9.9, 10.5, 20.0, 1000.0)]
    assert found == [None, None, None, Stuck(10.5, waits), None, None]
    assert watch.observe(Progress(8, False), 1001.0) == Recovered(1001.0, 7)
    assert watch.observe(Progress(8, False), 2000.0) is None


def test_the_next_launch_that_waits_is_reported_anew() -> None:
    watch = Watch(10)
    for now in (0.0, 11.0):
        watch.observe(Progress(7, True), now)
    # It ends between two looks, and the next one waits too.
    assert watch.observe(Progress(8, True), 12.0) == Recovered(12.0, 7)
    assert watch.observe(Progress(8, True), 21.0) is None
    assert watch.observe(Progress(8, True), 23.0) == Stuck(11.0, Progress(8, True))


def test_a_busy_server_is_no_incident() -> None:
    watch = Watch(10)
    assert not any(watch.observe(Progress(100 * now, True), now) for now in range(0, 100, 5))


def test_an_idle_server_is_no_incident() -> None:
    watch = Watch(10)
    assert not any(watch.observe(Progress(7, False), now) for now in range(0, 100, 5))


def test_waiting_begins_with_the_launch_and_not_with_the_pause_before_it() -> None:
    watch = Watch(10)
    watch.observe(Progress(7, False), 0.0)
    assert watch.observe(Progress(7, True), 100.0) is None
    assert watch.observe(Progress(7, True), 109.0) is None
    assert watch.observe(Progress(7, True), 110.0) == Stuck(10.0, Progress(7, True))


# ---- the width ----


@pytest.mark.parametrize("by", [1, 2])
def test_the_width_is_that_of_the_scratch_with_the_epochs_tags(by: int) -> None:
    stale = pairs(500, 2 * 6 + 2)
    scratches = [(6, stale), (12, stale + pairs(64, 2 * 7 + by) + bytes(5)), (18, bytes(4096))]
    assert width_of(scratches, 7) == 12


def test_a_few_words_that_look_like_the_tag_are_not_taken_for_it() -> None:
    assert width_of([(6, pairs(63, 16)), (12, bytes(800))], 7) is None
    # Nor are values: a tag is the second word of a pair.
    assert width_of([(6, pairs(500, 3, value=16))], 7) is None
    assert width_of([], 7) is None


def test_of_two_scratches_of_a_width_the_fuller_one_counts() -> None:
    assert width_of([(6, pairs(200, 16)), (6, bytes(80)), (12, pairs(100, 16))], 7) == 6


# ---- what has come ----


def test_pushed_pairs_are_counted_by_rank_and_sum() -> None:
    # Epoch 3 of two rows at TP 2: its tag is 8; a rank's part is 2 * 2560 pairs.
    full, old = pairs(5120, 8), pairs(5120, 4)
    part = pairs(100, 8) + pairs(5020, 4)
    data = full + part + old + old
    assert arrival_bytes(2, 2) == len(data)
    assert arrived(data, 2, 2, 3) == (
        Arrived(0, attention=5120, experts=0, wanted=5120),
        Arrived(1, attention=100, experts=0, wanted=5120),
    )


@pytest.mark.parametrize(
    ("rank", "rows", "pushing", "found"),
    [
        # Rows of peer memory that hold the tag, for the ranks that pushed, and the width they mean.
        (1, 2, (1,), 2),
        (0, 2, (0,), 2),
        (0, 4, (0,), 4),  # four rows of rank 0, not two of each of two ranks
        (3, 2, (0, 3), 2),
        (2, 4, (0, 1, 2), 4),
        (1, 2, (0,), None),  # nothing of its own yet
        (1, 3, (1,), None),  # no width of this server
    ],
)
def test_the_width_of_a_first_push_is_where_this_ranks_part_lies(
    rank: int, rows: int, pushing: tuple[int, ...], found: int | None
) -> None:
    part, none = pairs(2560 * rows, 8), pairs(2560 * rows, 4)
    half = b"".join(part if r in pushing else none for r in range(4))
    half += bytes(arrival_bytes(4, 4) - len(half))
    assert width_pushed(half, 4, rank, (2, 4), 3) == found


def test_a_part_that_has_come_halfway_fits_no_width() -> None:
    half = pairs(2560, 8) + pairs(2560 * 3, 4) + bytes(arrival_bytes(2, 2))
    assert width_pushed(half, 2, 0, (2,), 3) is None
    assert width_pushed(b"", 2, 0, (), 3) is None


# ---- the report ----


def test_the_report_of_a_missing_rank() -> None:
    came = [Arrived(0, 15360, 0, 15360), Arrived(1, 15360, 0, 15360), Arrived(2, 0, 0, 15360)]
    text = explain(Stuck(10.5, Progress(4711, True)), 1, "model", 6, came)
    assert text.splitlines() == [
        "rank 1: a launch of a step of 6 rows (model, epoch 4711) has not ended for 10.5 s. "
        "All 256 workgroups have begun. It waits for the attention sum: 0 of 15360 from rank 2",
        "  do:    see what rank 2 does: its log, whether its process is alive, whether it runs the same "
        "step; and the link between the GPUs",
    ]


def test_the_report_of_ranks_late_with_the_experts_sum_names_the_latest() -> None:
    came = [Arrived(0, 2560, 2000, 2560), Arrived(1, 2560, 7, 2560), Arrived(2, 2560, 2560, 2560)]
    text = explain(Stuck(10.0, Progress(1, True)), 2, "draft", 1, came)
    assert "waits for the experts sum: 2000 of 2560 from rank 0, 7 of 2560 from rank 1" in text
    assert "see what rank 1 does" in text


def test_the_report_of_workgroups_that_have_not_begun() -> None:
    stuck = Stuck(10.0, Progress(1, True, (*range(8), 40, *range(250, 256))))
    text = explain(stuck, 3, "model", 6, [Arrived(0, 0, 0, 9)])
    assert "241 of 256 workgroups have begun; not: 0-7, 40, 250-255" in text
    assert "let nothing else run on this GPU" in text


@pytest.mark.parametrize(
    ("came", "says"),
    [
        ([], "a launch of a step (model"),
        ([], "What it waits for is not known"),
        ([Arrived(0, 9, 9, 9)], "What the other ranks push has come"),
    ],
)
def test_what_is_not_known_is_not_said(came: list[Arrived], says: str) -> None:
    assert says in explain(Stuck(10.0, Progress(1, True)), 0, "model", None, came)


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((4,), "4"), ((0, 1, 2), "0-2"), ((0, 2, 3, 9), "0, 2-3, 9")]
)
def test_numbers_in_short(numbers: tuple[int, ...], text: str) -> None:
    assert spans(numbers) == text
