"""Which launch starts next: longest first, twins one after the other, busy keys last. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mono_build.compile.job import Job


class Schedule:
    """The jobs that have not started, and which groups are at work.

    Two jobs with the same ``twin`` are expected to give the same IR: if both ran at once, the second
    would trace and then wait for the first, so it is held back while anything else can start.
    """

    def __init__(self, jobs: Iterable[Job], lock_timeout: float) -> None:
        self._waiting = sorted(jobs, key=lambda j: (-j.cost, j.key.sort_key))
        self._postponed: list[Job] = []
        self._twins: list[str] = []
        self._lock_timeout = lock_timeout
        self._dropped = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._postponed)

    def take(self) -> Job | None:
        """The job to start now, or None when all that is left should wait for a running twin."""
        for position, job in enumerate(self._waiting):
            if job.twin not in self._twins:
                return self._start(self._waiting.pop(position))
        if self._waiting or not self._postponed:
            return None
        # Only keys that another builder holds are left: now waiting for it costs nothing.
        return self._start(replace(self._postponed.pop(0), wait=self._lock_timeout))

    def _start(self, job: Job) -> Job:
        self._twins.append(job.twin)
        return job

    def finished(self, job: Job) -> None:
        """``job`` is no longer running."""
        self._twins.remove(job.twin)

    def postpone(self, job: Job) -> None:
        """Another builder has ``job``'s key: try it again when nothing else is left."""
        if not self._dropped:
            self._postponed.append(job)

    def again(self, job: Job) -> None:
        """Try ``job`` once more, before the others."""
        if not self._dropped:
            self._waiting.insert(0, job)

    def drop(self) -> list[Job]:
        """Give up everything that has not started, and whatever would start again."""
        self._dropped = True
        dropped = [*self._waiting, *self._postponed]
        self._waiting, self._postponed = [], []
        return dropped
