"""Reading one file of a store: no links, no devices, no more bytes than it may have."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mono_runtime.errors import (
    MonoError,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StorePermission,
    StoreUnsafe,
)
from mono_runtime.safety import Trust

REBUILD = "rebuild the store with mono-build, or copy it again from where it was built"
# Bytes of a file that are read at most, the same as an import takes. The largest by far is the
# manifest: some ten thousand launches have one of a few megabytes.
LIMIT = 64 << 20


def read_regular(
    path: Path | str,
    *,
    limit: int = LIMIT,
    size: int | None = None,
    trust: Trust | None = None,
) -> bytes:
    """The bytes of a regular file. Links are refused, and each failure has its own error.

    Args:
        limit: bytes; a larger file is not read.
        size: bytes that the file must have, when they are known.
        trust: whose files are believed; None when everybody's are.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise open_error(error, path) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnsafe("not a regular file", where=str(path), fix=REBUILD)
        if trust is not None:
            trust.check(status, str(path))
        _check_size(status.st_size, size, limit, path)
        return _read_all(descriptor, status.st_size)
    except OSError as error:
        raise open_error(error, path) from error
    finally:
        os.close(descriptor)


def _check_size(found: int, expected: int | None, limit: int, path: Path | str) -> None:
    if expected is not None and found != expected:
        raise StoreDamaged(
            f"the file has {found} bytes, not the {expected} that it should have",
            where=str(path),
            fix=REBUILD,
        )
    if found > limit:
        raise StoreDamaged(
            f"the file has {found} bytes; no more than {limit} are read",
            where=str(path),
            fix=REBUILD,
        )


def _read_all(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    # Network file systems may give less at a time; what a file gained meanwhile is not read.
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def open_error(error: OSError, path: Path | str) -> MonoError:
    """What an operating system's refusal to open or read ``path`` means."""
    if error.errno in (errno.EACCES, errno.EPERM):
        fix = "give this user read permission (a store is built with modes 0644 and 0755)"
        return StorePermission(
            "no permission to read a file of the store", where=str(path), fix=fix
        )
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return StoreUnsafe("a link or a socket where a file belongs", where=str(path), fix=REBUILD)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StoreMissing("no such file in the store", where=str(path), fix=REBUILD)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreError(
            f"cannot read: {error.strerror}",
            where=str(path),
            fix="allow this process more open files (ulimit -n)",
        )
    return StoreDamaged(f"cannot read: {error.strerror}", where=str(path), fix=REBUILD)
