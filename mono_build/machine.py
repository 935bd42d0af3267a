"""How much of this machine a build may use: processors and memory, inside of any control group."""

from __future__ import annotations

import os
from pathlib import Path


def default_workers(memory_per_launch: int = 768 << 20) -> int:
    """Launches at a time: the processors this process may use, as far as free memory allows.

    The default share of one launch is its measured peak (0.4 to 0.6 GB) with some room.
    """
    processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, _cpu_quota() or processors, _free_memory() // memory_per_launch))


def _cpu_quota() -> int | None:
    """Whole processors of this control group, or None without a quota (cgroup v2 ``cpu.max``)."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None


def _free_memory() -> int:
    """Bytes that can be used without swapping, inside of this control group."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = values.get("MemAvailable", free // 1024) * 1024
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / n).read_text()) for n in ("memory.max", "memory.current"))
        return min(free, limit - used)
    except (OSError, ValueError):
        return free
