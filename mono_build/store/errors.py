"""What can stop a write to a store, and the one place where operating system errors get their meaning."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mono_build.errors import ToolchainError
from mono_runtime.errors import StoreError, StorePermission


class StoreFull(ToolchainError):
    """No room for another file: the disk, a quota or a file size limit. Nothing was published."""


class StoreBusy(StoreError):
    """Another process holds what this one needs alone."""

    exit_code = 4


_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would exceed the size limit (ulimit -f)",
}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def writing(where: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into the error that says what the operator must do."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or where)
        if error.errno in _FULL:
            raise StoreFull(
                f"{_FULL[error.errno]}; what was published before is untouched",
                where=str(where),
                fix="free some space (mono-build gc helps), then run the same command again",
            ) from error
        if error.errno in _REFUSED:
            reason = "read-only file system" if error.errno == errno.EROFS else "permission denied"
            raise StorePermission(
                f"cannot write to the store: {reason}",
                where=place,
                fix="name a directory you may write with --store or MONO_STORE",
            ) from error
        raise StoreError(
            f"cannot write to the store: {error.strerror or error}",
            where=place,
            fix="see whether the path is a directory on a healthy file system",
        ) from error
