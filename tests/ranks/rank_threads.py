"""Ranks of tests as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mono_runtime.ranks import LocalGroup, local_groups

LIMIT = 60.0


def each_rank(size: int, work: Callable[[LocalGroup], Any]) -> list[Any]:
    """What ``work`` returns or raises on each rank, by rank."""
    ended: dict[int, Any] = {}

    def run(member: LocalGroup) -> None:
        try:
            ended[member.rank] = work(member)
        except Exception as error:
            ended[member.rank] = error

    threads = [
        threading.Thread(target=run, args=(member,), daemon=True) for member in local_groups(size)
    ]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(LIMIT)
        if thread.is_alive():
            raise TimeoutError(f"rank {rank} was left waiting")
    return [ended[rank] for rank in range(size)]
