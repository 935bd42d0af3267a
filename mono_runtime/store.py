"""An opened store: what it holds, and a loader for each device that its launches run on."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType

from mono_runtime.context import Context
from mono_runtime.counters import Counters, Snapshot
from mono_runtime.driver import Driver
from mono_runtime.errors import DriverError, InvalidValue, Released
from mono_runtime.launch_key import LaunchKey, Scalar
from mono_runtime.launching.launch import Launch
from mono_runtime.layers import Layers, Paths, open_layers
from mono_runtime.loader import Loader
from mono_runtime.log import Once
from mono_runtime.policy import Policy, policy_from
from mono_runtime.sources import SourceCheck

CHECK_VARIABLE = "MONO_CHECK"


class Store:
    """The launches of one or several stores, opened for reading.

    Use `launch` for the calling thread's device, or `on` to name one. Safe to use from several threads.

    Attributes:
        layers: the opened stores; what they hold, and what is missing of a deployment.
        policy: what a miss leads to.
        counters: what has happened so far.
    """

    def __init__(
        self, layers: Layers, *, driver: Driver | None, policy: Policy, always_check: bool
    ) -> None:
        self.layers = layers
        self.policy = policy
        self.counters = Counters()
        self._driver = driver
        self._always_check = always_check
        self._loaders: dict[int, Loader] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._sources = SourceCheck()
        self._log = Once()

    @property
    def digest(self) -> str:
        """What identifies the content: the index digest, or one over those of all layers."""
        return self.layers.digest

    def keys(self) -> Collection[LaunchKey]:
        """Every launch key that a layer holds."""
        return self.layers.keys()

    def missing(self, keys: Iterable[LaunchKey]) -> tuple[LaunchKey, ...]:
        """Those of ``keys``, a deployment's launches, that no layer holds; needs no device."""
        return self.layers.missing(keys)

    @property
    def driver(self) -> Driver:
        """The driver that was given, or HIP, which is opened when it is first needed."""
        with self._lock:
            if self._driver is None:
                from mono_runtime.hip.driver import open_hip

                self._driver = open_hip()
            return self._driver

    def on(self, device: int | None = None) -> Loader:
        """The loader of device number ``device``, by default the calling thread's current one.

        Raises:
            DriverMissing, DeviceMissing: there is no driver, or no such device.
            Released: the store has been closed.
        """
        self._require_open()
        driver = self.driver
        ordinal = driver.current_device() if device is None else device
        loader = self._loaders.get(ordinal)
        if loader is not None:
            return loader
        described = driver.device(ordinal)
        with self._lock:
            self._require_open()
            if ordinal not in self._loaders:
                self._loaders[ordinal] = Loader(self._context(driver), described)
            return self._loaders[ordinal]

    def launch(self, family: str, launch: str, /, **build: Scalar) -> Launch:
        """`Loader.launch` on the calling thread's current device."""
        return self.on().launch(family, launch, **build)

    def snapshot(self) -> Snapshot:
        """The counters as plain data."""
        return self.counters.snapshot()

    def close(self) -> None:
        """Release every module on every device; launches cannot be used afterwards. Twice does no harm.

        What fails on one device does not keep the others.

        Raises:
            DriverError: modules that could not be unloaded.
        """
        with self._lock:
            self._closed = True
            loaders, self._loaders = list(self._loaders.values()), {}
        errors = []
        for loader in loaders:
            try:
                loader.close()
            except DriverError as error:
                errors.append(error)
        if errors:
            raise _together(errors)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Released("the store has been closed", fix="open it again")

    def _context(self, driver: Driver) -> Context:
        return Context(
            self.layers,
            driver,
            self.policy,
            self.counters,
            self._sources,
            self._log,
            self._always_check,
        )


def open_store(
    paths: Paths | None = None,
    *,
    digest: str | None = None,
    policy: Policy | str | None = None,
    driver: Driver | None = None,
    check: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Store:
    """Open stores for reading. Nothing is written, locked or loaded, and no device is touched.

    Args:
        paths: the stores, first hit first; by default those of ``MONO_STORE``.
        digest: the index digest that must be found (several, separated by commas, for several
            stores); by default ``MONO_STORE_DIGEST``.
        policy: ``strict``, ``stock`` or ``jit``; by default ``MONO_POLICY``, else ``strict``.
        driver: what drives the devices; by default HIP, opened when a launch is first loaded.
        check: check every call in full; by default whether ``MONO_CHECK`` is 1.
        environ: where ``MONO_STORE`` and the other variables named here are; by default the
            process's environment, which HIP and its driver read in any case.

    Raises:
        StoreMissing, StorePermission, StoreDamaged, StoreFormat, StoreUnsafe: a store is unusable.
        InvalidValue: the digest, the policy or ``MONO_CHECK`` is not a legal value.
    """
    environ = os.environ if environ is None else environ
    return Store(
        open_layers(paths, digest=digest, environ=environ),
        driver=driver,
        policy=policy_from(environ) if policy is None else Policy.of(policy),
        always_check=_check_wanted(environ) if check is None else check,
    )


def _check_wanted(environ: Mapping[str, str]) -> bool:
    text = environ.get(CHECK_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise InvalidValue(f"{CHECK_VARIABLE} is {text!r}", fix="set it to 1 or 0")
    return text == "1"


def _together(errors: Sequence[DriverError]) -> DriverError:
    """The error of one device, or one for those of several."""
    if len(errors) == 1:
        return errors[0]
    together = DriverError("; ".join(e.what for e in errors))
    together.status, together.symbol = errors[0].status, errors[0].symbol
    return together
