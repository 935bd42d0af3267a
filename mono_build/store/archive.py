"""The exported form of a store: one zstandard frame around a ustar archive of plain files.

The reader is our own, for `tarfile` follows extension headers of any size and would need a list of
everything to be forbidden. This one knows the two kinds of members that a store has.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from mono_build.store.files import FILE_MODE
from mono_runtime.errors import StoreDamaged, StoreUnsafe
from mono_runtime.oci import BLOBS, INDEX_FILE, LAYOUT_FILE

_BLOCK = 512
_RECORD = 20 * _BLOCK
_LEVEL = 19
# A decoder without --long takes windows up to this (zstd's manual, "--long").
_WINDOW_LOG = 27
_MEMBER = re.compile(
    rf"(?:{re.escape(LAYOUT_FILE)}|{re.escape(INDEX_FILE)}|{BLOBS}/[0-9a-f]{{64}})\Z"
)
_DIRECTORIES = ("blobs/", f"{BLOBS}/")
_FIX = "export the store again with mono-build, and do not use this file"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may unpack to: bytes of one file, of all, of all JSON, and files."""

    member: int = 64 << 20
    total: int = 4 << 30
    json: int = 256 << 20
    members: int = 100_000


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive; ``data`` is its content."""

    name: str
    data: bytes


def write_archive(out: IO[bytes], sizes: Iterable[tuple[str, int]], read: Iterable[bytes]) -> int:
    """Write files, given as sorted (name, bytes) and their contents in that order; return raw bytes.

    Equal content gives equal bytes with one release of zstandard: fixed modes, owners, times,
    level, one thread.
    """
    listed = list(sizes)
    raw = sum(_BLOCK + _padded(size, _BLOCK) for _, size in listed) + 2 * _BLOCK
    raw = _padded(raw, _RECORD)
    window = max(10, min(_WINDOW_LOG, raw.bit_length()))
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=window, write_checksum=1, write_content_size=1, threads=0
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.stream_writer(out, size=raw, closefd=False)
    written = 0
    for (name, size), data in zip(listed, read, strict=True):
        block = _header(name, size) + data.ljust(_padded(size, _BLOCK), b"\0")
        written += stream.write(block)
    stream.write(bytes(raw - written))
    # Not in a `finally`: an archive that is not complete must not look as if it were.
    stream.flush(zstandard.FLUSH_FRAME)
    return raw


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, FILE_MODE
    return info.tobuf(tarfile.USTAR_FORMAT)


def _padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def read_archive(file: IO[bytes], where: Path, limits: Limits) -> Iterator[Member]:
    """The files of an archive in their order.

    Raises:
        StoreUnsafe: a link, a device, a name that a store does not have, a repetition, or more
            bytes than ``limits`` allows.
        StoreDamaged: not such an archive, or cut off.
    """
    tar = _Tar(_Frame(file, str(where)), str(where), limits)
    yield from tar.members()
    tar.end()


class _Frame:
    """The content of a file that is one zstandard frame and nothing else."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        self._decoder = decompressor.decompressobj()
        self._file = file
        self._where = where
        self._held = bytearray()

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, or fewer at the end."""
        while len(self._held) < size and self._more():
            pass
        part = bytes(self._held[:size])
        del self._held[:size]
        return part

    def _more(self) -> bool:
        # Four bytes can stand for a block of 128 KiB, so small steps keep a bomb small.
        chunk = self._file.read(1024)
        if self._decoder.eof:
            if chunk or self._decoder.unused_data:
                raise _damaged("something follows the end of the archive", self._where)
            return False
        if not chunk:
            raise _damaged("the file ends in the middle", self._where)
        try:
            self._held += self._decoder.decompress(chunk)
        except zstandard.ZstdError as error:
            raise _damaged(f"not an intact zstandard file: {error}", self._where) from error
        return True


def _damaged(what: str, where: str) -> StoreDamaged:
    return StoreDamaged(what, where=where, fix=_FIX)


class _Tar:
    def __init__(self, stream: _Frame, where: str, limits: Limits) -> None:
        self._stream = stream
        self._where = where
        self._limits = limits
        self._total = 0
        self._seen: set[str] = set()

    def members(self) -> Iterator[Member]:
        while True:
            header = self._read(_BLOCK)
            if not any(header):
                return
            name, kind, size = self._parse(header)
            if name in self._seen:
                raise self._unsafe(f"holds {name!r} twice")
            self._seen.add(name)
            if len(self._seen) > self._limits.members:
                raise self._unsafe(f"holds more than {self._limits.members} files")
            if kind == b"5" and name in _DIRECTORIES and size == 0:
                continue
            if kind not in (b"0", b"\0"):
                raise self._unsafe(f"member {name!r} is of type {kind!r}, not a regular file")
            if not _MEMBER.match(name):
                raise self._unsafe(f"member {name!r} has a name that no file of a store has")
            yield Member(name, self._content(name, size))

    def end(self) -> None:
        """What follows the last member may only be the padding of a tar record."""
        rest = self._stream.read(_RECORD + 1)
        if len(rest) > _RECORD or any(rest):
            raise self._unsafe("something follows the end of the archive")

    def _content(self, name: str, size: int) -> bytes:
        self._total += size
        if size > self._limits.member:
            raise self._unsafe(f"member {name!r} unpacks to {size} bytes")
        if self._total > self._limits.total:
            raise self._unsafe(f"unpacks to more than {self._limits.total} bytes")
        data = self._read(size)
        self._read(_padded(size, _BLOCK) - size)
        return data

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise _damaged("the archive ends in the middle", self._where)
        return data

    def _parse(self, header: bytes) -> tuple[str, bytes, int]:
        # POSIX.1-1988 ustar: name 0-99, size 124-135, checksum 148-155, type 156, prefix 345-499.
        checksum = sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
        if header[257:262] != b"ustar" or self._octal(header[148:156]) != checksum:
            raise _damaged("not a ustar archive", self._where)
        if any(header[345:500]):
            raise self._unsafe("a member has a name that no file of a store has")
        name = header[:100].split(b"\0", 1)[0].decode("ascii", "backslashreplace")
        return name, header[156:157], self._octal(header[124:136])

    def _octal(self, text: bytes) -> int:
        digits = text.strip(b" \0")
        if not re.fullmatch(rb"[0-7]+", digits):
            raise _damaged(f"a number of a ustar header is {text!r}", self._where)
        return int(digits, 8)

    def _unsafe(self, what: str) -> StoreUnsafe:
        return StoreUnsafe(f"refused: {what}", where=self._where, fix=_FIX)
