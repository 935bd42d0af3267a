"""What a build takes of the machine by itself, under control groups of both versions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mono_build.machine import cpu_quota, default_workers, free_memory

GIB = 1 << 30
# 16 GiB available of 32.
MACHINE = "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\n"
# What version 1 shows for no limit: the largest signed 64-bit number, in whole pages.
UNLIMITED = "9223372036854771712\n"


def group(root: Path, files: Mapping[str, str]) -> Path:
    """A directory like the one in which the kernel shows a control group."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(limit: str, used: int, inactive: int) -> dict[str, str]:
    return {
        "memory.max": f"{limit}\n",
        "memory.current": f"{used}\n",
        "memory.stat": f"anon 1048576\nfile {inactive * 2}\ninactive_file {inactive}\n",
    }


def version_1(limit: str, used: int, inactive: int) -> dict[str, str]:
    return {
        "memory/memory.limit_in_bytes": f"{limit}\n",
        "memory/memory.usage_in_bytes": f"{used}\n",
        # The group's own share is 0: what counts is the share of all below it.
        "memory/memory.stat": f"cache 9\ninactive_file 0\ntotal_inactive_file {inactive}\n",
    }


@pytest.mark.parametrize("version", [version_1, version_2])
def test_page_cache_that_can_be_given_back_counts_as_free(
    tmp_path: Path, version: Callable[..., dict[str, str]]
) -> None:
    # 8 GiB allowed, 7 used, 5 of which are files that nobody uses at present: 6 are left.
    files = version(str(8 * GIB), 7 * GIB, 5 * GIB)
    assert free_memory(MACHINE, group(tmp_path, files)) == 6 * GIB


@pytest.mark.parametrize("files", [version_2("max", 7 * GIB, 0), version_1(UNLIMITED, 7 * GIB, 0)])
def test_a_group_without_a_limit_has_the_machines_memory(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert free_memory(MACHINE, group(tmp_path, files)) == 16 * GIB


def test_a_limit_above_what_the_machine_has_left_gives_no_more(tmp_path: Path) -> None:
    files = version_2(str(64 * GIB), GIB, 0)
    assert free_memory(MACHINE, group(tmp_path, files)) == 16 * GIB


@pytest.mark.parametrize(("used", "inactive", "left"), [(9 * GIB, 0, 0), (GIB, 2 * GIB, 8 * GIB)])
def test_figures_that_contradict_each_other_stay_within_the_limit(
    tmp_path: Path, used: int, inactive: int, left: int
) -> None:
    files = version_2(str(8 * GIB), used, inactive)
    assert free_memory(MACHINE, group(tmp_path, files)) == left


def test_without_statistics_all_that_is_used_counts(tmp_path: Path) -> None:
    files = version_2(str(8 * GIB), 7 * GIB, 5 * GIB)
    del files["memory.stat"]
    assert free_memory(MACHINE, group(tmp_path, files)) == GIB


def test_no_control_group_and_no_machine_figures(tmp_path: Path) -> None:
    assert free_memory(MACHINE, tmp_path / "absent") == 16 * GIB
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_memory("", tmp_path / "absent") <= total


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "400000 0\n"}, None),
        ({"cpu.max": "nonsense\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_quota_counts_in_whole_processors(
    tmp_path: Path, files: dict[str, str], processors: int | None
) -> None:
    assert cpu_quota(group(tmp_path, files)) == processors


def test_as_many_launches_as_fit_and_never_none(tmp_path: Path) -> None:
    processors = len(os.sched_getaffinity(0))
    small = group(tmp_path / "small", version_2(str(GIB), GIB, 0))
    assert default_workers(group=small) == 1
    slow = group(tmp_path / "slow", {"cpu.max": "100000 100000\n"})
    assert default_workers(1, slow) == 1
    assert default_workers(1, tmp_path / "absent") == processors
