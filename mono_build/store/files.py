"""Files and directories that appear complete or not at all, with modes that no umask changes."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mono_runtime.errors import StoreUnsafe

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


def make_directories(path: Path) -> None:
    """Create ``path`` and the parents it lacks, each open to readers. Existing ones keep their mode."""
    if path.is_dir():
        return
    make_directories(path.parent)
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        # Another builder was faster, or a file is in the way, which the next step reports.
        return
    path.chmod(DIRECTORY_MODE)


def own_directory(path: Path) -> None:
    """Create the store's own directory ``path``, or mend the mode a killed builder left; links are refused."""
    with suppress(FileExistsError):
        path.mkdir(DIRECTORY_MODE)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StoreUnsafe(
            "not a directory, where a store has one", where=str(path), fix="remove it by hand"
        )
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o777 != DIRECTORY_MODE:
        path.chmod(DIRECTORY_MODE)


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(staging: Path, target: Path, data: bytes) -> None:
    """Write ``data`` under a name of its own in ``staging``, then let it become ``target`` at once."""
    descriptor, name = tempfile.mkstemp(dir=staging)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, FILE_MODE)
            os.fsync(descriptor)
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    sync_directory(target.parent)
