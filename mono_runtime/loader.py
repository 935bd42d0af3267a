"""A store on one device: which launches are loaded there, and how more are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mono_runtime.arch import KNOWN
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
from mono_runtime.policy import Decision, decide, reason_of
from mono_runtime.preload import Loaded, Progress, Summary, preload
from mono_runtime.residency import Residency, describe, require_resident
from mono_runtime.streams import capture_error, is_capturing

if TYPE_CHECKING:
    from mono_runtime.ranks.agreement import Statement

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
        self._loading = 0
        self._loaded = threading.Condition(self._lock)
        self._launches: dict[LaunchKey, Launch] = {}
        self._residency: dict[LaunchKey, Residency] = {}
        self._artefacts: dict[LaunchKey, str] = {}
        self._failures: dict[LaunchKey, Exception] = {}
        self._watches: list[Callable[[], None]] = []
        self._closed = False

    def key(self, family: str, launch: str, /, **build: Scalar) -> LaunchKey:
        """The launch key of these names on this device's architecture.

        Raises:
            InvalidValue: a name or a value that no launch key can have.
            WrongDevice: launches are built for other architectures than this device's.
        """
        arch = self.device.architecture.name
        if arch not in KNOWN:
            raise WrongDevice(
                f"no launches are built for {describe(self.device)}",
                fix=f"use a device of the architecture {' or '.join(KNOWN)}",
            )
        return LaunchKey.of(family, launch, arch, build)

    def keys(self) -> tuple[LaunchKey, ...]:
        """The launch keys that the store holds for this device's architecture."""
        mine = self.device.architecture.name
        return tuple(k for k in self._context.layers.keys() if k.arch == mine)  # noqa: SIM118

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
            CaptureActive: the store has it, it is not loaded, and the current stream is recording a
                graph.
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
        log: bool = True,
    ) -> Summary:
        """Load a deployment's launches in parallel, before the server is ready.

        A launch that cannot be loaded and that the policy has no way around is an error, raised after
        all the others were tried: under ``strict`` that is any. What the policy has a way around is in
        the summary's ``failed``.

        With ``group``, the CPU process group of the tensor-parallel ranks, this is collective: after
        loading, the ranks `agree`, so one rank's failure is raised on all of them.

        Args:
            timeout: seconds to wait for the other ranks.
            workers: threads; by default one for each core this process may use, 8 at most.
            progress: called with (done, total, key) after each launch, by this thread.
            log: whether to log the summary; not for a caller that tells it in its own words.

        Raises:
            RanksDisagree, RankLost: with ``group``; RanksDisagree is raised on every rank.
            MonoError: without ``group``, with every launch that failed and why.
            CaptureActive: the current stream is recording a graph.
            Released: the store has been closed.
            Exception: what ``progress`` raises; with ``group`` the other ranks get RanksDisagree.
        """
        if group is None:
            summary = self._preload(keys, workers, progress, log)
            summary.raise_if_failed(self._refuses)
            return summary
        from mono_runtime.ranks.agreement import agree_or_fail
        from mono_runtime.ranks.conversion import as_group

        # Before the work: what is no group would be found after it.
        ranks = as_group(group)
        summaries: list[Summary] = []

        def loaded() -> Statement:
            summaries.append(self._preload(keys, workers, progress, log))
            return self._statement()

        agree_or_fail(ranks, loaded, timeout=timeout)
        return summaries[0]

    def agree(self, group: object, *, timeout: float = 60.0) -> None:
        """Prove that every rank has the same store, policy, kind of device and loaded launches.

        Collective over ``group``: a CPU process group of torch, or a `mono_runtime.group.Group`. Call
        it before the first launch, as workgroups of one rank wait for those of the others. A launch
        that one rank could not load, and that the policy has no way around, is every rank's refusal;
        the others the ranks have to lack alike.

        Raises:
            RanksDisagree: on every rank, with the reasons of all.
            RankLost: a rank did not answer within ``timeout`` seconds.
            Released: the store has been closed; the other ranks get RanksDisagree.
        """
        from mono_runtime.ranks.agreement import agree_or_fail

        agree_or_fail(group, self._statement, timeout=timeout)

    @property
    def launches(self) -> Mapping[LaunchKey, Launch]:
        """The launches that are loaded now."""
        with self._lock:
            return MappingProxyType(dict(self._launches))

    def residency(self, key: LaunchKey) -> Residency | None:
        """How the grid of a loaded launch fits on the device; None when ``key`` is not loaded."""
        return self._residency.get(key)

    def close(self) -> None:
        """Release every launch and module. The device must be done with them. Twice does no harm.

        Waits for threads that are loading: their kernels' handles would lead to unloaded modules.
        """
        with self._lock:
            self._closed = True
            self._loaded.wait_for(lambda: not self._loading)
            launches, self._launches = self._launches, {}
            watches, self._watches = self._watches, []
            self._residency, self._artefacts, self._failures = {}, {}, {}
        for launch in launches.values():
            launch.close()
        for stop in watches:
            stop()
        self._modules.close()

    def _preload(
        self,
        keys: Iterable[LaunchKey],
        workers: int | None,
        progress: Progress | None,
        log: bool,
    ) -> Summary:
        self._require_open()
        if is_capturing(self._context.driver, self.device.ordinal):
            raise capture_error("a preload", self.device.ordinal)
        summary = preload(keys, self._load_counted, workers=workers, progress=progress)
        if log:
            logger().log(
                logging.WARNING if summary.failed else logging.INFO,
                "%s on %s, store %s",
                summary,
                describe(self.device),
                self._context.layers.digest,
            )
        return summary

    def _load_counted(self, key: LaunchKey) -> Loaded:
        if key in self._launches:
            return Loaded(0, 0)
        _, modules = self._load(key)
        new = [m for m in modules if not m.shared]
        return Loaded(len(new), sum(m.size for m in new))

    def _load(self, key: LaunchKey) -> tuple[Launch, Sequence[Module]]:
        with self._lock:
            self._require_open()
            self._loading += 1
        try:
            # What no store has is told in a capture as anywhere else: it would not be loaded there.
            found = self._find(key)
            if is_capturing(self._context.driver, self.device.ordinal):
                raise self._known_failure(key) or capture_error(str(key), self.device.ordinal)
            launch, modules, residency = self._make(key, found)
            return self._keep(key, launch, residency, found.entry.artefact), modules
        except Exception as error:
            self._note_failure(key, error)
            raise
        finally:
            with self._lock:
                self._loading -= 1
                self._loaded.notify_all()

    def _keep(self, key: LaunchKey, launch: Launch, residency: Residency, artefact: str) -> Launch:
        """``launch``, or the one of another thread, which made it at once from the same modules."""
        with self._lock:
            self._require_open()
            self._failures.pop(key, None)
            kept = self._launches.setdefault(key, launch)
            if kept is launch:
                self._residency[key], self._artefacts[key] = residency, artefact
                counters = self._context.counters
                self._watches.append(counters.watch(key.family, key.launch, lambda: launch.calls))
        return kept

    def _make(self, key: LaunchKey, found: Found) -> tuple[Launch, list[Module], Residency]:
        context = self._context
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
        self._note_disagreements(key, residency)
        launch = Launch(
            key,
            artefact.plan,
            self.device.ordinal,
            context.driver,
            functions,
            always_check=context.always_check,
        )
        return launch, modules, residency

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

    def _require_open(self) -> None:
        if self._closed:
            raise Released("the store has been closed", fix="open it again")

    def _known_failure(self, key: LaunchKey) -> Exception | None:
        """Why ``key`` could not be loaded before; a policy that excused it then does so in a capture too."""
        error = self._failures.get(key)
        return None if error is None else error.with_traceback(None)

    def _note_failure(self, key: LaunchKey, error: Exception) -> None:
        self._context.counters.missed(reason_of(error))
        with self._lock:
            # Neither says anything of the launch; and another thread may have had more luck.
            if not isinstance(error, (CaptureActive, Released)) and key not in self._launches:
                self._failures[key] = error

    def _refuses(self, error: Exception) -> bool:
        """Whether the policy has no way around ``error``; ``jit`` has one if the caller can compile."""
        return (
            not isinstance(error, MonoError)
            or decide(self._context.policy, error, can_compile=True) is Decision.RAISE
        )

    def _note_disagreements(self, key: LaunchKey, residency: Residency) -> None:
        for fit in residency.disagreements:
            self._context.log(
                logger(),
                logging.WARNING,
                (fit.symbol, fit.computed, fit.reported),
                "%s: a compute unit holds %d workgroups by the resource figures and %d by %s;"
                " the smaller number counts",
                key,
                fit.computed,
                fit.reported,
                self._context.driver.name,
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

    def _statement(self) -> Statement:
        from mono_runtime.ranks.agreement import LoadedLaunch, Statement
        from mono_runtime.ranks.outcomes import failure_text

        self._require_open()
        context = self._context
        with self._lock:
            failures = list(self._failures.items())
            artefacts, residency = dict(self._artefacts), dict(self._residency)
        return Statement(
            store=context.layers.digest,
            policy=context.policy.value,
            architecture=str(self.device.architecture),
            compute_units=self.device.compute_units,
            loaded=tuple(
                LoadedLaunch(str(key), digest, _workgroups(residency[key]))
                for key, digest in artefacts.items()
            ),
            failures=tuple(
                f"{key}: {failure_text(error)}" for key, error in failures if self._refuses(error)
            ),
        )


def _workgroups(residency: Residency) -> int | None:
    """Of a compute unit, for the launch's tightest grid; None when it is not persistent."""
    return min((fit.each for fit in residency.fits), default=None)
