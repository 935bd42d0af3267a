"""What a launch's epoch words, scratch and peer memory say of a launch that waits. Nothing is read here.

Facts of vLLM 0.33.0's kernels (deepseek_v41/amd/mono: layer.py, attention/back.py, common/sync.py):

- K2 and the FFN launch run in an epoch, word 0 of the epoch words. Each workgroup writes epoch + 1 to its
  own word behind word 4 when it begins. The first workgroup, when it is done and all have begun, moves
  the epoch on. So a word that is epoch + 1 tells of a launch that runs, also in the replay of a graph.
- What workgroups and ranks hand to each other is pairs of a value and a tag, 2 epoch + 1 for K1 and
  2 epoch + 2 for the others. Every step width has a scratch of its own.
- Peer memory has two halves that epochs alternate between. A half begins with what the ranks pushed for
  the attention's sum, [rank][row][2560] pairs, and goes on with the same for the experts' sum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.weights import HIDDEN

WORKGROUPS = 256
_FIRST_MARK = 4
EPOCH_BYTES = 4 * (_FIRST_MARK + WORKGROUPS)
PAIR = 8
# A pair carries two bfloat16.
ROW_PAIRS = HIDDEN // 2
_WORDS = struct.Struct(f"<{_FIRST_MARK + WORKGROUPS}I")
_MASK = 0xFFFFFFFF
# Plain numbers in scratch may look like a tag; a launch leaves far more pairs than that.
_FEW = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """What the epoch words say.

    Attributes:
        epoch: launches of K2 and FFN that ended, modulo 2^32.
        running: whether one has begun and not ended.
        unmarked: workgroups that have not begun the one that runs.
    """

    epoch: int
    running: bool
    unmarked: tuple[int, ...] = ()


def progress_of(words: bytes) -> Progress:
    """What the first `EPOCH_BYTES` of the epoch words say."""
    if len(words) != EPOCH_BYTES:
        raise InvalidValue(f"epoch words are {EPOCH_BYTES} bytes, and these are {len(words)}")
    epoch, *rest = _WORDS.unpack(words)
    current = (epoch + 1) & _MASK
    marks = rest[_FIRST_MARK - 1 :]
    unmarked = tuple(i for i, mark in enumerate(marks) if mark != current)
    running = len(unmarked) < WORKGROUPS
    return Progress(epoch, running, unmarked if running else ())


@dataclass(frozen=True, slots=True)
class Stuck:
    """A launch that has waited for longer than the limit: for ``seconds``, and still does."""

    seconds: float
    progress: Progress


@dataclass(frozen=True, slots=True)
class Recovered:
    """A launch that was reported has ended, at most ``seconds`` after it was first seen."""

    seconds: float
    epoch: int


class Watch:
    """Follows the epoch words of one runner. A launch is reported once, and once more when it ends.

    Args:
        limit: seconds after which a launch that runs in one epoch is reported. A step takes milliseconds.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._epoch: int | None = None
        self._since = 0.0
        self._reported = False

    def observe(self, progress: Progress, now: float) -> Stuck | Recovered | None:
        """What is to be said after this look at ``now``, in seconds of any clock that never goes back."""
        same = progress.running and progress.epoch == self._epoch
        waited = now - self._since
        if same:
            if waited < self._limit or self._reported:
                return None
            self._reported = True
            return Stuck(waited, progress)
        ended = Recovered(waited, self._epoch or 0) if self._reported else None
        self._epoch = progress.epoch if progress.running else None
        self._since, self._reported = now, False
        return ended


def width_of(scratches: Iterable[tuple[int, bytes]], epoch: int) -> int | None:
    """The rows of the step that runs in ``epoch``: those of the scratch that holds its tags, or None.

    Args:
        scratches: for each step width its rows, and the bytes of its scratch.
    """
    counts: dict[int, int] = {}
    for rows, data in scratches:
        counts[rows] = max(counts.get(rows, 0), sum(_tagged(data, epoch, by) for by in (1, 2)))
    best = max(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] >= _FEW else None


