"""Loading a deployment's launches side by side: figures, progress, failures and interrupts."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from loading_kit import key

from mono_runtime.errors import (
    DriverError,
    LaunchMissing,
    MonoError,
    NotResident,
    StoreDamaged,
    StoreError,
    WrongDevice,
)
from mono_runtime.launch_key import LaunchKey
from mono_runtime.preload import Failure, Loaded, Summary, preload

KEYS = [key(n) for n in range(1, 7)]


def tokens(wanted: LaunchKey) -> int:
    return int(wanted.values["tokens"])


def test_every_launch_is_loaded_shared_or_failed() -> None:
    error = StoreDamaged("flipped")

    def load(wanted: LaunchKey) -> Loaded:
        if tokens(wanted) == 2:
            raise error
        return Loaded(0, 0) if tokens(wanted) == 5 else Loaded(1, 1000)

    summary = preload(KEYS, load)
    assert (summary.loaded, summary.shared) == (4, 1)
    assert summary.failed == (Failure(key(2), error),)
    assert (summary.code_objects, summary.bytes) == (4, 4000)
    assert summary.seconds > 0


def test_no_launches_are_no_failure() -> None:
    summary = preload([], lambda wanted: Loaded(1, 1))
    assert (summary.loaded, summary.shared, summary.failed) == (0, 0, ())
    summary.raise_if_failed()


def test_as_many_as_there_are_workers_load_at_once() -> None:
    together = threading.Barrier(3)

    def load(wanted: LaunchKey) -> Loaded:
        together.wait(30)
        return Loaded(1, 1)

    assert preload(KEYS, load, workers=3).loaded == 6


def test_one_worker_keeps_the_order() -> None:
    seen: list[LaunchKey] = []

    def load(wanted: LaunchKey) -> Loaded:
        seen.append(wanted)
        return Loaded(1, 1)

    preload(KEYS, load, workers=1)
    assert seen == KEYS


def test_failures_come_in_the_order_of_the_launches_not_of_their_end() -> None:
    second_failed = threading.Event()

    def load(wanted: LaunchKey) -> Loaded:
        if tokens(wanted) == 1:
            assert second_failed.wait(30)
        raise StoreDamaged(str(tokens(wanted)))

    def progress(done: int, total: int, wanted: LaunchKey) -> None:
        second_failed.set()

    summary = preload(KEYS[:2], load, workers=2, progress=progress)
    assert [f.key for f in summary.failed] == KEYS[:2]


def test_progress_is_told_of_each_launch_by_the_calling_thread() -> None:
    told: list[tuple[int, int, LaunchKey]] = []
    threads: set[threading.Thread] = set()

    def progress(done: int, total: int, wanted: LaunchKey) -> None:
        threads.add(threading.current_thread())
        told.append((done, total, wanted))

    def load(wanted: LaunchKey) -> Loaded:
        if tokens(wanted) == 3:
            raise StoreDamaged("flipped")
        return Loaded(1, 1)

    preload(KEYS, load, workers=4, progress=progress)
    assert [(done, total) for done, total, _ in told] == [(n, 6) for n in range(1, 7)]
    assert sorted(tokens(k) for _, _, k in told) == [1, 2, 3, 4, 5, 6]
    assert threads == {threading.current_thread()}


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once nothing else can begin."""
    event, shutdown = threading.Event(), ThreadPoolExecutor.shutdown

    def watched(
        self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:
        shutdown(self, wait=False, cancel_futures=cancel_futures)
        event.set()
        shutdown(self, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", watched)
    return event


def test_an_interrupt_of_the_caller_waits_for_what_has_begun_and_starts_nothing_else(
    cancelled: threading.Event,
) -> None:
    begun, ended = [], []

    def load(wanted: LaunchKey) -> Loaded:
        begun.append(tokens(wanted))
        if tokens(wanted) == 2:
            assert cancelled.wait(30)
        ended.append(tokens(wanted))
        return Loaded(1, 1)

    def interrupt(done: int, total: int, wanted: LaunchKey) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        preload(KEYS, load, workers=1, progress=interrupt)
    assert begun == ended
    assert begun in ([1], [1, 2])


def test_an_interrupt_that_meets_a_load_is_no_failure_but_stops(cancelled: threading.Event) -> None:
    begun: list[int] = []

    def load(wanted: LaunchKey) -> Loaded:
        begun.append(tokens(wanted))
        if tokens(wanted) == 1:
            raise KeyboardInterrupt
        assert cancelled.wait(30)
        return Loaded(1, 1)

    with pytest.raises(KeyboardInterrupt):
        preload(KEYS, load, workers=1)
    assert begun in ([1], [1, 2])


def test_the_summary_is_one_line() -> None:
    failed = (Failure(key(1), StoreDamaged("flipped")),)
    summary = Summary(76, 7, failed, 72, 8_120_000, 0.214)
    assert str(summary) == (
        "84 launches in 0.21 s: 76 loaded, 7 shared, 1 failed (72 code objects, 8.1 MB)"
    )
    assert json.loads(json.dumps(summary.to_json())) == {
        "loaded": 76,
        "shared": 7,
        "failed": [
            {
                "key": "deepseek_v41/k1 gfx950 tokens=1",
                "kind": "StoreDamaged",
                "error": "flipped",
            }
        ],
        "code_objects": 72,
        "bytes": 8_120_000,
        "seconds": 0.214,
    }


def failed(*errors: Exception) -> Summary:
    failures = tuple(Failure(key(n), e) for n, e in enumerate(errors, 1))
    return Summary(84 - len(errors), 0, failures, 80, 1, 0.1)


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ((NotResident("a"), NotResident("b")), NotResident),
        ((NotResident("a"), WrongDevice("b")), WrongDevice),
        ((LaunchMissing("a"), StoreDamaged("b")), StoreError),
        ((LaunchMissing("a"), DriverError("b")), MonoError),
        ((OSError("a"),), MonoError),
        ((StoreDamaged("a"), ValueError("b")), MonoError),
    ],
)
def test_one_error_stands_for_all_and_is_what_they_have_in_common(
    errors: tuple[Exception, ...], kind: type[MonoError]
) -> None:
    with pytest.raises(MonoError) as caught:
        failed(*errors).raise_if_failed()
    assert type(caught.value) is kind
    assert caught.value.__cause__ is errors[0]


def test_the_error_names_every_launch_its_reason_and_each_advice_once() -> None:
    errors = (
        StoreDamaged("flipped", where="/store/a", fix="copy it again"),
        StoreDamaged("cut off", where="/store/b", fix="copy it again"),
    )
    with pytest.raises(StoreDamaged) as caught:
        failed(*errors).raise_if_failed()
    assert str(caught.value) == (
        "2 of 84 launches could not be loaded\n"
        "    deepseek_v41/k1 gfx950 tokens=1: flipped\n"
        "    deepseek_v41/k1 gfx950 tokens=2: cut off\n"
        "  where: /store/a; /store/b\n"
        "  do:    copy it again"
    )


def test_ten_reasons_are_shown_and_the_rest_is_counted() -> None:
    with pytest.raises(StoreDamaged) as caught:
        failed(*[StoreDamaged(f"reason {n}", where=f"/{n}") for n in range(13)]).raise_if_failed()
    shown = re.findall(r"reason (\d+)", str(caught.value))
    assert shown == [str(n) for n in range(10)]
    assert "and 3 more" in str(caught.value)
    assert "/12" not in str(caught.value)


def test_an_error_of_another_kind_is_named_by_its_class() -> None:
    with pytest.raises(MonoError, match="OSError: disk"):
        failed(OSError("disk")).raise_if_failed()
