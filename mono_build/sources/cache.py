"""The user's cache of fetched wheels and of the sources taken from them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from mono_build.errors import ToolchainError
from mono_runtime.canonical import Json

Report = Callable[[str], None]
# A cache may be shared; it holds nothing but what a package index gives to everybody.
_DIRECTORY, _FILE = 0o755, 0o644


def silent(_message: str) -> None:
    """A report that nobody reads."""


def cache_directory(environ: Mapping[str, str], warn: Report = silent) -> Path:
    """``MONO_CACHE``, else ``mono-build`` in ``XDG_CACHE_HOME`` or ``~/.cache``, else a temporary one.

    ``warn`` gets a line when only the temporary one can be used. A ``MONO_CACHE`` that cannot be
    used raises `ToolchainError`, because somebody chose it.
    """
    chosen = environ.get("MONO_CACHE")
    if chosen:
        directory = Path(chosen).absolute()
        if not _usable(directory):
            raise ToolchainError(
                "MONO_CACHE names a directory that cannot be made or written",
                where=str(directory),
                fix="make it writable, or unset MONO_CACHE",
            )
        return directory
    tried = []
    # A relative XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification 0.8).
    for variable, below in (("XDG_CACHE_HOME", "mono-build"), ("HOME", ".cache/mono-build")):
        base = environ.get(variable)
        if base and Path(base).is_absolute():
            if _usable(Path(base, below), below=Path(base, below).parent):
                return Path(base, below)
            tried.append(f"{base}/{below}")
    directory = _temporary(environ)
    reason = f"{' and '.join(tried)} cannot be written" if tried else "HOME is not set"
    warn(f"{reason}: fetched kernel sources are kept in {directory}; set MONO_CACHE to choose")
    return directory


@contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """Exclude other builders of entry ``name`` in ``directory``; one that died holds nothing."""
    with writing(directory):
        make_directory(directory)
        with FileLock(str(directory / f".{name}.lock"), mode=_FILE):
            yield


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Turn failures of the file system into a `ToolchainError` that names the cache."""
    try:
        yield
    except OSError as error:
        raise ToolchainError(
            f"the cache cannot be written: {error.strerror or error}",
            where=str(error.filename or directory),
            fix="free some space or mend the permissions there, or set MONO_CACHE to another directory",
        ) from error


def fresh_directory(path: Path) -> Path:
    """``path`` as an empty directory; what a killed builder left there is removed."""
    shutil.rmtree(path, ignore_errors=True)
    make_directory(path)
    return path


def make_directory(path: Path) -> None:
    """Make ``path`` and its parents readable for everybody whatever the umask; what exists stays."""
    missing = [p for p in (path, *path.parents) if not p.is_dir()]
    for directory in reversed(missing):
        try:
            directory.mkdir()
        except FileExistsError:
            # Another builder was faster, or it is a file.
            if not directory.is_dir():
                raise
        else:
            directory.chmod(_DIRECTORY)


def write_file(path: Path, data: bytes) -> None:
    """Write a file that everybody can read whatever the umask."""
    path.write_bytes(data)
    path.chmod(_FILE)


def write_json(path: Path, value: Json) -> None:
    """Replace ``path`` by ``value`` so that readers see the old or the new content."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    write_file(staging, (json.dumps(value, sort_keys=True, indent=1) + "\n").encode())
    staging.replace(path)


def read_json(path: Path) -> Json:
    """The object in ``path``, or None when there is none that can be read."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _usable(directory: Path, below: Path | None = None) -> bool:
    """Whether a cache at ``directory`` can be used; ``below`` is made as the umask has it."""
    try:
        if below is not None:
            below.mkdir(parents=True, exist_ok=True)
        make_directory(directory)
    except OSError:
        return False
    # A read-only cache that was filled elsewhere serves as well, if it is not somebody's own.
    return os.access(directory, os.W_OK | os.X_OK) or os.access(
        directory / "kernels", os.R_OK | os.X_OK
    )


def _temporary(environ: Mapping[str, str]) -> Path:
    base = Path(environ.get("TMPDIR") or tempfile.gettempdir())
    directory = base / f"mono-build-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        # Anybody can make a directory of this name in /tmp, or a link.
        if status.st_uid == os.getuid() and not directory.is_symlink():
            directory.chmod(0o700)
            return directory
        return Path(tempfile.mkdtemp(prefix="mono-build-", dir=base))
    except OSError as error:
        raise ToolchainError(
            f"there is no writable place for a cache: {error.strerror or error}",
            where=str(base),
            fix="set MONO_CACHE or TMPDIR to a writable directory",
        ) from error
