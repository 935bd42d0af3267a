"""Who could have altered a store: owners, modes and links, looked at before anything in it is believed.

Bytes are checked against digests, so it is enough to know who could have chosen the first digest. Whoever
pins the index's digest chose it himself, and on a read-only file system nobody here can choose another;
in both cases owners and modes do not matter. Links are refused in every case.

Otherwise the store's directories and files must belong to root or to the user who reads, and must not be
writable for everybody, or for a group that is neither root's nor one of the reader's. So an image's
root-owned files serve any user id, and a volume may be writable for a group that was given to the reader
(as Kubernetes does with ``fsGroup``). Directories above the store are not looked at: whoever could put
another store in the place of this one would own it, and be refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mono_runtime.errors import StoreUnsafe

DIRECTORIES = ("", "blobs", "blobs/sha256")
_ROOT = 0
_OTHERWISE = (
    "mount the store read-only, or pin its index: MONO_STORE_DIGEST with the digest that the build"
    " printed"
)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose files are believed: users who may own them, and groups that may write them."""

    users: frozenset[int]
    groups: frozenset[int]

    @staticmethod
    def of_this_process() -> Trust:
        """Root and the effective user; root's group and the process's own."""
        return Trust(
            frozenset({_ROOT, os.geteuid()}),
            frozenset({_ROOT, os.getegid(), *os.getgroups()}),
        )

    def check(self, status: os.stat_result, path: str) -> None:
        """Raise `StoreUnsafe` when somebody else owns, or may write, what ``status`` describes."""
        mode = status.st_mode
        if status.st_uid not in self.users:
            readers = " or ".join(f"uid {user}" for user in sorted(self.users))
            raise StoreUnsafe(
                f"a part of the store belongs to uid {status.st_uid}, not to {readers}",
                where=path,
                fix=f"chown the store to root or to the user who reads it, or {_OTHERWISE}",
            )
        # The sticky bit keeps others from removing files, not from adding some.
        if mode & stat.S_IWOTH:
            raise StoreUnsafe(
                f"every user may write to a part of the store (mode {stat.S_IMODE(mode):04o})",
                where=path,
                fix=f"chmod -R o-w the store, or {_OTHERWISE}",
            )
        if mode & stat.S_IWGRP and status.st_gid not in self.groups:
            raise StoreUnsafe(
                f"group {status.st_gid}, which is none of this process's, may write to a part of the"
                f" store (mode {stat.S_IMODE(mode):04o})",
                where=path,
                fix=f"chmod -R g-w the store, or {_OTHERWISE}",
            )


def store_directories(store: Path) -> list[tuple[str, os.stat_result]]:
    """The store's own directories that are there, with their status.

    ``store`` itself may be a link; a link or a file in the place of one below it is `StoreUnsafe`.

    Raises:
        OSError: a directory cannot be reached for another reason than that it is not there.
    """
    found = []
    for name in DIRECTORIES:
        path = f"{store}/{name}" if name else str(store)
        try:
            status = os.lstat(path) if name else os.stat(path)  # noqa: PTH116 - no Path is made
        except FileNotFoundError:
            break
        if name and not stat.S_ISDIR(status.st_mode):
            raise StoreUnsafe(
                "a link or a file where the store has a directory",
                where=path,
                fix="use a real directory; the path of the whole store may be a link",
            )
        found.append((path, status))
    return found


def trust_for(directories: Iterable[tuple[str, os.stat_result]]) -> Trust | None:
    """Whom to trust with the files in ``directories``, which are checked; None when nobody could write.

    Raises:
        StoreUnsafe: somebody else could have altered a directory.
    """
    writable = [(path, status) for path, status in directories if not _is_read_only(path)]
    if not writable:
        return None
    trust = Trust.of_this_process()
    for path, status in writable:
        trust.check(status, path)
    return trust


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
