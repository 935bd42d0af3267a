"""What each rank made of one step: data for the others or the reasons for its failure, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mono_runtime.canonical import Json, canonical_json
from mono_runtime.errors import InvalidValue, MonoError, RanksDisagree
from mono_runtime.group import Group

# Raised with every change of what is exchanged; ranks of different protocols never agree.
PROTOCOL = 1
# A failure's text, in characters, and how many of them a rank tells: enough to act on, and no more.
_TEXT = 2000
_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rank's outcome of a step.

    Attributes:
        body: JSON for the other ranks; None when there is none.
        failures: why this rank cannot go on; empty when it can.
    """

    body: Json = None
    failures: tuple[str, ...] = ()


def exchange_outcomes(
    group: Group, step: str, outcome: Outcome, *, timeout: float
) -> tuple[Outcome, ...]:
    """Every rank's outcome of ``step``, by rank; what cannot be read is a failure of its sender.

    Raises:
        RankLost: a rank did not answer within ``timeout`` seconds.
    """
    payload = _encode(step, outcome)
    return tuple(_decode(step, data) for data in group.exchange(payload, timeout=timeout))


def failures_by_rank(failures: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Each of the ranks' failures once: ``ranks 0, 2: StoreDamaged: ...``."""
    ranks: dict[str, list[int]] = {}
    for rank, texts in enumerate(failures):
        for text in dict.fromkeys(texts):
            ranks.setdefault(text, []).append(rank)
    return tuple(f"{ranks_text(r)}: {text}" for text, r in ranks.items())


def disagreement(what: str, reasons: Sequence[str], *, fix: str) -> RanksDisagree:
    """The error for ``reasons``, which are all in its text."""
    return RanksDisagree("".join([what, *(f"\n    {r}" for r in reasons)]), fix=fix)


def differing(label: str, values: Mapping[int, str]) -> str | None:
    """Which ranks have which of ``values``; None when all are equal."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(value, []).append(rank)
    if len(ranks) < 2:
        return None
    have = (f"{ranks_text(r)} {'has' if len(r) == 1 else 'have'} {v}" for v, r in ranks.items())
    return f"{label}: {', '.join(have)}"


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 2``, or ``ranks 0, 1, 3``."""
    numbers = sorted(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def failure_text(error: BaseException) -> str:
    """``error`` in one line, with its class and, when it is ours, where and what to do."""
    parts = [f"{type(error).__name__}: {error.what if isinstance(error, MonoError) else error}"]
    if isinstance(error, MonoError):
        parts += [f"where: {error.where}"] if error.where else []
        parts += [f"do: {error.fix}"] if error.fix else []
    return _sendable("; ".join(" ".join(p.split()) for p in parts))


def _sendable(text: str) -> str:
    # Names of files can hold lone surrogates, which UTF-8 cannot.
    return text[:_TEXT].encode("utf-8", "backslashreplace").decode()


def _encode(step: str, outcome: Outcome) -> bytes:
    message = {
        "protocol": PROTOCOL,
        "step": step,
        "body": outcome.body,
        "failures": [_sendable(f) for f in outcome.failures[:_FAILURES]],
    }
    try:
        return canonical_json(message)
    except InvalidValue as error:
        # The others wait for this rank whatever is wrong with it.
        return canonical_json({**message, "body": None, "failures": [failure_text(error)]})


def _decode(step: str, data: bytes) -> Outcome:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return Outcome(failures=("its message is not JSON",))
    if not isinstance(message, dict) or message.get("protocol") != PROTOCOL:
        theirs = message.get("protocol") if isinstance(message, dict) else None
        return Outcome(
            failures=(
                f"its messages have protocol {theirs!r:.40}, this rank's {PROTOCOL}: install the same "
                "mono-build release on every rank",
            )
        )
    if message.get("step") != step:
        return Outcome(
            failures=(
                f"it is at {message.get('step')!r:.80} while others are at {step!r}: every rank has to "
                "make the same calls in the same order",
            )
        )
    failures = message.get("failures")
    if not isinstance(failures, list) or not all(isinstance(f, str) for f in failures):
        return Outcome(failures=("its message has no list of failures",))
    return Outcome(message.get("body"), tuple(failures))
