"""Ranks that are processes, over a CPU (gloo) process group of torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mono_runtime.errors import InvalidValue, RankLost

# Tags of this project's messages, apart from those that an engine sends over the same group.
_HEADER_TAG = 0x6D6F01
_PAYLOAD_TAG = 0x6D6F02
# First word of a header, so that nobody else's message is taken for one.
_MAGIC = 0x6D6F6E6F72616E6B
# Largest payload, in bytes: statements of thousands of launches stay far below it.
_LIMIT = 256 << 20
# Gloo counts whole milliseconds and takes 0 as "for ever".
_SHORTEST = 0.001

Works = Mapping[int, Any]


class TorchGroup:
    """A `Group` over a gloo process group.

    Messages go from each rank to each other one, not through a collective: so a rank knows which ranks
    are missing, and a rank that gave up holds no unfinished collective, which gloo would wait for until
    the group's own timeout when the process ends.

    After `RankLost` the process group cannot be used any more, by anybody: gloo closes its connections
    when a wait times out.

    Args:
        process_group: a ``torch.distributed.ProcessGroup`` whose CPU backend is gloo.

    Raises:
        InvalidValue: it has no CPU backend, or another one than gloo.
    """

    def __init__(self, process_group: Any) -> None:
        _require_gloo(process_group)
        self._process_group = process_group
        self._rank: int = process_group.rank()
        self._size: int = process_group.size()
        self._lost: RankLost | None = None

    @property
    def rank(self) -> int:
        """This rank's number in the process group."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks the process group has."""
        return self._size

    def exchange(self, payload: bytes, *, timeout: float) -> tuple[bytes, ...]:
        """Every rank's payload, by rank: first the lengths, then the bytes.

        Args:
            payload: at most 256 MiB.
            timeout: seconds from now, for everything together.

        Raises:
            RankLost: ranks did not answer in time, or their connections are closed; it names them.
            InvalidValue: the payload is too long or the timeout is not positive; nothing was sent.
        """
        if self._lost is not None:
            raise RankLost(
                "an earlier exchange of this group failed, so its connections are closed",
                where=self._lost.what,
                fix="restart the server",
            )
        if len(payload) > _LIMIT:
            raise InvalidValue(f"a message of {len(payload)} bytes; the most is {_LIMIT}")
        if not timeout > 0:
            raise InvalidValue(f"a timeout of {timeout!r} seconds", fix="give a positive number")
        began = time.monotonic()
        round_ = _Round(self._process_group, self._rank, self._size, began, timeout)
        try:
            lengths = round_.lengths(len(payload))
            return round_.payloads(payload, lengths)
        except RankLost as error:
            self._lost = error
            raise


