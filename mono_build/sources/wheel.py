"""Taking kernel sources out of a wheel: only Python files, only safe names, all or nothing."""

from __future__ import annotations

import email.parser
import hashlib
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mono_build.errors import ToolchainError
from mono_build.sources.cache import (
    fresh_directory,
    locked,
    make_directory,
    read_json,
    write_file,
    write_json,
    writing,
)
from mono_build.toolchain.hashing import hash_files

LISTING = ".mono-build.json"
# vLLM 0.33.0 has 620 model files of 8.6 MB in all; a wheel far beyond that is no kernel source.
_MOST_FILES = 20_000
_MOST_BYTES = 256 << 20
_MOST_FILE_BYTES = 16 << 20
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA\Z")


@dataclass(frozen=True, slots=True)
class WheelTree:
    """Sources taken out of a wheel: an import root, and the wheel's own name and version."""

    root: Path
    package: str
    version: str


def intact_tree(cache: Path, sha256: str) -> WheelTree | None:
    """The sources of the wheel with this digest if the cache has them undamaged, else None."""
    root = cache / "kernels" / sha256
    listing = read_json(root / LISTING)
    if listing is None or not isinstance(listing.get("files"), dict):
        return None
    try:
        present = {p.relative_to(root).as_posix(): p for p in root.rglob("*.py")}
        if set(present) != set(listing["files"]) or hash_files(present) != listing["files"]:
            return None
        return WheelTree(root, str(listing["package"]), str(listing["version"]))
    except (OSError, KeyError):
        return None


def unpacked(wheel: Path, sha256: str, prefix: str, cache: Path) -> WheelTree:
    """The sources below ``prefix`` in ``wheel``, in the cache; taken out again when damaged there.

    Raises `ToolchainError` for a file that is no wheel or holds unsafe names, with nothing kept.
    """
    tree = intact_tree(cache, sha256)
    if tree is not None:
        return tree
    directory = cache / "kernels"
    with locked(directory, sha256):
        tree = intact_tree(cache, sha256)
        if tree is not None:
            return tree
        staging = fresh_directory(directory / f".{sha256}.staging")
        try:
            _extract(wheel, prefix, staging)
            root = directory / sha256
            shutil.rmtree(root, ignore_errors=True)
            staging.rename(root)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    tree = intact_tree(cache, sha256)
    if tree is None:
        raise ToolchainError("sources do not read back as they were written", where=str(root))
    return tree


def _extract(wheel: Path, prefix: str, staging: Path) -> None:
    files: dict[str, str] = {}
    with _opened(wheel) as archive:
        members = archive.infolist()
        _check_names(wheel, members)
        package, version = _identity(wheel, archive, members)
        chosen = [m for m in members if m.filename.startswith(prefix) and _is_source(m)]
        if len(chosen) > _MOST_FILES or sum(m.file_size for m in chosen) > _MOST_BYTES:
            raise ToolchainError(
                "the wheel holds far too much to be kernel sources", where=wheel.name
            )
        for member in chosen:
            data = _content(wheel, archive, member)
            with writing(staging):
                target = staging / member.filename
                make_directory(target.parent)
                write_file(target, data)
            files[member.filename] = hashlib.sha256(data).hexdigest()
    with writing(staging):
        write_json(staging / LISTING, {"files": files, "package": package, "version": version})


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ToolchainError(f"not a readable wheel: {error}", where=str(wheel)) from error
    except OSError as error:
        raise ToolchainError(
            f"the wheel cannot be read: {error.strerror or error}", where=str(wheel)
        ) from error


def _check_names(wheel: Path, members: list[zipfile.ZipInfo]) -> None:
    seen = set()
    for member in members:
        name = member.filename
        parts = PurePosixPath(name).parts
        kind = stat.S_IFMT(member.external_attr >> 16)
        unsafe = (
            name.startswith("/")
            or ".." in parts
            or any(c in name for c in "\\:\0")
            or kind not in (0, stat.S_IFREG, stat.S_IFDIR)
            or name in seen
        )
        if unsafe:
            raise ToolchainError(
                f"the wheel holds an unsafe entry {name!r}",
                where=str(wheel),
                fix="get the wheel from a source that you trust",
            )
        seen.add(name)


def _is_source(member: zipfile.ZipInfo) -> bool:
    return member.filename.endswith(".py") and not member.is_dir()


def _identity(
    wheel: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]
) -> tuple[str, str]:
    for member in members:
        if _METADATA.match(member.filename):
            text = _content(wheel, archive, member).decode("utf-8", "replace")
            headers = email.parser.HeaderParser().parsestr(text)
            if headers["Name"] and headers["Version"]:
                return str(headers["Name"]), str(headers["Version"])
    raise ToolchainError("the file has no wheel metadata", where=str(wheel))


def _content(wheel: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    # The size in the directory of the archive is only a claim.
    with archive.open(member) as stream:
        data = stream.read(_MOST_FILE_BYTES + 1)
    if len(data) > _MOST_FILE_BYTES:
        raise ToolchainError(f"{member.filename} is far too large", where=os.fspath(wheel))
    return data
