"""One file that holds a store, or a part of it: made reproducibly, and trusted only after checks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from mono_build.store.archive import Limits, Member, read_archive, write_archive
from mono_build.store.closure import check_entry, layers_of, listing_data, manifest_data
from mono_build.store.errors import writing
from mono_build.store.files import FILE_MODE, make_directories, sync_directory
from mono_build.store.writer import StoreWriter
from mono_runtime.canonical import Json, canonical_json, digest_of
from mono_runtime.errors import (
    StoreDamaged,
    StoreFormat,
    StoreMissing,
    StorePermission,
    StoreUnsafe,
)
from mono_runtime.index import Index
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import (
    BLOBS,
    INDEX_FILE,
    INDEX_TYPE,
    LAYOUT_FILE,
    LAYOUT_VERSION,
    STORE_TYPE,
    Descriptor,
    StoreReader,
    parse_json,
)

_NEWER = "import it with the mono-build release that exported it, or a later one"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an exported file holds: its own sha256, the index's digest, and sizes in bytes."""

    file: str
    sha256: str
    index: str
    entries: int
    blobs: int
    raw_size: int
    size: int

    def to_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was merged: ``index`` is the store's afterwards, ``imported`` that of the file."""

    index: str
    imported: str
    entries: int
    blobs: int
    ignored: int

    def to_json(self) -> Json:
        return asdict(self)


def export(
    store: Path, file: Path, select: Callable[[LaunchKey], bool] | None = None
) -> ExportReport:
    """Write the launches that ``select`` admits (all by default) of ``store`` into ``file``, at once.

    Raises:
        StoreMissing: no store, or nothing was selected.
        StoreDamaged: a blob that is needed is wrong. ``file`` is left as it was.
        StoreFull, StorePermission: ``file`` cannot be written.
    """
    reader = StoreReader.open(store)
    entries = [e for e in reader.index.entries if select is None or select(e.key)]
    if not entries:
        raise StoreMissing(
            "no launch of the store is selected, so there is nothing to export",
            where=str(store),
            fix="see what the store holds with mono-build ls",
        )
    index = Index.of(entries)
    layers = layers_of(reader.blob, index)
    manifest = manifest_data(index, layers)
    made = {
        LAYOUT_FILE: canonical_json({"imageLayoutVersion": LAYOUT_VERSION}),
        INDEX_FILE: listing_data(manifest),
        _name(digest_of(manifest)): manifest,
        _name(index.digest): index.data,
    }
    sizes = {**{name: len(data) for name, data in made.items()}}
    sizes |= {_name(layer.digest): layer.size for layer in layers}
    contents = (
        made[n] if n in made else _checked(reader, n, size) for n, size in sorted(sizes.items())
    )
    with writing(file), _Output(file) as out:
        raw = write_archive(out, sorted(sizes.items()), contents)
    return ExportReport(
        file=str(file),
        sha256=digest_of(file.read_bytes()),
        index=index.digest,
        entries=len(entries),
        blobs=len(sizes) - 2,
        raw_size=raw,
        size=file.stat().st_size,
    )


def import_(
    file: Path,
    store: Path,
    limits: Limits | None = None,
    select: Callable[[LaunchKey], bool] | None = None,
) -> ImportReport:
    """Merge the launches in ``file`` that ``select`` admits (all by default) into ``store``.

    The store is created when absent. The whole file is read and checked before anything is written.

    Raises:
        StoreUnsafe: the archive holds what no export holds, or unpacks to more than ``limits``.
        StoreDamaged: cut off, altered, or incomplete.
        StoreFormat: made by a newer release.
        StoreMissing, StorePermission: ``file`` cannot be read or holds nothing that is selected, or
            the store cannot be written.
    """
    bounds = limits or Limits()
    with _open(file) as source:
        content = _survey(source, file, bounds, select)
        # The file is read twice so that it never has to fit into memory.
        source.seek(0)
        with StoreWriter(store) as writer:
            for member in read_archive(source, file, bounds):
                # The file may have been changed since the survey: only what was approved is kept.
                if digest_of(member.data) in content.wanted:
                    writer.put_blob(member.data)
            index = writer.publish(content.index.entries)
    return ImportReport(
        index=index,
        imported=content.index.digest,
        entries=len(content.index.entries),
        blobs=len(content.wanted),
        ignored=content.ignored,
    )


@dataclass(frozen=True, slots=True)
class _Content:
    index: Index
    wanted: frozenset[str]
    ignored: int


def _survey(
    source: IO[bytes], file: Path, limits: Limits, select: Callable[[LaunchKey], bool] | None
) -> _Content:
    """Check everything in the archive and tell what of it belongs into a store."""
    archive = _Archive(file, limits)
    for member in read_archive(source, file, limits):
        archive.add(member)
    index, layers = archive.opened()
    for entry in index.entries:
        check_entry(archive.blob, entry)
    needed = layers_of(archive.blob, index)
    if set(needed) != set(layers):
        raise archive.damaged("the manifest does not name exactly the blobs that its index needs")
    if select is not None:
        index = Index.of(e for e in index.entries if select(e.key))
        needed = layers_of(archive.blob, index)
    if not index.entries:
        raise StoreMissing(
            "no launch in the file is selected, so there is nothing to import", where=str(file)
        )
    wanted = frozenset(layer.digest for layer in needed)
    # The manifest and the index are made anew by the merge.
    return _Content(index, wanted, len(archive.sizes) - len(wanted) - 2)


