"""Device memory that every rank can address: one buffer a rank, made and released by all together."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from mono_runtime.canonical import Json
from mono_runtime.driver import Driver
from mono_runtime.errors import DriverError, InvalidValue, RankLost, RanksDisagree, Released
from mono_runtime.group import Group
from mono_runtime.ranks.conversion import as_group
from mono_runtime.ranks.outcomes import (
    Outcome,
    differing,
    disagreement,
    exchange_outcomes,
    failure_text,
    failures_by_rank,
)
from mono_runtime.ranks.process_identity import ProcessIdentity, this_process

# Small allocations share a larger block, and an exported handle tells the place in it in pages of this
# many bytes (ROCr, Runtime::IPCCreate), so a buffer has to be made of whole ones.
PAGE = 4096
# What a rank leaves at the start of its buffer for the others to find: its number and the address.
_MARK = struct.Struct("<QQ")
_FIX = "mend what is named for each rank; nothing is left allocated"


@dataclass(frozen=True, slots=True)
class _Offer:
    """A rank's buffer, as the others need to know it."""

    process: ProcessIdentity
    device: int
    bus_id: str
    address: int
    size: int

    def __str__(self) -> str:
        return f"device {self.device} ({self.bus_id or 'no bus id'}) of {self.process}"

    def mark(self, rank: int) -> bytes:
        return _MARK.pack(rank, self.address)

    def to_json(self) -> Json:
        return [self.process.to_json(), self.device, self.bus_id, self.address, self.size]

    @staticmethod
    def from_json(value: Json) -> _Offer:
        match value:
            case [process, int(device), str(bus_id), int(address), int(size)]:
                return _Offer(ProcessIdentity.from_json(process), device, bus_id, address, size)
        raise InvalidValue("not an offer of peer memory")


class _Holding:
    """What this rank has to give back: its mappings of other ranks' buffers, and its own buffer."""

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver = driver
        self.device = device
        self.local: int | None = None
        self.imports: list[int] = []

    def release_imports(self) -> list[Exception]:
        """Undo the mappings, also when one fails; the errors."""
        imports, self.imports = self.imports, []
        return [e for a in imports if (e := _error(self.driver.release_memory, self.device, a))]

    def free(self) -> list[Exception]:
        """Free the buffer; the error, if any."""
        local, self.local = self.local, None
        if local is None:
            return []
        error = _error(self.driver.free, self.device, local)
        return [error] if error else []