class _Round:
    """One exchange with its deadline."""

    def __init__(
        self, process_group: Any, rank: int, size: int, began: float, timeout: float
    ) -> None:
        self._process_group = process_group
        self._rank = rank
        self._size = size
        self._began = began
        self._timeout = timeout

    @property
    def _peers(self) -> Sequence[int]:
        return [r for r in range(self._size) if r != self._rank]

    def lengths(self, own: int) -> dict[int, int]:
        """How many bytes each peer is going to send."""
        import torch

        # An engine builds its model, and with it the launches, where a GPU is torch's default device.
        integers = partial(torch.tensor, dtype=torch.int64, device="cpu")
        header = integers([_MAGIC, own])
        headers = {r: integers([0, 0]) for r in self._peers}
        self._transfer(
            "waiting for it to begin", _HEADER_TAG, dict.fromkeys(headers, header), headers
        )
        lengths = {}
        for rank, tensor in headers.items():
            magic, length = tensor.tolist()
            if magic != _MAGIC or not 0 <= length <= _LIMIT:
                raise RankLost(
                    f"rank {rank} sent something that is no message of this protocol",
                    where=f"rank {self._rank} of {self._size}",
                    fix="install the same mono-build release on every rank",
                )
            lengths[rank] = length
        return lengths

    def payloads(self, own: bytes, lengths: Mapping[int, int]) -> tuple[bytes, ...]:
        """The payloads of all ranks; an empty one is not sent."""
        import torch

        buffers = {rank: bytearray(length) for rank, length in lengths.items()}
        # A tensor cannot be made of no bytes, nor of bytes that must not change.
        outgoing = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else None
        self._transfer(
            "waiting for its message",
            _PAYLOAD_TAG,
            {} if outgoing is None else dict.fromkeys(lengths, outgoing),
            {r: torch.frombuffer(b, dtype=torch.uint8) for r, b in buffers.items() if b},
        )
        return tuple(own if r == self._rank else bytes(buffers[r]) for r in range(self._size))

    def _transfer(
        self, doing: str, tag: int, outgoing: Mapping[int, Any], incoming: Mapping[int, Any]
    ) -> None:
        """Receive into ``incoming`` and send ``outgoing``, both by rank; `RankLost` names who failed."""
        lost: dict[int, str] = {}
        group = self._process_group
        receives = self._start(lost, incoming, lambda r: group.recv([incoming[r]], r, tag))
        sends = self._start(lost, outgoing, lambda r: group.send([outgoing[r]], r, tag))
        if not lost:
            # All receives first: once one of these waits has timed out, gloo closes every connection,
            # and what had arrived by then still counts as arrived.
            self._wait(lost, receives)
            self._wait(lost, sends)
        if lost:
            raise self._error(doing, lost)

    def _start(
        self, lost: dict[int, str], ranks: Mapping[int, Any], start: Callable[[int], Any]
    ) -> Works:
        works = {}
        for rank in ranks:
            try:
                works[rank] = start(rank)
            except RuntimeError as error:
                lost.setdefault(rank, _closed(error))
        return works

    def _wait(self, lost: dict[int, str], works: Works) -> None:
        from datetime import timedelta

        for rank, work in works.items():
            if rank in lost:
                continue
            left = self._began + self._timeout - time.monotonic()
            try:
                work.wait(timedelta(seconds=max(left, _SHORTEST)))
            except RuntimeError as error:
                # Gloo has one error for both; only the clock tells a silent rank from a dead one.
                late = self._began + self._timeout - time.monotonic() < _SHORTEST * 2
                lost[rank] = "no answer" if late else _closed(error)
                if not late:
                    # Its connection alone is closed. The others are not asked any more, because an
                    # impatient wait would close theirs too and make them look lost to each other.
                    return

    def _error(self, doing: str, lost: Mapping[int, str]) -> RankLost:
        waited = time.monotonic() - self._began
        ranks = ", ".join(f"rank {r} ({lost[r]})" for r in sorted(lost))
        return RankLost(
            f"lost after {waited:.1f} s of at most {self._timeout:g} s: {ranks}",
            where=f"rank {self._rank} of {self._size}, {doing}",
            fix="look at the log of that rank: it ended, hangs, or has not come this far; then restart "
            "the server, with a longer timeout if it was only slow",
        )


def _closed(error: RuntimeError) -> str:
    text = str(error).split(". ")[0].rsplit("] ", 1)[-1]
    return f"connection closed, so it has ended or gave up waiting for another rank: {text}"


def _require_gloo(process_group: Any) -> None:
    import torch

    try:
        # Also for groups that torch.distributed has no register of, such as stateless ones of engines.
        backend = process_group._get_backend(torch.device("cpu")).name()
    except RuntimeError:
        backend = None
    if backend != "gloo":
        raise InvalidValue(
            "a process group that is not on the CPU"
            if backend is None
            else f"a process group whose CPU backend is {backend}",
            where=f"backend {process_group.name()}",
            fix="pass a gloo group, as vLLM's get_tp_group().cpu_group, or make one with "
            'torch.distributed.new_group(ranks, backend="gloo")',
        )
