"""Ranks that are threads of one process."""

from __future__ import annotations

import threading
from types import TracebackType

from mono_runtime.errors import InvalidValue, RankLost


class _Meeting:
    """One exchange: what has been brought so far."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.result: tuple[bytes, ...] | None = None


class _Room:
    """Where the members meet. After a loss nobody meets here again."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.meeting = _Meeting()
        self.lost: str | None = None

    def lose(self, reason: str) -> None:
        """Note the first loss and wake everybody; the caller holds ``changed``."""
        if self.lost is None:
            self.lost = reason
        self.changed.notify_all()


class LocalGroup:
    """One member of `local_groups`; each is used by one thread at a time.

    As a context manager it leaves the group at the end, and says so to the others if it ends by an
    exception.
    """

    def __init__(self, room: _Room, rank: int) -> None:
        self._room = room
        self._rank = rank
        self._abandoned = False

    @property
    def rank(self) -> int:
        """This member's number."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._room.size

    def exchange(self, payload: bytes, *, timeout: float) -> tuple[bytes, ...]:
        """Every member's payload, by rank.

        Args:
            timeout: seconds.

        Raises:
            RankLost: members did not come in time, or one has left; it names them.
            InvalidValue: the timeout is not positive, or two threads use one member.
        """
        if not timeout > 0:
            raise InvalidValue(f"a timeout of {timeout!r} seconds", fix="give a positive number")
        room = self._room
        with room.changed:
            if room.lost is not None:
                raise self._error(room.lost)
            meeting = room.meeting
            if self._rank in meeting.payloads:
                raise InvalidValue(
                    f"rank {self._rank} exchanges twice at once", fix="use one thread for each rank"
                )
            meeting.payloads[self._rank] = payload
            if len(meeting.payloads) == room.size:
                meeting.result = tuple(meeting.payloads[r] for r in range(room.size))
                room.meeting = _Meeting()
                room.changed.notify_all()
            room.changed.wait_for(
                lambda: meeting.result is not None or room.lost is not None, timeout
            )
            if meeting.result is not None:
                return meeting.result
            if room.lost is None:
                missing = sorted(set(range(room.size)) - set(meeting.payloads))
                ranks = ", ".join(f"rank {r}" for r in missing)
                room.lose(f"no answer in {timeout:g} s: {ranks}")
            raise self._error(str(room.lost))

    def abandon(self, reason: str = "it left the group") -> None:
        """Leave for good. Others that wait for this member, or will, raise `RankLost` at once."""
        with self._room.changed:
            if not self._abandoned:
                self._abandoned = True
                self._room.lose(f"lost: rank {self._rank} ({reason})")

    def __enter__(self) -> LocalGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.abandon()
        else:
            self.abandon(f"{type(error).__name__}: {error}")

    def _error(self, reason: str) -> RankLost:
        return RankLost(
            reason,
            where=f"rank {self._rank} of {self._room.size}",
            fix="look for that rank's own error: it ended, hangs, or has not come this far",
        )


def local_groups(size: int) -> tuple[LocalGroup, ...]:
    """``size`` members of one group, by rank, one for each thread.

    Raises:
        InvalidValue: ``size`` is less than 1.
    """
    if size < 1:
        raise InvalidValue(f"a group of {size} ranks", fix="give at least one")
    room = _Room(size)
    return tuple(LocalGroup(room, rank) for rank in range(size))
