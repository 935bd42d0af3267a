"""How much of this machine a build may use: processors and memory, inside of any control group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Where the kernel shows the control group of this process, and the memory of the whole machine.
CONTROL_GROUP = Path("/sys/fs/cgroup")
_MEMORY_INFORMATION = Path("/proc/meminfo")


def default_workers(memory_per_launch: int = 768 << 20, group: Path = CONTROL_GROUP) -> int:
    """Launches at a time: the processors this process may use, as far as free memory allows.

    The default share of one launch is its measured peak (0.4 to 0.6 GB) with some room.
    """
    processors = len(os.sched_getaffinity(0))
    free = free_memory(_text(_MEMORY_INFORMATION), group)
    return max(1, min(processors, cpu_quota(group) or processors, free // memory_per_launch))


def cpu_quota(group: Path) -> int | None:
    """Whole processors that the control group may use, at least 1; None without a quota.

    Reads version 2 (``cpu.max``: quota or ``max``, and period) or version 1 (``cpu.cfs_quota_us``,
    -1 for no quota, and ``cpu.cfs_period_us``).
    """
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not period:
        first = group / "cpu"
        quota, period = _text(first / "cpu.cfs_quota_us"), _text(first / "cpu.cfs_period_us")
    allowed, every = _number(quota), _number(period)
    if allowed is None or not every:
        return None
    return max(1, allowed // every)


def free_memory(information: str, group: Path) -> int:
    """Bytes that can be used without swapping: of the machine, or of the control group if less.

    Args:
        information: the text of ``/proc/meminfo``.
        group: root of the control group's files, version 2 or 1.
    """
    values = _table(information.replace(":", ""))
    if "MemAvailable" in values:
        free = values["MemAvailable"] * 1024
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = _left_in_group(group)
    return free if left is None else min(free, left)


def _left_in_group(group: Path) -> int | None:
    """Bytes that the control group may still take, or None when it is not limited."""
    second = (group, "memory.max", "memory.current", "inactive_file")
    first = (
        group / "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        # `inactive_file` alone leaves out the groups below.
        "total_inactive_file",
    )
    for directory, limit_name, used_name, cache in (second, first):
        limit, used = (_number(_text(directory / name)) for name in (limit_name, used_name))
        if limit is not None and used is not None:
            # Page cache counts as used, and the kernel gives this part of it back on demand.
            reclaimable = _table(_text(directory / "memory.stat")).get(cache, 0)
            return max(0, limit - max(0, used - reclaimable))
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    """A count; ``max``, -1 and anything else say that there is none."""
    return int(text) if text.isascii() and text.isdigit() else None


def _table(text: str) -> Mapping[str, int]:
    """The numbers of lines that hold a name, a number and perhaps a unit."""
    rows = (line.split() for line in text.splitlines())
    found = ((row[0], _number(row[1])) for row in rows if len(row) >= 2)
    return {name: number for name, number in found if number is not None}
