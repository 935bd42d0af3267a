"""What one family's hook works with once its launches are loaded, and the reasons why there is nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mono_runtime.errors import LaunchMissing, MonoError, RanksDisagree
from mono_runtime.log import Once, logger
from mono_runtime.policy import Policy

if TYPE_CHECKING:
    from mono_runtime.group import Group
    from mono_runtime.hooks.deployments import Planned
    from mono_runtime.hooks.summary import StartupSummary
    from mono_runtime.launch_key import LaunchKey, Scalar
    from mono_runtime.loader import Loader
    from mono_runtime.store import Store

# Ranks load different numbers of bytes from different disks, and import at different speeds.
AGREEMENT_SECONDS = 300.0
Compiler = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Declined:
    """The engine runs its own path for this family, on every rank alike.

    Attributes:
        reasons: why.
        by_policy: whether the stores are the reason; if not, no mono kernels were asked for, or this
            project does not know them.
    """

    reasons: tuple[str, ...]
    by_policy: bool


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A family's launches, loaded on this rank's device and agreed on by all ranks.

    Attributes:
        planned: the deployment and the launches that it can ask for.
        loader: has them.
        summary: what was logged.
        widths: rows of the steps for which every rank has every launch.
        group: the tensor-parallel ranks.
    """

    planned: Planned
    store: Store
    loader: Loader
    summary: StartupSummary
    widths: frozenset[int]
    group: Group
    _said: Once = field(default_factory=Once, repr=False)
    _lacking: dict[Hashable, str | None] = field(default_factory=dict, repr=False)

    @property
    def policy(self) -> Policy:
        """What a miss leads to."""
        return self.store.policy

    @property
    def compiles(self) -> bool:
        """Whether vLLM's factories may compile what is missing, so that no step needs to be declined."""
        return self.policy is Policy.JIT

    def key(self, name: str, rows: int, **variant: Scalar) -> LaunchKey:
        """The key of a launch of this deployment; ``variant`` is what differs from the defaults."""
        return self.planned.family.key(self.planned.deployment, name, rows, variant)

    def launch(self, name: str, rows: int, /, **variant: Scalar) -> Callable[..., Any] | None:
        """A launch under the policy; None means that the caller runs the engine's own path.

        Raises:
            MonoError: as `mono_runtime.loader.Loader.resolve` without a compiler.
        """
        return self.loader.resolve(self.key(name, rows, **variant))

    def has(self, key: LaunchKey) -> bool:
        """Whether ``key`` is loaded: launching it loads nothing."""
        return self.loader.residency(key) is not None

    def lacking(self, step: Hashable, keys: Callable[[], Iterable[LaunchKey]]) -> str | None:
        """Why a step cannot be served, or None when all of its launches are loaded.

        Every rank gets the same answer, as all have agreed on what is loaded.

        Args:
            step: all that decides which launches it takes; it is remembered.
            keys: those launches.
        """
        if step not in self._lacking:
            names = [str(key) for key in keys() if not self.has(key)]
            verb = "is" if len(names) == 1 else "are"
            self._lacking[step] = f"{' and '.join(names)} {verb} not loaded" if names else None
        return self._lacking[step]

    def resolve(self, name: str, build: object, compiler: Compiler) -> Any:
        """What serves ``build``, an instance of the engine's own key dataclass.

        Under ``jit`` that is what ``compiler`` returns, if the launch cannot be had. Under the other
        policies the error is raised: a step that ends here was not declined in time.

        Raises:
            LaunchMissing: no store has it, or this release does not know one of its fields.
            MonoError: as `mono_runtime.loader.Loader.load`.
        """
        return resolve(self.loader, self.policy, self.planned.family.name, name, build, compiler)

    def decline(self, fact: str) -> str:
        """Count a step that takes the engine's own path for want of a launch; each ``fact`` is logged once.

        The fact must be one that every rank sees alike.
        """
        self.store.counters.fell_back(self.policy.value, "step")
        self._said(
            logger(),
            logging.WARNING,
            fact,
            "%s: %s, so the engine's own path runs such steps",
            self.planned.family.name,
            fact,
        )
        return fact

    def load(self, keys: Iterable[LaunchKey]) -> bool:
        """Load launches that nobody planned. Collective: every rank asks for the same ones at the same point.

        Returns:
            False when the ranks cannot have them alike and the policy is ``stock``: nobody is to use them.

        Raises:
            MonoError, RanksDisagree, RankLost: as `mono_runtime.loader.Loader.preload`.
        """
        # A rank alone has nobody to agree with, and its own error is the clearer one.
        group = self.group if self.group.size > 1 else None
        try:
            self.loader.preload(keys, group=group, timeout=AGREEMENT_SECONDS, log=False)
        except RanksDisagree:
            if self.policy is not Policy.STOCK:
                raise
            return False
        return True

    def agree(self, lacking: Iterable[str] = ()) -> None:
        """Prove again that all ranks have the same launches, after some were asked for that nobody planned.

        Collective.

        Args:
            lacking: what of these this rank does not have, in words that are the same on every rank.

        Raises:
            RanksDisagree, RankLost: as `mono_runtime.loader.Loader.agree`; also when ranks lack different
                launches.
        """
        from mono_runtime.ranks.outcomes import Outcome, differing, disagreement, exchange_outcomes

        self.loader.agree(self.group, timeout=AGREEMENT_SECONDS)
        # What the policy excuses is no failure of a rank, but all have to lack it alike.
        mine = "; ".join(sorted(lacking)) or "nothing"
        outcomes = exchange_outcomes(
            self.group, "lacking launches", Outcome(mine), timeout=AGREEMENT_SECONDS
        )
        reason = differing(
            "the ranks lack different launches",
            {rank: str(outcome.body) for rank, outcome in enumerate(outcomes)},
        )
        if reason:
            raise disagreement(
                "the ranks cannot all serve the same launches, so none of them does:",
                [reason],
                fix="give all ranks the same model and the same store",
            )


def resolve(
    loader: Loader, policy: Policy, family: str, name: str, build: object, compiler: Compiler
) -> Any:
    """See `Prepared.resolve`."""
    from mono_runtime.families.registry import family_keys

    arch = loader.device.architecture.name
    try:
        key = family_keys(family).key_of(name, arch, build)
    except LaunchMissing as error:
        if policy is not Policy.JIT:
            raise
        logger().warning("%s is compiled in this process (policy jit): %s", name, _first(error))
        return compiler()
    if policy is Policy.JIT:
        return loader.resolve(key, compile=lambda _: compiler())
    return loader.load(key)


def _first(error: MonoError) -> str:
    return "; ".join(line.strip() for line in error.what.splitlines())
