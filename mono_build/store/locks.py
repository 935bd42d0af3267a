"""How builders of one store keep out of each other's way. Readers know nothing of this.

Everything lies in ``<store>/.builder``, which exists only while somebody builds. All locks are the
kernel's (flock), so a holder that dies holds nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from mono_build.store.errors import StoreBusy, writing
from mono_build.store.files import FILE_MODE, own_directory
from mono_runtime.canonical import checked_digest

BUILDER = ".builder"
STAGING = "staging"
JOURNAL = "journal"
BY_KEY = "keys"
LOCKS = "locks"
_ACTIVE = "active"
_PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Waiting:
    """For whom a builder waits.

    Attributes:
        pid: the holder's process id, when it could be read.
        since: when the holder took the lock, in seconds of the epoch.
        waited: seconds that this builder has waited so far.
    """

    pid: int | None
    since: float | None
    waited: float


OnWait = Callable[[Waiting], None]


class _Lock:
    """A file lock that names its holder in a file beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owner = path.with_name(path.name + ".owner")
        # Taken in one thread of a builder and released in another.
        self._lock = FileLock(str(path), mode=FILE_MODE, thread_local=False)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        with writing(self._path):
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                return False
        # The name is for people only; a full disk must not cost the lock.
        with suppress(OSError):
            self._owner.write_text(json.dumps({"pid": os.getpid(), "since": time.time()}))
        return True

    def acquire(self, *, timeout: float, on_wait: OnWait | None = None, every: float = 5.0) -> bool:
        """Take the lock, waiting up to ``timeout`` seconds; False when that was too short.

        ``on_wait`` is called at once when the lock is taken by another, then each ``every`` seconds.
        """
        start = time.monotonic()
        told = -every
        while not self.try_acquire():
            waited = time.monotonic() - start
            if on_wait is not None and waited - told >= every:
                told = waited
                on_wait(self.holder(waited))
            if waited >= timeout:
                return False
            time.sleep(min(0.05, max(timeout - waited, 0.001)))
        return True

    def holder(self, waited: float = 0.0) -> Waiting:
        """Who took the lock last, as far as can be told."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(self._owner.read_text())
            return Waiting(int(value["pid"]), float(value["since"]), waited)
        return Waiting(None, None, waited)

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._owner.unlink()
            self._lock.release()


class KeyLock(_Lock):
    """The right to build one key (or one IR), so that builders at once do the work once.

    To be used while a `BuilderPresence` of the same store is held. A waiter whose `acquire` says
    False goes on without the lock: publication is atomic, so a second result does no harm.
    """

    def __init__(self, store: Path, digest: str) -> None:
        name = checked_digest(digest, "lock").removeprefix("sha256:")
        super().__init__(store / BUILDER / LOCKS / name)


class PublishLock(_Lock):
    """The right to replace the index; held for milliseconds."""

    def __init__(self, store: Path) -> None:
        super().__init__(store / BUILDER / LOCKS / _PUBLISH)

    def __enter__(self) -> PublishLock:
        # Without this lock an update of another builder could be lost, so here waiting has an end.
        if not self.acquire(timeout=60.0):
            pid = self.holder().pid
            raise StoreBusy(
                f"process {pid or 'unknown'} has been publishing for a minute",
                where=str(self._path),
                fix="end that process if it hangs, then run the same command again",
            )
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


class BuilderPresence:
    """Held as long as a builder works in a store: its ``.builder`` directory stays until all left.

    Raises `StorePermission`, `StoreFull`, or `StoreBusy` when a clean-up does not end.
    """

    def __init__(self, store: Path, *, exclusive: bool = False, timeout: float = 60.0) -> None:
        self.directory = store / BUILDER
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        with writing(store):
            self._descriptor: int | None = _lock_active(self.directory, kind, timeout)
            try:
                for name in (STAGING, LOCKS, JOURNAL):
                    own_directory(self.directory / name)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Leave without cleaning up."""
        if self._descriptor is not None:
            # A forked child may share the descriptor; closing ours alone would keep the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def tidy(self) -> bool:
        """Leave; the last builder removes what is not part of the store. True when it was the last.

        A journal with unpublished results stays for the next builder.
        """
        if self._descriptor is None:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sweep()
        except BlockingIOError:
            return False
        finally:
            self.close()
        return True

    def _sweep(self) -> None:
        for name in (STAGING, LOCKS):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        journal = self.directory / JOURNAL
        # Files by IR are only a second way to the same results, and may be left without one.
        with suppress(FileNotFoundError):
            if any((journal / BY_KEY).iterdir()):
                return
        shutil.rmtree(journal, ignore_errors=True)
        with suppress(OSError):
            (self.directory / _ACTIVE).unlink()
            self.directory.rmdir()


def _lock_active(directory: Path, kind: int, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    while True:
        descriptor = _open_active(directory)
        if descriptor is None:
            continue
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            if _still_there(descriptor, directory / _ACTIVE):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            if time.monotonic() >= deadline:
                raise _busy(directory, kind) from None
            time.sleep(0.02)
        else:
            os.close(descriptor)


def _open_active(directory: Path) -> int | None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        own_directory(directory)
        descriptor = os.open(directory / _ACTIVE, flags, FILE_MODE)
    except FileNotFoundError:
        if not directory.parent.is_dir():
            raise
        # The last builder removed the directory between our two steps.
        return None
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def _still_there(descriptor: int, path: Path) -> bool:
    # A lock on a file that was removed meanwhile protects nothing.
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _busy(directory: Path, kind: int) -> StoreBusy:
    if kind == fcntl.LOCK_EX:
        return StoreBusy(
            "a builder is working in this store",
            where=str(directory.parent),
            fix="wait until it is done, then run the same command again",
        )
    return StoreBusy(
        "another process has been cleaning this store for a minute",
        where=str(directory.parent),
        fix="end that process if it hangs, then run the same command again",
    )
