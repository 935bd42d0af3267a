"""A fact is logged once, whoever meets it and however often."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mono_runtime.log import Once, logger


def test_a_fact_is_logged_the_first_time_only(caplog: pytest.LogCaptureFixture) -> None:
    once = Once()
    told = [
        once(logger(), logging.WARNING, ("miss", n % 2), "no launch %d", n % 2) for n in range(6)
    ]
    assert told == [True, True, False, False, False, False]
    assert caplog.record_tuples == [
        ("mono_runtime", logging.WARNING, "no launch 0"),
        ("mono_runtime", logging.WARNING, "no launch 1"),
    ]


def test_one_of_many_threads_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    once, start = Once(), threading.Barrier(8)

    def tell(_: int) -> bool:
        start.wait(30)
        return once(logger(), logging.WARNING, "fact", "said")

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(tell, range(8)))
    assert told.count(True) == 1
    assert len(caplog.records) == 1


def test_two_owners_say_it_once_each(caplog: pytest.LogCaptureFixture) -> None:
    for once in (Once(), Once()):
        once(logger(), logging.WARNING, "fact", "said")
    assert len(caplog.records) == 2


def test_memory_is_bounded_and_the_fact_not_met_for_longest_is_forgotten() -> None:
    once = Once(limit=2)
    told = [once(logger(), logging.WARNING, fact, "said") for fact in ("a", "b", "a", "c", "a")]
    assert told == [True, True, False, True, False]
    assert once(logger(), logging.WARNING, "b", "said")


def test_a_level_that_is_off_does_not_use_the_fact_up(caplog: pytest.LogCaptureFixture) -> None:
    once = Once()
    with caplog.at_level(logging.ERROR, "mono_runtime"):
        assert not once(logger(), logging.WARNING, "fact", "said")
    with caplog.at_level(logging.WARNING, "mono_runtime"):
        assert once(logger(), logging.WARNING, "fact", "said")


def test_no_handler_and_no_level_are_installed() -> None:
    program = (
        "import logging, mono_runtime.log as log\n"
        "log.Once()(log.logger(), logging.INFO, 'fact', 'said')\n"
        "bare = log.logger()\n"
        "assert not bare.handlers and bare.level == logging.NOTSET and bare.propagate\n"
        "assert not logging.getLogger().handlers\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
