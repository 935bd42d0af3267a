"""Errors named for what the reader has to do next, each saying what, where and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mono_runtime.nearest import Miss, Nearest


class MonoError(Exception):
    """Base of every error this project raises on purpose.

    Args:
        what: one sentence that says what is wrong.
        where: the file, launch or setting it was found in.
        fix: what to do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  do:    {self.fix}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries; keyword-only arguments need this.
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(cls: type[MonoError], what: str, where: str | None, fix: str | None) -> MonoError:
    return cls(what, where=where, fix=fix)


class InvalidValue(MonoError):
    """A name, digest, architecture or number outside what the formats allow."""

    exit_code = 2


class StoreError(MonoError):
    """Something about a store; its subclasses say what to do."""

    exit_code = 3


class StoreMissing(StoreError):
    """There is no store, or no such entry in it."""


class StorePermission(StoreError):
    """The store is there and this user may not read or write it."""

    exit_code = 4


class StoreDamaged(StoreError):
    """Bytes of the store do not match their digest, or are gone."""

    exit_code = 1


class StoreFormat(StoreError):
    """The store was written in a format that this version does not read."""

    exit_code = 4


class StoreUnsafe(StoreError):
    """Another user could have altered the store, or a name or file in it could lead outside of it."""

    exit_code = 1


class StoreDiffers(StoreError):
    """The store is not the one whose index digest was pinned."""

    exit_code = 1


class LaunchMissing(StoreMissing):
    """The store is sound and does not hold the launch that was asked for.

    Attributes:
        miss: why, as data, or None when nobody looked.
    """

    miss: Miss | None = None

    @property
    def reason(self) -> str:
        """One word for counters: ``empty``, ``family``, ``launch``, ``arch``, ``build``, ``fields``, ``unknown``."""
        return self.miss.reason if self.miss else "unknown"

    @property
    def nearest(self) -> tuple[Nearest, ...]:
        """The nearest entries, and the fields in which they differ."""
        return self.miss.nearest if self.miss else ()

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"miss": self.miss})


class KernelSourcesDiffer(StoreError):
    """The installed kernels are not the ones that the store was built from."""


class ArgumentMismatch(InvalidValue):
    """A call, or a caller's argument list, does not fit the launch; nothing reached the device."""


class DriverError(MonoError):
    """The device's driver reported a failure.

    Attributes:
        status: the driver's number for it, or None.
        symbol: the driver's name for it, such as ``hipErrorInvalidValue``, or None.
    """

    status: int | None = None
    symbol: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"status": self.status, "symbol": self.symbol})


class DriverMissing(DriverError):
    """The driver's library is not here, or it is one that cannot be used."""

    exit_code = 4


class DeviceMissing(DriverError):
    """There is no device, or none of this number."""

    exit_code = 4


class WrongDevice(MonoError):
    """The device cannot run what the store has for it."""

    exit_code = 4


class NotResident(WrongDevice):
    """A persistent launch's workgroups do not fit on the device all at once: it would never end."""


class CaptureActive(MonoError):
    """Something that must happen before a graph capture was asked for inside one."""


class Released(MonoError):
    """A launch, a store or a buffer was used after it had been closed."""


class RankLost(MonoError):
    """A rank did not answer in time, or its process is gone."""


class RanksDisagree(MonoError):
    """The ranks cannot all take the same decision; every rank raises this with all reasons."""


class PackageMissing(MonoError):
    """An optional Python package that was asked for is not installed."""

    exit_code = 4
