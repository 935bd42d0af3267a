"""The modules of one device: each code object loaded once, however many launches and threads ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mono_runtime.counters import Counters
from mono_runtime.driver import Driver
from mono_runtime.elf import require_architecture
from mono_runtime.errors import DriverError, Released

Read = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Module:
    """A loaded code object.

    Attributes:
        handle: the driver's number for it.
        size: bytes of the code object.
        shared: whether it was loaded already when it was asked for.
    """

    handle: int
    size: int
    shared: bool


@dataclass(slots=True)
class _Entry:
    """One digest: being loaded until ``done``, then loaded, or failed when ``handle`` is None."""

    done: threading.Event = field(default_factory=threading.Event)
    handle: int | None = None
    error: Exception | None = None
    # HIP keeps the address of the image and copies nothing (ROCm clr, FatBinaryInfo::AddDevProgram),
    # and later lookups may read it: the bytes live as long as the module.
    code: bytes = b""
    functions: dict[str, int] = field(default_factory=dict)


class ModuleCache:
    """Modules by code object digest, on one device. Safe to use from several threads.

    Args:
        driver: what loads them.
        device: the device's number; `DeviceMissing` when there is none of it.
        counters: gets each load and each share, if given.
    """

    def __init__(self, driver: Driver, device: int, *, counters: Counters | None = None) -> None:
        self._driver = driver
        self._device = driver.device(device)
        self._counters = counters
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        # In the order of loading, which is not that of asking.
        self._loaded: dict[str, _Entry] = {}
        self._shares = 0
        self._closed = False

    @property
    def loads(self) -> int:
        """Modules that are loaded."""
        return len(self._loaded)

    @property
    def shares(self) -> int:
        """How often a module was asked for that had been loaded, or was being loaded, already."""
        return self._shares

    @property
    def size(self) -> int:
        """Bytes of the code objects that are loaded."""
        with self._lock:
            return sum(len(e.code) for e in self._loaded.values())

    def get(self, digest: str, read: Read) -> int:
        """The module of the code object ``digest``; arguments and errors as for `acquire`."""
        return self.acquire(digest, read).handle

    def acquire(self, digest: str, read: Read) -> Module:
        """The module of the code object ``digest``, loaded by the first who asks.

        Others who ask meanwhile wait. A load that fails raises for all of them and is forgotten, so
        that it can be tried again.

        Args:
            read: gives the verified bytes; called by the one who loads, with no lock held.

        Raises:
            Released: the cache has been closed.
            StoreDamaged, WrongDevice: these bytes are no code object, or not one for this device; the
                driver has not seen them.
            DriverError: the driver could not load them.
            Exception: whatever ``read`` raises.
        """
        while True:
            with self._lock:
                self._refuse_closed(digest)
                entry = self._entries.get(digest)
                if entry is None:
                    mine = self._entries[digest] = _Entry()
            if entry is None:
                return self._load(digest, mine, read)
            entry.done.wait()
            if entry.error is not None:
                raise entry.error
            if entry.handle is not None:
                return self._share(digest, entry, entry.handle)
            # Who was loading it was interrupted: that is no failure of the load.

    def function(self, digest: str, symbol: str, read: Read | None = None) -> int:
        """The kernel ``symbol`` of the code object ``digest``, looked up once.

        Args:
            read: acquires the code object first, as `acquire` does.

        Raises:
            Released: the cache has been closed, or there is no ``read`` and no such module.
            DriverError: the module has no such kernel; and what `acquire` raises.
        """
        if read is not None:
            self.acquire(digest, read)
        # Under the lock, so that the module is not unloaded meanwhile.
        with self._lock:
            self._refuse_closed(digest)
            entry = self._loaded.get(digest)
            if entry is None or entry.handle is None:
                raise Released("a code object that is not loaded was asked for", where=digest)
            function = entry.functions.get(symbol)
            if function is None:
                function = self._driver.function(entry.handle, symbol)
                entry.functions[symbol] = function
            return function

    def close(self) -> None:
        """Unload every module, the last loaded first. The device must be done with them.

        A module that fails to unload does not keep the others. Twice does no harm.

        Raises:
            DriverError: modules that failed to unload, with all reasons.
        """
        with self._lock:
            self._closed = True
            loaded, self._loaded = list(self._loaded.items()), {}
            self._entries = {}
        errors = [self._unload(digest, entry) for digest, entry in reversed(loaded)]
        failed = [e for e in errors if e is not None]
        if failed:
            raise _gathered(failed) from failed[0]

    def _load(self, digest: str, entry: _Entry, read: Read) -> Module:
        start = time.perf_counter()
        try:
            code = read()
            where = f"code object {digest}"
            require_architecture(code, self._device, where=where)
            handle = self._driver.load_module(self._device.ordinal, code)
            self._keep(digest, entry, handle, code)
        except BaseException as error:
            with self._lock:
                # An interrupt can come after the load has succeeded; then it stays.
                if entry.handle is None and self._entries.get(digest) is entry:
                    del self._entries[digest]
            entry.error = error if isinstance(error, Exception) else None
            raise
        finally:
            entry.done.set()
        if self._counters is not None:
            self._counters.loaded(len(code), time.perf_counter() - start)
        return Module(handle, len(code), shared=False)

    def _keep(self, digest: str, entry: _Entry, handle: int, code: bytes) -> None:
        with self._lock:
            if not self._closed:
                entry.handle, entry.code = handle, code
                self._loaded[digest] = entry
                return
        # Closed while the driver was loading: nobody else knows of this module.
        self._driver.unload_module(self._device.ordinal, handle)
        raise Released("the modules were closed while one was being loaded", where=digest)

    def _share(self, digest: str, entry: _Entry, handle: int) -> Module:
        with self._lock:
            self._refuse_closed(digest)
            self._shares += 1
        if self._counters is not None:
            self._counters.shared()
        return Module(handle, len(entry.code), shared=True)

    def _unload(self, digest: str, entry: _Entry) -> DriverError | None:
        try:
            if entry.handle is not None:
                self._driver.unload_module(self._device.ordinal, entry.handle)
        except DriverError as error:
            error.where = error.where or f"code object {digest}"
            return error
        finally:
            entry.code = b""
        return None

    def _refuse_closed(self, digest: str) -> None:
        if self._closed:
            raise Released(
                "the modules of this device have been released",
                where=digest,
                fix="open the store again",
            )


def _gathered(errors: list[DriverError]) -> DriverError:
    reasons = "; ".join(f"{e.what} ({e.where})" for e in errors)
    gathered = DriverError(f"{len(errors)} modules could not be unloaded: {reasons}")
    gathered.status, gathered.symbol = errors[0].status, errors[0].symbol
    return gathered
