"""Removing blobs that no index needs any more."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_build.store.closure import layers_of, manifest_data
from mono_build.store.errors import writing
from mono_build.store.files import sync_directory
from mono_build.store.journal import Journal
from mono_build.store.locks import BuilderPresence
from mono_runtime.canonical import Json, digest_of
from mono_runtime.errors import InvalidValue, MonoError, StoreMissing
from mono_runtime.files import read_regular
from mono_runtime.index import Index
from mono_runtime.oci import (
    BLOBS,
    INDEX_TYPE,
    Descriptor,
    StoreReader,
    parse_json,
    read_blob,
)

_HEX = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class GcReport:
    """What `collect` did, or would do.

    Attributes:
        removed: (digest, bytes) of each blob that nothing needs, sorted.
        kept: number of blobs that stay.
        missing: digests that a kept index needs and the store does not have, sorted.
        dry_run: whether nothing was removed.
    """

    removed: tuple[tuple[str, int], ...]
    kept: int
    missing: tuple[str, ...]
    dry_run: bool

    @property
    def freed(self) -> int:
        """Bytes of all removed blobs."""
        return sum(size for _, size in self.removed)

    def to_json(self) -> Json:
        return {
            "removed": [{"digest": digest, "size": size} for digest, size in self.removed],
            "freed": self.freed,
            "kept": self.kept,
            "missing": list(self.missing),
            "dry_run": self.dry_run,
        }


def collect(store: Path, keep: Sequence[str] = (), dry_run: bool = False) -> GcReport:
    """Remove every blob that neither the current index nor one of ``keep`` needs.

    ``keep`` names indexes that servers have pinned: a digest of an index or of a manifest, a file
    that is a copy of one, or another store's directory. A reader that has the current index open
    loses nothing; one that opened an earlier index does, unless that index is kept.

    Raises:
        StoreBusy: a builder is at work, whose blobs are not referred to yet.
        StoreMissing, StoreDamaged, InvalidValue: an index cannot be read, so what it needs is
            unknown. Nothing was removed.
        StorePermission: the store may not be written.
    """
    if dry_run:
        return _report(store, keep, dry_run=True)
    StoreReader.open(store)
    presence = BuilderPresence(store, exclusive=True, timeout=0.0)
    try:
        report = _report(store, keep, dry_run=False)
        with writing(store):
            for digest, _ in report.removed:
                _path(store, digest).unlink(missing_ok=True)
            sync_directory(store / BLOBS)
        return report
    finally:
        presence.tidy()


def _report(store: Path, keep: Sequence[str], *, dry_run: bool) -> GcReport:
    needed = _current(store)
    for name in keep:
        needed |= _named(store, name)
    present = dict(_blobs(store))
    # A killed builder's results are worth more than their space; the next build publishes them.
    needed |= _finished(store)
    removed = sorted((d, size) for d, size in present.items() if d not in needed)
    return GcReport(
        removed=tuple(removed),
        kept=len(present) - len(removed),
        missing=tuple(sorted(needed - present.keys())),
        dry_run=dry_run,
    )


def _current(store: Path) -> set[str]:
    reader = StoreReader.open(store)
    own = (reader.manifest, reader.index_digest)
    return {digest for digest in own if digest} | {layer.digest for layer in reader.layers}


def _finished(store: Path) -> set[str]:
    found: set[str] = set()
    for entry in Journal(store).entries():
        try:
            layers = layers_of(lambda d: read_blob(store, d), Index.of([entry]))
        except MonoError:
            continue
        found.update(layer.digest for layer in layers)
    return found


def _named(store: Path, name: str) -> set[str]:
    if name.startswith("sha256:") or _HEX.match(name):
        digest = f"sha256:{name.removeprefix('sha256:')}"
        try:
            return _needs(store, read_blob(store, digest), digest)
        except StoreMissing as error:
            raise StoreMissing(
                f"cannot keep {digest}: the store does not have it (any more)",
                where=str(store),
                fix="leave it out, or name a file that is a copy of that index",
            ) from error
    path = Path(name)
    if path.is_dir():
        index = StoreReader.open(path).index
        return _needs(store, index.data, name)
    try:
        data = read_regular(path)
    except StoreMissing as error:
        raise StoreMissing(
            f"cannot keep {name!r}: there is no such file",
            fix="name an index or a manifest by digest (sha256:...) or by file",
        ) from error
    return _needs(store, data, name)


def _needs(store: Path, data: bytes, where: str) -> set[str]:
    """What the index or manifest in ``data`` needs, itself included."""
    value = parse_json(data, where)
    if isinstance(value, dict) and "config" in value:
        config = Descriptor.from_json(value["config"], where)
        if config.media_type != INDEX_TYPE or not isinstance(value.get("layers"), list):
            raise InvalidValue("a manifest, but not of a store", where=where)
        layers = [Descriptor.from_json(layer, where) for layer in value["layers"]]
        return {digest_of(data), config.digest, *(layer.digest for layer in layers)}
    index = Index.from_json(value)
    needed = layers_of(lambda d: read_blob(store, d), index)
    # The manifest follows from the index, so it can be kept without searching for it.
    manifest = digest_of(manifest_data(index, needed))
    optional = {manifest, index.digest, digest_of(data)} & {d for d, _ in _blobs(store)}
    return optional | {layer.digest for layer in needed}


def _blobs(store: Path) -> Iterator[tuple[str, int]]:
    for path in sorted((store / BLOBS).iterdir()):
        status = path.lstat()
        # What is no blob is left to a person; `verify` reports it.
        if _HEX.match(path.name) and stat.S_ISREG(status.st_mode):
            yield f"sha256:{path.name}", status.st_size


def _path(store: Path, digest: str) -> Path:
    return store / BLOBS / digest.removeprefix("sha256:")
