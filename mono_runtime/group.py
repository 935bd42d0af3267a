"""What ranks have to be able to do with each other: give every rank every rank's bytes."""

from __future__ import annotations

from typing import Protocol


class Group(Protocol):
    """The tensor-parallel ranks, over the CPU."""

    @property
    def rank(self) -> int:
        """This rank's number, 0 to ``size`` - 1."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def exchange(self, payload: bytes, *, timeout: float) -> tuple[bytes, ...]:
        """Every rank's payload, by rank.

        Collective: every rank calls it, in the same order of calls. ``timeout`` is in seconds.

        Raises:
            RankLost: a rank did not answer in time, or its process is gone.
        """
