"""Counters: what was counted, from any thread, as plain data."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from mono_runtime.counters import Counters


def test_a_fresh_snapshot_has_every_name() -> None:
    assert Counters().snapshot() == {
        "hits": 0,
        "misses": {},
        "loads": 0,
        "shared": 0,
        "bytes_loaded": 0,
        "seconds_loading": 0.0,
        "fallbacks": {},
        "launches": {},
        "steps_declined": {},
        "waits": {},
    }


def filled() -> Counters:
    counters = Counters()
    counters.hit()
    counters.hit()
    counters.missed("missing")
    counters.missed("damaged")
    counters.missed("missing")
    counters.loaded(25680, 0.5)
    counters.loaded(320, 0.25)
    counters.shared()
    counters.fell_back("stock", "missing")
    counters.fell_back("stock", "missing")
    counters.fell_back("jit", "damaged")
    counters.step_declined("deepseek_v41", "49 rows")
    counters.step_declined("deepseek_v41", "49 rows")
    counters.waited("reported")
    counters.waited("ended")
    counters.waited("reported")
    counters.watch("deepseek_v41", "k1", lambda: 5)
    counters.watch("deepseek_v41", "k1", lambda: 2)
    counters.watch("kimi_k3", "k2", lambda: 0)
    return counters


def test_everything_is_counted_under_its_name() -> None:
    snapshot = filled().snapshot()
    assert json.loads(json.dumps(snapshot)) == {
        "hits": 2,
        "misses": {"damaged": 1, "missing": 2},
        "loads": 2,
        "shared": 1,
        "bytes_loaded": 26000,
        "seconds_loading": 0.75,
        "fallbacks": {"jit": {"damaged": 1}, "stock": {"missing": 2}},
        "launches": {"deepseek_v41": {"k1": 7}, "kimi_k3": {"k2": 0}},
        "steps_declined": {"deepseek_v41": {"49 rows": 2}},
        "waits": {"ended": 1, "reported": 2},
    }


def test_a_snapshot_stays_as_it_was() -> None:
    counters = filled()
    before = counters.snapshot()
    counters.missed("missing")
    counters.fell_back("stock", "missing")
    assert before["misses"]["missing"] == 2
    assert before["fallbacks"]["stock"]["missing"] == 2
    before["misses"]["missing"] = 99
    assert counters.snapshot()["misses"]["missing"] == 3


def test_launches_are_read_when_asked_and_kept_when_their_object_goes() -> None:
    counters, calls = Counters(), [3]
    stop = counters.watch("f", "k", lambda: calls[0])
    calls[0] = 4
    assert counters.snapshot()["launches"] == {"f": {"k": 4}}
    calls[0] = 6
    stop()
    stop()
    calls[0] = 100
    assert counters.snapshot()["launches"] == {"f": {"k": 6}}
    counters.watch("f", "k", lambda: 1)
    assert counters.snapshot()["launches"] == {"f": {"k": 7}}


def test_no_count_is_lost_between_threads() -> None:
    counters = Counters()

    def count(_: int) -> None:
        for _ in range(500):
            counters.hit()
            counters.missed("missing")
            counters.loaded(2, 0.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    snapshot = counters.snapshot()
    assert (snapshot["hits"], snapshot["misses"], snapshot["loads"]) == (
        4000,
        {"missing": 4000},
        4000,
    )
    assert snapshot["bytes_loaded"] == 8000
