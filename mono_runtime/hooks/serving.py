"""One server process's state: its opened stores, and for each family what was made ready at model load."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mono_runtime.errors import MonoError, RanksDisagree
from mono_runtime.log import logger
from mono_runtime.policy import Decision, Policy, decide, policy_from

if TYPE_CHECKING:
    from mono_runtime.driver import Driver
    from mono_runtime.group import Group
    from mono_runtime.hooks.deployments import Planned
    from mono_runtime.hooks.prepared import Declined, Prepared
    from mono_runtime.loader import Loader
    from mono_runtime.ranks.agreement import Statement
    from mono_runtime.store import Store

CONFIG_VARIABLE = "MONO_CONFIG_FILE"
# Raises a `MonoError` when the engine's code is not what the planned launches were described from.
Check = Callable[["Planned"], None]


class Serving:
    """The launches of a process. Making it opens nothing; safe to use from several threads.

    Args:
        driver: what drives the device; by default HIP, opened when a model is loaded.

    Attributes:
        environ: where ``MONO_STORE`` and the other variables are; by default the process's environment.
    """

    def __init__(
        self, *, driver: Driver | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._driver = driver
        self.environ = os.environ if environ is None else environ
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._states: dict[str, Prepared | Declined] = {}
        # By family, launch and the engine's own key: an eager step of some engines asks for every call.
        self._served: dict[tuple[str, str, object], Any] = {}
        self._described = False

    def prepare(
        self,
        vllm_config: object,
        *,
        group: object = None,
        device: int | None = None,
        family: str | None = None,
        check: Check | None = None,
    ) -> Prepared | None:
        """Make a deployment's launches ready, once a process and family, when its model is built.

        Reads the engine's config, plans, opens the stores, loads every launch that the deployment can
        ask for, agrees with the other ranks, and logs one summary. Later calls give what the first one
        gave; whoever passes ``family`` is spared reading the config again.

        Collective over ``group`` whenever the config asks for mono kernels: a rank that cannot open a
        store takes part and says so.

        Args:
            vllm_config: vLLM's ``VllmConfig``.
            group: the tensor-parallel ranks: vLLM's ``get_tp_group().cpu_group``.
            device: its number; by default the calling thread's current device.
            check: what the caller has to compare with the plan before anything is loaded.

        Returns:
            None when the engine's own path runs: mono kernels are off, this deployment is not one that
            they serve, or the policy ``stock`` declines. Every rank gets the same answer.

        Raises:
            MonoError: a launch that cannot be had and that the policy has no way around.
            RanksDisagree, RankLost: the ranks cannot all serve; not under ``stock`` for the former.
        """
        with self._lock:
            known = self._states.get(family) if family else None
            if known is None:
                known = self._prepare(vllm_config, group, device, family, check)
        return _prepared(known)

    def state(self, family: str) -> Prepared | Declined | None:
        """What `prepare` found for ``family``; None before it was called."""
        return self._states.get(family)

    def ready(self, family: str) -> Prepared | None:
        """What `prepare` gave for ``family``, or None."""
        return _prepared(self._states.get(family))

    def turn_off(self, family: str, reason: str) -> None:
        """Leave the engine as it is for ``family`` from now on, and log why, once.

        For what follows from the engine's code alone, which is the same on every rank.
        """
        from mono_runtime.hooks.prepared import Declined

        with self._lock:
            if isinstance(self._states.get(family), Declined):
                return
            self._states[family] = Declined((reason,), by_policy=False)
        logger().warning("prebuilt launches of %s are not used: %s", family, reason)

    def decline(self, family: str, reason: str) -> None:
        """Have every rank run the engine's own path for ``family`` from now on, after all have agreed to."""
        from mono_runtime.hooks.prepared import Declined

        with self._lock:
            self._states[family] = Declined((reason,), by_policy=True)
        logger().warning("%s: the engine's own path runs: %s", family, reason)

    def leaves_alone(self, family: str) -> bool:
        """Whether the engine is to do for ``family`` what it does without this project."""
        from mono_runtime.hooks.prepared import Declined

        state = self._states.get(family)
        return isinstance(state, Declined) and not state.by_policy

    def resolve(
        self, family: str, launch: str, build: Hashable, compiler: Callable[[], Any]
    ) -> Any:
        """What one of the engine's factories returns for its own key ``build``; the same for an equal one.

        Without `prepare` the launch comes from the stores under the policy, loaded now.

        Raises:
            MonoError: see `mono_runtime.hooks.prepared.Prepared.resolve`.
        """
        asked = (family, launch, build)
        served = self._served.get(asked)
        if served is None:
            served = self._served[asked] = self._resolve(family, launch, build, compiler)
        return served

    def _resolve(self, family: str, launch: str, build: object, compiler: Callable[[], Any]) -> Any:
        from mono_runtime.hooks.prepared import Declined, resolve

        state = self._states.get(family)
        if isinstance(state, Declined):
            raise MonoError(
                f"{family}/{launch} was asked for after its family had been declined",
                where="; ".join(state.reasons),
                fix="report this: the step that asked should have run the engine's own path",
            )
        if state is not None:
            return state.resolve(launch, build, compiler)
        return resolve(self.loader(), self._opened().policy, family, launch, build, compiler)

    def loader(self, device: int | None = None) -> Loader:
        """The stores on a device; errors as for `mono_runtime.open` and `mono_runtime.Store.on`."""
        return self._opened().on(device)

    def close(self) -> None:
        """Release every launch and forget everything. The device must be done with them."""
        with self._lock:
            store, self._store = self._store, None
            self._states.clear()
            self._served.clear()
        if store is not None:
            store.close()

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                from mono_runtime.store import open_store

                self._store = open_store(driver=self._driver, environ=self.environ)
            return self._store

    def _prepare(
        self,
        vllm_config: object,
        group: object,
        device: int | None,
        family: str | None,
        check: Check | None,
    ) -> Prepared | Declined:
        from mono_runtime.hooks.deployments import NotServed, plan_deployment
        from mono_runtime.hooks.engine_config import read_engine_config
        from mono_runtime.ranks.conversion import as_group

        start = time.perf_counter()
        policy, ranks = policy_from(self.environ), as_group(group)
        config = read_engine_config(vllm_config)
        self._write_config(vllm_config, ranks)
        try:
            loader = self.loader(device)
        except MonoError as error:
            return self._refused(family, policy, _told(ranks, error))
        planned = plan_deployment(config, loader.device.architecture.name)
        if isinstance(planned, NotServed):
            return self._not_served(family or planned.family, planned.reasons, asked=planned.asked)
        name = planned.family.name
        known = self._states.get(name)
        if known is not None:
            return known
        if family not in (None, name):
            return self._not_served(family, (f"the config describes {name}",), asked=True)
        for note in planned.notes:
            logger().info("%s: %s", name, note)
        try:
            state: Prepared | Declined = self._load(planned, loader, ranks, start, check)
        except MonoError as error:
            return self._refused(name, policy, error)
        self._states[name] = state
        return state

    def _load(
        self, planned: Planned, loader: Loader, ranks: Group, start: float, check: Check | None
    ) -> Prepared | Declined:
        from mono_runtime.hooks.prepared import AGREEMENT_SECONDS, Declined, Prepared
        from mono_runtime.hooks.summary import StartupSummary

        store, family, deployment = self._opened(), planned.family, planned.deployment
        # Under jit the engine's own factories make what has no launch key here.
        if check is not None and store.policy is not Policy.JIT:
            try:
                check(planned)
            except MonoError as error:
                raise _told(ranks, error) from None
            found = self._states.get(family.name)
            if isinstance(found, Declined):
                # The check has imported modules of the engine that cannot be changed.
                return found
        # A rank alone has nobody to agree with, and its own error is the clearer one.
        group = ranks if ranks.size > 1 else None
        preloaded = loader.preload(planned.keys, group=group, timeout=AGREEMENT_SECONDS, log=False)
        widths = planned.widths
        lacking = {f.key.values[family.rows_field] for f in preloaded.failed}
        served = tuple(w for w in widths if w not in lacking)
        summary = StartupSummary.of(
            preloaded,
            family=family.name,
            arch=deployment.arch,
            tp=deployment.tp,
            policy=store.policy.value,
            digest=store.digest,
            widths=widths,
            served=served,
            missing=store.missing(planned.keys),
            seconds=time.perf_counter() - start,
        )
        _log_summary(summary, ranks.rank)
        if not served and store.policy is Policy.STOCK:
            self.decline(family.name, "no step width has all its launches (policy stock)")
            return self._states[family.name]
        return Prepared(planned, store, loader, summary, frozenset(served), ranks)

    def _refused(self, family: str | None, policy: Policy, error: MonoError) -> Declined:
        """The answer to what keeps a rank, and so all ranks, from serving; raises unless it is to decline."""
        from mono_runtime.hooks.prepared import Declined

        # Every rank has the reasons of all, so under stock all of them decline alike.
        excused = policy is Policy.STOCK and (
            isinstance(error, RanksDisagree)
            or decide(policy, error, can_compile=False) is Decision.DECLINE
        )
        if not excused:
            raise error
        declined = Declined((str(error),), by_policy=True)
        if family is not None:
            self._states[family] = declined
        logger().warning(
            "%s: the engine's own path runs (policy stock): %s", family or "mono kernels", error
        )
        return declined

    def _not_served(self, family: str | None, reasons: tuple[str, ...], *, asked: bool) -> Declined:
        from mono_runtime.hooks.prepared import Declined

        declined = Declined(reasons, by_policy=False)
        if family is not None:
            self._states[family] = declined
        # Who asked for mono kernels gets other ones than the store's, or none.
        logger().log(
            logging.WARNING if asked else logging.INFO,
            "no prebuilt launches are used%s: %s",
            f" for {family}" if family else "",
            "; ".join(reasons),
        )
        return declined

    def _write_config(self, vllm_config: object, ranks: Group) -> None:
        """Leave the deployment's description where ``MONO_CONFIG_FILE`` says, for ``mono-build coverage``."""
        path = self.environ.get(CONFIG_VARIABLE)
        if not path or ranks.rank or self._described:
            return
        self._described = True
        import json
        from pathlib import Path

        from mono_runtime.hooks.engine_config import describe

        target = Path(path)
        staging = target.parent / f"{target.name}.{os.getpid()}"
        try:
            try:
                staging.write_text(
                    json.dumps(describe(vllm_config), indent=2, sort_keys=True) + "\n"
                )
                staging.replace(target)
            finally:
                # There still where the target is a directory.
                staging.unlink(missing_ok=True)
        except OSError as error:
            logger().warning(
                "%s: the deployment's description could not be written to %s: %s",
                CONFIG_VARIABLE,
                path,
                error,
            )


def _told(ranks: Group, error: MonoError) -> MonoError:
    """``error``, after the other ranks, who wait for this one, were told of it."""
    from mono_runtime.hooks.prepared import AGREEMENT_SECONDS
    from mono_runtime.ranks.agreement import agree_or_fail

    def fail() -> Statement:
        raise error

    # What comes back is `error` itself, whatever the exchange gave.
    with suppress(MonoError):
        agree_or_fail(ranks, fail, timeout=AGREEMENT_SECONDS)
    return error


def _prepared(state: Prepared | Declined | None) -> Prepared | None:
    from mono_runtime.hooks.prepared import Prepared

    return state if isinstance(state, Prepared) else None


def _log_summary(summary: Any, rank: int) -> None:
    level = logging.INFO if summary.complete else logging.WARNING
    # The ranks have agreed, so one line speaks for all.
    logger().log(level if rank == 0 else logging.DEBUG, "%s", summary)