@dataclass(frozen=True, slots=True)
class Arrived:
    """What has come from a rank, in pairs of ``wanted``, for the attention's sum and for the experts'."""

    rank: int
    attention: int
    experts: int
    wanted: int


def arrived(half: bytes, tp: int, rows: int, epoch: int) -> tuple[Arrived, ...]:
    """What has come from each of ``tp`` ranks for a step of ``rows`` rows.

    Args:
        half: the beginning of the epoch's half of this rank's peer memory, `arrival_bytes` of it.
    """
    size = rows * ROW_PAIRS * PAIR
    found = [_tagged(half[i * size : (i + 1) * size], epoch, 2) for i in range(2 * tp)]
    return tuple(Arrived(r, found[r], found[tp + r], rows * ROW_PAIRS) for r in range(tp))


def width_pushed(half: bytes, tp: int, rank: int, widths: Iterable[int], epoch: int) -> int | None:
    """The rows of a step that waits for the attention's sum, by what ``rank`` itself has pushed, or None.

    An FFN launch begins with that, so it has left nothing in its scratch yet. A rank pushes all of its
    part or nothing, and where the parts lie follows from the rows. Of several widths that would fit,
    the largest is taken: a smaller one would take one rank's part for those of several.
    """
    for rows in sorted(widths, reverse=True):
        came = arrived(half, tp, rows, epoch)
        if came[rank].attention == came[rank].wanted and all(
            a.attention in (0, a.wanted) for a in came
        ):
            return rows
    return None


def arrival_bytes(tp: int, rows: int) -> int:
    """Bytes of peer memory that a step of ``rows`` rows uses."""
    return 2 * tp * rows * ROW_PAIRS * PAIR


def explain(
    stuck: Stuck, rank: int, name: str, rows: int | None, came: Sequence[Arrived] = ()
) -> str:
    """The report of a launch that waits: rank, width, workgroups, what it waits for, and what to do."""
    progress = stuck.progress
    step = "a step" if rows is None else f"a step of {rows} rows"
    text = (
        f"rank {rank}: a launch of {step} ({name}, epoch {progress.epoch}) has not ended for "
        f"{stuck.seconds:.1f} s. "
    )
    if progress.unmarked:
        count = WORKGROUPS - len(progress.unmarked)
        return text + (
            f"{count} of {WORKGROUPS} workgroups have begun; not: {spans(progress.unmarked)}\n"
            "  do:    let nothing else run on this GPU; look for a compute unit mask, a partition mode, or "
            "another process that keeps part of it"
        )
    text += f"All {WORKGROUPS} workgroups have begun. "
    for half in ("attention", "experts"):
        late = [a for a in came if getattr(a, half) < a.wanted]
        if late:
            parts = ", ".join(f"{getattr(a, half)} of {a.wanted} from rank {a.rank}" for a in late)
            return text + (
                f"It waits for the {half} sum: {parts}\n"
                f"  do:    see what rank {_lowest(late, half)} does: its log, whether its process is alive, "
                "whether it runs the same step; and the link between the GPUs"
            )
    waits = "What the other ranks push has come" if came else "What it waits for is not known"
    return text + (
        f"{waits}\n"
        "  do:    look at the logs of all ranks of this group; the one that reports nothing, or something "
        "else, is the one to mend"
    )


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: ``0-3, 7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _lowest(late: Sequence[Arrived], half: str) -> int:
    return min(late, key=lambda a: int(getattr(a, half))).rank


def _tagged(data: bytes, epoch: int, by: int) -> int:
    """How many pairs hold the tag 2 ``epoch`` + ``by``."""
    words = memoryview(data)[: len(data) // PAIR * PAIR].cast("I")
    return words[1::2].tolist().count((2 * epoch + by) & _MASK)
