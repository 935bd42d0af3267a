"""What ranks must agree on before the first launch, because their kernels wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mono_runtime.canonical import Json
from mono_runtime.errors import InvalidValue, RankLost, RanksDisagree
from mono_runtime.ranks.conversion import as_group
from mono_runtime.ranks.outcomes import (
    Outcome,
    differing,
    disagreement,
    exchange_outcomes,
    failure_text,
    failures_by_rank,
    ranks_text,
)

# How many launches a reason names.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """One launch that a rank has loaded.

    Attributes:
        name: the launch key's text, ``deepseek_v41/k1 gfx950 fold=false ...``.
        artefact: the digest of its artefact.
        workgroups: how many of its workgroups a compute unit holds at once; None if nobody can tell.
    """

    name: str
    artefact: str
    workgroups: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """What one rank has, and all ranks must have alike.

    Attributes:
        store: the digest of the opened store or layers; empty if none could be opened.
        policy: what happens to a launch that is missing, such as ``strict``.
        architecture: the device's, with its feature flags; empty if there is no device.
        compute_units: those that a launch can use; 0 if there is no device.
        loaded: the launches, in any order.
        failures: why this rank cannot serve; empty when it can.
    """

    store: str = ""
    policy: str = ""
    architecture: str = ""
    compute_units: int = 0
    loaded: tuple[LoadedLaunch, ...] = ()
    failures: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """The statement without its failures."""
        return {
            "store": self.store,
            "policy": self.policy,
            "architecture": self.architecture,
            "compute_units": self.compute_units,
            "loaded": [
                [x.name, x.artefact, x.workgroups]
                for x in sorted(self.loaded, key=lambda x: x.name)
            ],
        }

    @staticmethod
    def from_json(value: Json) -> Statement:
        """The statement that `to_json` wrote; anything else raises `InvalidValue`."""
        texts = ("store", "policy", "architecture")
        if (
            not isinstance(value, dict)
            or set(value) != {*texts, "compute_units", "loaded"}
            or not all(isinstance(value[t], str) for t in texts)
            or type(value["compute_units"]) is not int
            or not isinstance(value["loaded"], list)
        ):
            raise InvalidValue("not a statement")
        return Statement(
            value["store"],
            value["policy"],
            value["architecture"],
            value["compute_units"],
            tuple(_loaded(x) for x in value["loaded"]),
        )


def _loaded(value: Json) -> LoadedLaunch:
    match value:
        case [str(name), str(artefact), None | int() as workgroups]:
            return LoadedLaunch(name, artefact, workgroups)
    raise InvalidValue("not a statement: a loaded launch has a name, an artefact and workgroups")


def agree(group: object, statement: Statement, *, timeout: float = 60.0) -> tuple[Statement, ...]:
    """The statements of all ranks, by rank, when they are alike and none has failures. Collective.

    A rank that could not load takes part with a statement that says so in ``failures``; otherwise the
    others wait for it until ``timeout``.

    Args:
        group: what `as_group` takes.
        timeout: seconds to wait for the other ranks, from now; they may still be loading.

    Raises:
        RanksDisagree: on every rank, with the reasons of all.
        RankLost: a rank did not answer in time, or its process is gone.
    """
    outcomes = exchange_outcomes(
        as_group(group),
        "agreement",
        Outcome(statement.to_json(), statement.failures),
        timeout=timeout,
    )
    statements = tuple(_read(outcome) for outcome in outcomes)
    reasons = [*failures_by_rank(s.failures for s in statements), *_differences(statements)]
    if reasons:
        raise disagreement(
            "the ranks cannot all serve the same launches, so none of them does:",
            reasons,
            fix="mend what is named for each rank; all ranks need the same store, policy, launches and "
            "kind of device",
        )
    return statements


def agree_or_fail(
    group: object, make_statement: Callable[[], Statement], *, timeout: float = 60.0
) -> tuple[Statement, ...]:
    """`agree` on what ``make_statement`` returns; an error in it becomes every rank's refusal.

    Raises:
        Exception: what ``make_statement`` raised, on the rank where it did, after the exchange; what
            the exchange raised is its context.
        RanksDisagree: on the other ranks, and wherever statements differ.
        RankLost: a rank did not answer in time, or its process is gone.
    """
    try:
        statement = make_statement()
    except Exception as error:
        try:
            agree(group, Statement(failures=(failure_text(error),)), timeout=timeout)
        except (RanksDisagree, RankLost):
            # Without "from": the error keeps the cause that it came with.
            raise error  # noqa: B904
        raise
    return agree(group, statement, timeout=timeout)


def _read(outcome: Outcome) -> Statement:
    # A message that could not be read has failures and no body.
    if outcome.body is None and outcome.failures:
        return Statement(failures=outcome.failures)
    try:
        return replace(Statement.from_json(outcome.body), failures=outcome.failures)
    except InvalidValue as error:
        return Statement(failures=(*outcome.failures, failure_text(error)))


def _differences(statements: Sequence[Statement]) -> list[str]:
    """What differs between the ranks.

    A rank that failed early has no store or device to compare, and its loaded launches are incomplete.
    """
    everything = list(enumerate(statements))
    found = [
        differing("the stores differ", {r: s.store for r, s in everything if s.store}),
        differing("the policies differ", {r: s.policy for r, s in everything if s.policy}),
        differing(
            "the devices differ", {r: s.architecture for r, s in everything if s.architecture}
        ),
        differing(
            "the numbers of compute units differ",
            {r: str(s.compute_units) for r, s in everything if s.compute_units},
        ),
    ]
    complete = {r: s.loaded for r, s in everything if not s.failures}
    return [text for text in found if text is not None] + _launch_differences(complete)


def _launch_differences(loaded: Mapping[int, Sequence[LoadedLaunch]]) -> list[str]:
    """Launches that some ranks lack, and launches that are not the same everywhere."""
    by_name: dict[str, dict[int, LoadedLaunch]] = {}
    for rank, launches in loaded.items():
        for launch in launches:
            by_name.setdefault(launch.name, {})[rank] = launch
    missing: dict[frozenset[int], list[str]] = {}
    artefacts: list[str] = []
    workgroups: list[str] = []
    for name, on in sorted(by_name.items()):
        if len(on) < len(loaded):
            missing.setdefault(frozenset(loaded.keys() - on.keys()), []).append(name)
        text = differing(name, {r: x.artefact for r, x in on.items()})
        artefacts += [text] if text else []
        text = differing(name, {r: str(x.workgroups) for r, x in on.items()})
        workgroups += [text] if text else []
    lines = [
        f"not loaded on {ranks_text(ranks)} but elsewhere, {_count(names)}: {_first(names)}"
        for ranks, names in missing.items()
    ]
    for what, texts in (("artefacts", artefacts), ("workgroups on a compute unit", workgroups)):
        if texts:
            lines.append(f"{what} differ, {_count(texts)}: {_first(texts)}")
    return lines


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} launch{'' if len(names) == 1 else 'es'}"


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return "; ".join(names[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
