"""A store on one device: which launches are loaded there, and how more are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from mono_runtime.context import Context
from mono_runtime.driver import Device
from mono_runtime.errors import (
    CaptureActive,
    LaunchMissing,
    MonoError,
    Released,
    WrongDevice,
)
from mono_runtime.launch_key import LaunchKey, Scalar
from mono_runtime.launching.launch import Launch
from mono_runtime.launching.signature import require_signature
from mono_runtime.layers import Found
from mono_runtime.log import logger
from mono_runtime.modules import Module, ModuleCache
from mono_runtime.policy import Decision, Policy, decide, reason_of
from mono_runtime.preload import Loaded, Progress, Summary, preload
from mono_runtime.residency import Residency, describe, require_resident
from mono_runtime.streams import current_stream

Signature = Sequence[str] | Sequence[tuple[str, str]]
Compile = Callable[[LaunchKey], Callable[..., Any]]


class Loader:
    """The launches of a store on one device. Safe to use from several threads.

    Attributes:
        device: the device, as its driver described it when the loader was made.
    """

    def __init__(self, context: Context, device: Device) -> None:
        self.device = device
        self._context = context
        self._modules = ModuleCache(context.driver, device.ordinal, counters=context.counters)
        self._lock = threading.Lock()
        self._launches: dict[LaunchKey, Launch] = {}
        self._residency: dict[LaunchKey, Residency] = {}
        self._artefacts: dict[LaunchKey, str] = {}
        self._failures: dict[LaunchKey, MonoError] = {}
        self._watches: list[Callable[[], None]] = []
        self._closed = False

    def key(self, family: str, launch: str, /, **build: Scalar) -> LaunchKey:
        """The launch key of these names on this device's architecture."""
        return LaunchKey.of(family, launch, self.device.architecture.name, build)

    def launch(self, family: str, launch: str, /, **build: Scalar) -> Launch:
        """The launch of this build key, loaded now if it is not yet. Errors: as for `load`."""
        return self.load(self.key(family, launch, **build))

    def load(self, key: LaunchKey, *, signature: Signature | None = None) -> Launch:
        """The launch of ``key``, loaded and checked once for this device.

        Args:
            signature: the names, or (name, type) pairs, of the arguments that the caller will pass.

        Raises:
            LaunchMissing: no layer holds it; the error names the nearest entries.
            StoreDamaged, StorePermission, StoreMissing, StoreUnsafe: its bytes cannot be had.
            KernelSourcesDiffer: the installed kernels are others than those it was built from.
            WrongDevice, NotResident: this device cannot run it.
            ArgumentMismatch: its arguments are not ``signature``.
            CaptureActive: it is not loaded, and the current stream is recording a graph.
            DriverError: the driver could not load it.
            Released: the store has been closed.
        """
        launch = self._launches.get(key)
        if launch is None:
            launch, _ = self._load(key)
        if signature is not None:
            require_signature(launch.plan, signature, where=str(key))
        return launch

    def resolve(
        self, key: LaunchKey, *, signature: Signature | None = None, compile: Compile | None = None
    ) -> Callable[..., Any] | None:
        """What serves ``key`` under the store's policy: a launch, what ``compile`` made, or None.

        None means that the caller runs its own path: that is the answer of ``stock`` when the launch
        cannot be had. Under ``jit`` it is what ``compile`` returns for the key. Both are counted, and
        logged once.

        Raises:
            MonoError: as for `load`, under ``strict``, and for what no policy excuses.
        """
        try:
            return self.load(key, signature=signature)
        except MonoError as error:
            policy = self._context.policy
            decision = decide(policy, error, can_compile=compile is not None)
            if decision is Decision.RAISE:
                raise
            self._note_fallback(key, decision, error)
        return compile(key) if decision is Decision.COMPILE and compile is not None else None

    def preload(
        self,
        keys: Iterable[LaunchKey],
        *,
        group: object = None,
        timeout: float = 60.0,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Summary:
        """Load a deployment's launches in parallel, before the server is ready.

        Under ``strict`` a launch that cannot be loaded is an error, raised after all the others were
        tried. Under ``stock`` and ``jit`` it is in the summary's ``failed``.

        With ``group``, the CPU process group of the tensor-parallel ranks, this is collective: after
        loading, the ranks `agree`, so one rank's failure is raised on all of them.

        Args:
            timeout: seconds to wait for the other ranks.
            workers: threads; by default one for each core this process may use, 8 at most.
            progress: called with (done, total, key) after each launch, by this thread.

        Raises:
            RanksDisagree, RankLost: with ``group``; RanksDisagree is raised on every rank.
            MonoError: under ``strict`` without ``group``, with every launch that failed and why.
        """
        self._refuse_in_capture("a preload")
        summary = preload(keys, self._load_counted, workers=workers, progress=progress)
        logger().log(
            logging.WARNING if summary.failed else logging.INFO,
            "%s on %s, store %s",
            summary,
            describe(self.device),
            self._context.layers.digest,
        )
        if group is not None:
            self.agree(group, timeout=timeout)
        elif self._context.policy is Policy.STRICT:
            summary.raise_if_failed()
        return summary

    def agree(self, group: object, *, timeout: float = 60.0) -> None:
        """Prove that every rank has the same store, policy, kind of device and loaded launches.

        Collective over ``group``: a CPU process group of torch, or a `mono_runtime.group.Group`. Call
        it before the first launch, as workgroups of one rank wait for those of the others. Under
        ``strict`` a launch that one rank could not load is every rank's refusal; under the other
        policies the ranks have to lack the same ones.

        Raises:
            RanksDisagree: on every rank, with the reasons of all.
            RankLost: a rank did not answer within ``timeout`` seconds.
        """
        from mono_runtime.ranks.agreement import agree

        agree(group, self._statement(), timeout=timeout)

    @property
    def launches(self) -> Mapping[LaunchKey, Launch]:
        """The launches that are loaded."""
        return MappingProxyType(self._launches)

    def residency(self, key: LaunchKey) -> Residency | None:
        """How the grid of a loaded launch fits on the device; None when ``key`` is not loaded."""
        return self._residency.get(key)

    def close(self) -> None:
        """Release every launch and module. The device must be done with them. Twice does no harm."""
        with self._lock:
            self._closed = True
            launches, self._launches = self._launches, {}
            watches, self._watches = self._watches, []
        for launch in launches.values():
            launch.close()
        for stop in watches:
            stop()
        self._modules.close()

    def _load_counted(self, key: LaunchKey) -> Loaded:
        if key in self._launches:
            return Loaded(0, 0)
        _, modules = self._load(key)
        new = [m for m in modules if not m.shared]
        return Loaded(len(new), sum(m.size for m in new))

    def _load(self, key: LaunchKey) -> tuple[Launch, Sequence[Module]]:
        self._refuse_in_capture(str(key))
        try:
            launch, modules, residency, artefact = self._make(key)
        except MonoError as error:
            self._context.counters.missed(reason_of(error))
            with self._lock:
                self._failures[key] = error
            raise
        with self._lock:
            if self._closed:
                raise Released("the store was closed while a launch was loaded", where=str(key))
            self._failures.pop(key, None)
            # Two threads may have made it at once, from the same modules; the first is kept.
            kept = self._launches.setdefault(key, launch)
            if kept is launch:
                self._residency[key], self._artefacts[key] = residency, artefact
                counters = self._context.counters
                self._watches.append(counters.watch(key.family, key.launch, lambda: launch.calls))
        return kept, modules

    def _make(self, key: LaunchKey) -> tuple[Launch, list[Module], Residency, str]:
        context = self._context
        found = self._find(key)
        context.counters.hit()
        artefact = context.layers.artefact(found)
        context.sources.require(found.reader, artefact.inputs)
        modules = [
            self._modules.acquire(code.digest, partial(context.layers.code, found, code))
            for code in artefact.code_objects
        ]
        functions = [
            self._modules.function(d.code_object, d.symbol) for d in artefact.plan.dispatches
        ]
        residency = require_resident(artefact, self.device, context.driver, functions, launch=key)
        launch = Launch(
            key,
            artefact.plan,
            self.device.ordinal,
            context.driver,
            functions,
            always_check=context.always_check,
        )
        return launch, modules, residency, found.entry.artefact

    def _find(self, key: LaunchKey) -> Found:
        """The entry of ``key``, which must be for this device's architecture."""
        layers, mine = self._context.layers, self.device.architecture
        if key.arch != mine.name:
            raise WrongDevice(
                f"a launch for {key.arch} was asked for on {describe(self.device)}",
                where=str(key),
                fix=f"ask for {mine.name}, or use a device of the architecture {key.arch}",
            )
        try:
            return layers.find(key)
        except LaunchMissing as missing:
            held = sorted({k.arch for k in layers.keys()})  # noqa: SIM118 (it is a method)
            if not held or key.arch in held:
                raise
            raise WrongDevice(
                f"the store holds launches for {', '.join(held)} and none for {describe(self.device)}",
                where=":".join(str(r.path) for r in layers.readers),
                fix=f"build a store for this device: mono-build --arch {mine.name} ...",
            ) from missing

    def _refuse_in_capture(self, what: str) -> None:
        device = self.device.ordinal
        if self._context.driver.is_capturing(device, current_stream(device)):
            raise CaptureActive(
                f"{what} would be loaded while the current stream records a graph",
                where=f"device {device}",
                fix="load it before the capture: preload the deployment's launches when the server"
                " starts, or run one step of this width eagerly first",
            )

    def _note_fallback(self, key: LaunchKey, decision: Decision, error: MonoError) -> None:
        context, reason = self._context, reason_of(error)
        context.counters.fell_back(context.policy.value, reason)
        instead = (
            "it is compiled in this process"
            if decision is Decision.COMPILE
            else "the engine's own path runs instead"
        )
        context.log(
            logger(),
            logging.WARNING,
            (key, reason),
            "%s cannot be had from the store, %s (policy %s): %s",
            key,
            instead,
            context.policy.value,
            error,
        )

    def _statement(self) -> Any:
        from mono_runtime.ranks.agreement import LoadedLaunch, Statement
        from mono_runtime.ranks.outcomes import failure_text

        context = self._context
        with self._lock:
            failures = list(self._failures.items())
            artefacts, residency = dict(self._artefacts), dict(self._residency)
        refusals = failures if context.policy is Policy.STRICT else []
        return Statement(
            store=context.layers.digest,
            policy=context.policy.value,
            architecture=str(self.device.architecture),
            compute_units=self.device.compute_units,
            loaded=tuple(
                LoadedLaunch(str(key), digest, _workgroups(residency[key]))
                for key, digest in artefacts.items()
            ),
            failures=tuple(f"{key}: {failure_text(error)}" for key, error in refusals),
        )


def _workgroups(residency: Residency) -> int | None:
    """Of a compute unit, for the launch's tightest grid; None when it is not persistent."""
    return min((fit.each for fit in residency.fits), default=None)