class PeerMemory:
    """One buffer on each rank's device, each of them addressable by every rank.

    Made by `allocate`, released by `close` or as a context manager; both are collective. Not released
    when it is garbage collected, since that happens on no two ranks at the same time.

    Attributes:
        size: bytes of each buffer: what was asked for, in whole pages of 4 KiB.
    """

    def __init__(
        self, holding: _Holding, group: Group, size: int, local: int, addresses: tuple[int, ...]
    ) -> None:
        self.size = size
        self._holding = holding
        self._group = group
        self._local = local
        self._addresses = addresses
        self._closed = False

    @classmethod
    def allocate(
        cls, driver: Driver, device: int, size: int, group: object, *, timeout: float = 60.0
    ) -> PeerMemory:
        """A buffer of ``size`` bytes on every rank, in uncached memory and filled with zeroes. Collective.

        Ranks tell each other after each step (allocate, export, import, confirm, clear) how it went.
        In ``confirm`` every rank reads through its mappings what the others wrote, so a mapping that
        leads elsewhere is found here. When this returns, every buffer holds zeroes.

        Args:
            device: ordinal of this rank's device.
            size: bytes, equal on all ranks.
            group: what `as_group` takes.
            timeout: seconds to wait for the other ranks, for each step.

        Raises:
            RanksDisagree: a step failed on a rank, or sizes differ; on every rank, with all reasons.
                Nothing is left allocated or mapped.
            RankLost: a rank did not answer in time, or its process is gone. What this rank made is
                released.
        """
        ranks = as_group(group)
        holding = _Holding(driver, device)
        try:
            return _assemble(holding, ranks, size, timeout)
        except RanksDisagree:
            _dissolve(holding, ranks, timeout)
            raise
        except BaseException:
            _warn([*holding.release_imports(), *holding.free()])
            raise

    @property
    def addresses(self) -> tuple[int, ...]:
        """By rank, where its buffer is for this rank's device; `Released` after `close`."""
        self._require_open()
        return self._addresses

    @property
    def local(self) -> int:
        """The address of this rank's own buffer; `Released` after `close`."""
        self._require_open()
        return self._local

    def close(self, timeout: float = 60.0) -> None:
        """Release everything: mappings on all ranks first, then each rank's own buffer. Collective.

        Call it when no rank is going to launch anything that uses the memory. It waits for this rank's
        device. Calling it again does nothing.

        Args:
            timeout: seconds to wait for the other ranks, each of the two times.

        Raises:
            RankLost: a rank did not answer in time, or its process is gone. What is this rank's has
                been released, mappings first.
            RanksDisagree: a rank could not release its mappings; on every rank.
            DriverError: this rank's buffer could not be freed.
        """
        if self._closed:
            return
        self._closed = True
        holding = self._holding
        refusal = _told(self._group, "stop", [], timeout)
        # Kernels of this rank may still write to the others, who free nothing before the next exchange.
        waited = _error(holding.driver.synchronize, holding.device)
        failures = [*([waited] if waited else []), *holding.release_imports()]
        if isinstance(refusal, RankLost):
            _warn(failures)
        else:
            refusal = _told(self._group, "release", failures, timeout) or refusal
        freed = holding.free()
        if refusal is not None:
            _warn(freed)
            raise refusal
        for error in freed:
            raise error

    def __enter__(self) -> PeerMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(
                f"peer memory of {self.size} bytes was not closed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _require_open(self) -> None:
        if self._closed:
            raise Released("peer memory was used after it had been closed")


def _assemble(holding: _Holding, group: Group, size: int, timeout: float) -> PeerMemory:
    """All steps of `PeerMemory.allocate`; what this rank made so far is in ``holding``."""
    driver, device = holding.driver, holding.device
    offers = tuple(
        _Offer.from_json(body)
        for body in _collect(group, "allocate", lambda: _allocate(holding, size), timeout)
    )
    sizes = differing("the sizes differ, in bytes", {r: str(o.size) for r, o in enumerate(offers)})
    if sizes:
        raise disagreement("peer memory cannot be made:", [sizes], fix=_FIX)
    own = offers[group.rank]
    shared = any(not own.process.is_process(o.process) for o in offers)
    handles = _collect(
        group,
        "export",
        lambda: driver.export_memory(device, own.address).hex() if shared else None,
        timeout,
    )
    addresses: list[int] = []

    def import_all() -> None:
        addresses.extend(
            _reach(holding, own, rank, offer, handles[rank]) for rank, offer in enumerate(offers)
        )
        driver.write(device, own.address, own.mark(group.rank))

    _collect(group, "import", import_all, timeout)
    _collect(group, "confirm", lambda: _confirm(driver, device, offers, addresses), timeout)

    def clear() -> None:
        driver.fill(device, own.address, 0, _MARK.size)
        driver.synchronize(device)

    _collect(group, "clear", clear, timeout)
    return PeerMemory(holding, group, _whole_pages(size), own.address, tuple(addresses))


def _allocate(holding: _Holding, size: int) -> Json:
    """This rank's buffer, zeroed before anybody else can learn its address."""
    if type(size) is not int or size <= 0:
        raise InvalidValue(f"peer memory of {size!r} bytes", fix="give a positive number")
    driver, device = holding.driver, holding.device
    process = this_process()
    bus_id = driver.device(device).bus_id
    holding.local = driver.allocate(device, _whole_pages(size), uncached=True)
    driver.fill(device, holding.local, 0, _whole_pages(size))
    # A fill runs on the device. Zeroes that come after a peer's first flag would erase it.
    driver.synchronize(device)
    return _Offer(process, device, bus_id, holding.local, size).to_json()


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _reach(holding: _Holding, own: _Offer, rank: int, offer: _Offer, handle: Json) -> int:
    """The address of ``rank``'s buffer for this rank's device."""
    driver, device = holding.driver, holding.device
    if own.process.is_process(offer.process):
        # A driver refuses handles of its own process, and does not need them.
        if offer.device != device:
            driver.enable_peer_access(device, offer.device)
        return offer.address
    if own.process.boot != offer.process.boot:
        raise InvalidValue(
            f"the buffer of rank {rank} is on another host: {offer}, this rank is {own}",
            fix="peer memory reaches the GPUs of one host; put all ranks of the group on it",
        )
    apart = own.process.pid_namespace != offer.process.pid_namespace
    if apart and own.process.pid == offer.process.pid:
        raise InvalidValue(
            f"rank {rank} has the same process id {offer.process.pid} in another PID namespace, and HIP "
            f"takes its handle for one of this process: {offer}, this rank is {own}",
            fix="let the containers share a PID namespace (--pid=host), or run all ranks in one",
        )
    try:
        address = driver.import_memory(device, bytes.fromhex(handle))
    except (DriverError, TypeError, ValueError) as error:
        hint = (
            "the ranks are in different containers: let these share PID and IPC namespaces (--pid=host, "
            "--ipc=host), or run all ranks in one"
            if apart
            else "check that both processes run as one user, with the same ROCm release, and that "
            "their GPUs can reach each other"
        )
        raise DriverError(
            f"the buffer of rank {rank} cannot be mapped: {error}", where=str(offer), fix=hint
        ) from error
    holding.imports.append(address)
    return address


def _confirm(
    driver: Driver, device: int, offers: Sequence[_Offer], addresses: Sequence[int]
) -> None:
    """Read through each mapping what its rank wrote."""
    for rank, (offer, address) in enumerate(zip(offers, addresses, strict=True)):
        found = driver.read(device, address, _MARK.size)
        if found != offer.mark(rank):
            raise DriverError(
                f"the mapping of rank {rank}'s buffer does not lead there: it reads {found.hex()} "
                f"where that rank wrote {offer.mark(rank).hex()}",
                where=str(offer),
                fix="update ROCm; peer memory cannot be used with this driver",
            )


def _collect(group: Group, step: str, work: Callable[[], Json], timeout: float) -> tuple[Json, ...]:
    """Do ``work`` and exchange its outcome: every rank's result, or `RanksDisagree` on every rank."""
    try:
        outcome = Outcome(work())
    except Exception as error:
        _exchange(group, step, Outcome(failures=(failure_text(error),)), timeout, error)
        raise
    return _exchange(group, step, outcome, timeout, None)


def _exchange(
    group: Group, step: str, outcome: Outcome, timeout: float, cause: Exception | None
) -> tuple[Json, ...]:
    outcomes = exchange_outcomes(group, f"peer memory: {step}", outcome, timeout=timeout)
    reasons = failures_by_rank(o.failures for o in outcomes)
    if reasons:
        raise disagreement(f"peer memory failed at {step}:", reasons, fix=_FIX) from cause
    return tuple(o.body for o in outcomes)


def _told(
    group: Group, step: str, errors: Sequence[Exception], timeout: float
) -> RankLost | RanksDisagree | None:
    """Tell the others how ``step`` went here; what is wrong with it on any rank."""
    failures = tuple(failure_text(e) for e in errors)
    try:
        _exchange(group, step, Outcome(failures=failures), timeout, next(iter(errors), None))
    except (RankLost, RanksDisagree) as error:
        return error
    return None


def _dissolve(holding: _Holding, group: Group, timeout: float) -> None:
    """Give back what a failed step has left, in the order of `PeerMemory.close`."""
    failures = holding.release_imports()
    refusal = _told(group, "undo", failures, timeout)
    _warn([*([refusal] if refusal else []), *holding.free()])


def _error(call: Callable[..., object], *arguments: object) -> Exception | None:
    try:
        call(*arguments)
    except Exception as error:
        return error
    return None


def _warn(errors: Sequence[Exception]) -> None:
    """Log what went wrong beside the error that is raised."""
    import logging

    for error in errors:
        logging.getLogger(__name__).warning(
            "while peer memory was released: %s", failure_text(error)
        )
