"""The order in which launches start."""

from __future__ import annotations

from mono_build.compile.job import Job
from mono_build.compile.schedule import Schedule
from mono_runtime.launch_key import LaunchKey


def job(rows: int, cost: float, twin: str | None = None) -> Job:
    key = LaunchKey.of("standin", "work", "gfx950", {"rows": rows})
    return Job(key, cost, twin or key.digest, log="")


def rows(taken: Job | None) -> object:
    return None if taken is None else taken.key.values["rows"]


def test_the_longest_start_first() -> None:
    schedule = Schedule([job(1, 3.0), job(2, 9.0), job(3, 5.0)], lock_timeout=60)
    assert [rows(schedule.take()) for _ in range(3)] == [2, 3, 1]
    assert schedule.take() is None


def test_a_twin_is_held_back_until_the_first_is_done() -> None:
    first, second, other = job(1, 9.0, "t"), job(2, 8.0, "t"), job(3, 1.0)
    schedule = Schedule([first, second, other], lock_timeout=60)
    assert rows(schedule.take()) == 1
    assert rows(schedule.take()) == 3
    assert schedule.take() is None
    assert len(schedule) == 1
    schedule.finished(first)
    assert rows(schedule.take()) == 2


def test_a_busy_key_is_tried_last_and_then_waited_for() -> None:
    schedule = Schedule([job(1, 9.0), job(2, 1.0)], lock_timeout=60)
    busy = schedule.take()
    assert busy is not None
    assert busy.wait == 0
    schedule.finished(busy)
    schedule.postpone(busy)
    assert rows(schedule.take()) == 2
    again = schedule.take()
    assert again is not None
    assert (rows(again), again.wait) == (1, 60)


def test_dropping_gives_back_everything_that_has_not_started() -> None:
    schedule = Schedule([job(1, 9.0), job(2, 1.0), job(3, 1.0)], lock_timeout=60)
    started = schedule.take()
    assert started is not None
    schedule.finished(started)
    schedule.postpone(started)
    assert sorted(str(rows(j)) for j in schedule.drop()) == ["1", "2", "3"]
    assert len(schedule) == 0