class _Archive:
    """What a survey keeps: sizes of all blobs, the bytes of those that can be JSON."""

    def __init__(self, file: Path, limits: Limits) -> None:
        self._file = str(file)
        self._limits = limits
        self._top: dict[str, bytes] = {}
        self._json: dict[str, bytes] = {}
        self._held = 0
        self.sizes: dict[str, int] = {}

    def add(self, member: Member) -> None:
        if not member.name.startswith(BLOBS):
            self._hold(self._top, member.name, member.data)
            return
        digest = f"sha256:{member.name.removeprefix(f'{BLOBS}/')}"
        found = digest_of(member.data)
        if found != digest:
            raise self.damaged(
                f"a blob is not what its name says: expected {digest}, found {found}"
            )
        self.sizes[digest] = len(member.data)
        if member.data.startswith(b"{"):
            self._hold(self._json, digest, member.data)

    def _hold(self, place: dict[str, bytes], name: str, data: bytes) -> None:
        self._held += len(data)
        if self._held > self._limits.json:
            raise StoreUnsafe(
                f"refused: holds more than {self._limits.json} bytes of JSON", where=self._file
            )
        place[name] = data

    def blob(self, digest: str) -> bytes:
        """A JSON blob's bytes; for others as many zeros, for only their size is asked for."""
        if digest not in self.sizes:
            raise self.damaged(f"lacks the blob {digest}")
        held = self._json.get(digest)
        return bytes(self.sizes[digest]) if held is None else held

    def opened(self) -> tuple[Index, tuple[Descriptor, ...]]:
        layout = self._parsed(self._top, LAYOUT_FILE)
        if layout.get("imageLayoutVersion") != LAYOUT_VERSION:
            raise self._newer(layout.get("imageLayoutVersion"))
        manifests = self._parsed(self._top, INDEX_FILE).get("manifests")
        if not isinstance(manifests, list) or len(manifests) != 1:
            raise self._newer("an index.json without exactly one manifest")
        descriptor = Descriptor.from_json(manifests[0], self._file)
        # Optional in a descriptor: tools that copy layouts leave it out.
        kind = manifests[0].get("artifactType", STORE_TYPE)
        if kind == STORE_TYPE:
            manifest = self._parsed(self._json, descriptor.digest)
            kind = manifest.get("artifactType")
        if kind != STORE_TYPE:
            raise self._newer(kind)
        config = Descriptor.from_json(manifest.get("config"), self._file)
        if config.media_type != INDEX_TYPE:
            raise self._newer(config.media_type)
        layers = manifest.get("layers")
        if not isinstance(layers, list):
            raise self.damaged("the manifest has no layers")
        index = Index.from_json(self._parsed(self._json, config.digest))
        return index, tuple(Descriptor.from_json(layer, self._file) for layer in layers)

    def _parsed(self, place: dict[str, bytes], name: str) -> dict[str, Json]:
        if name not in place:
            raise self.damaged(f"lacks {name}")
        value = parse_json(place[name], f"{self._file}: {name}")
        if not isinstance(value, dict):
            raise self.damaged(f"{name} is not a JSON object")
        return value

    def damaged(self, what: str) -> StoreDamaged:
        return StoreDamaged(what, where=self._file, fix="export the store again with mono-build")

    def _newer(self, found: object) -> StoreFormat:
        return StoreFormat(
            f"the file has the format {found!r}; this version imports {STORE_TYPE}",
            where=self._file,
            fix=_NEWER,
        )


class _Output:
    """A file that appears under its name when it is complete."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> IO[bytes]:
        make_directories(self._target.parent)
        prefix = f".{self._target.name}."
        descriptor, self._name = tempfile.mkstemp(dir=self._target.parent, prefix=prefix)
        self._file = open(descriptor, "wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            with self._file as file:
                if kind is None:
                    file.flush()
                    os.fchmod(file.fileno(), FILE_MODE)
                    os.fsync(file.fileno())
            if kind is None:
                Path(self._name).replace(self._target)
                sync_directory(self._target.parent)
        finally:
            with suppress(OSError):
                Path(self._name).unlink()


def _open(file: Path) -> IO[bytes]:
    try:
        return open(file, "rb")
    except PermissionError as error:
        raise StorePermission("no permission to read the file", where=str(file)) from error
    except OSError as error:
        raise StoreMissing(f"cannot read the file: {error.strerror}", where=str(file)) from error


def _checked(reader: StoreReader, name: str, size: int) -> bytes:
    data = reader.blob(f"sha256:{Path(name).name}")
    if len(data) != size:
        raise StoreDamaged(f"{name} has {len(data)} bytes, its artefact says {size}")
    return data


def _name(digest: str) -> str:
    return f"{BLOBS}/{digest.removeprefix('sha256:')}"
