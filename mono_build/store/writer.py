"""Writing a store: blobs first, then the index and its manifest, and ``index.json`` last, at once.

A builder that is killed between any two instructions leaves a store that reads as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mono_build.store.closure import (
    artefact_layers,
    check_entry,
    in_order,
    listing_data,
    manifest_data,
)
from mono_build.store.errors import writing
from mono_build.store.files import (
    FILE_MODE,
    make_directories,
    own_directory,
    replace_file,
    sync_directory,
)
from mono_build.store.journal import Journal
from mono_build.store.locks import BUILDER, STAGING, BuilderPresence, PublishLock
from mono_runtime.canonical import canonical_json, digest_of
from mono_runtime.errors import (
    InvalidValue,
    MonoError,
    StoreDamaged,
    StoreError,
    StoreFormat,
    StoreMissing,
)
from mono_runtime.files import read_regular
from mono_runtime.index import Index, IndexEntry
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import (
    BLOBS,
    INDEX_FILE,
    LAYOUT_FILE,
    LAYOUT_VERSION,
    STORE_TYPE,
    Descriptor,
    StoreReader,
    blob_path,
    parse_json,
    read_blob,
)

# What may lie in a directory that becomes a store: a killed builder's files, and a fresh volume's.
_HARMLESS = {BUILDER, "lost+found"}
# Errors of one broken blob, as opposed to a store that cannot be used at all.
_BROKEN = (StoreDamaged, StoreMissing, InvalidValue)


class StoreWriter:
    """A store opened for building. Use it as a context manager, or call `close`.

    Any number of processes may hold a writer of one store.

    Raises:
        StorePermission, StoreFull: the file system refuses.
        StoreFormat: a newer or foreign format, or a directory that holds something else.
        StoreUnsafe: a link where the store has a directory or a file.

    Attributes:
        path: the store's directory.
        journal: results of finished launches that wait for publication.
        damage: why the index that was there cannot be read, or None. A publication replaces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = _refuse_foreign(path)
        with writing(path):
            make_directories(path)
            self._presence = BuilderPresence(path)
        try:
            self._prepare()
        except BaseException:
            self._presence.tidy()
            raise
        self.journal = Journal(path)

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the store; the last builder removes everything that is not part of it."""
        self._presence.tidy()

    def put_blob(self, data: bytes) -> str:
        """Keep ``data`` and return its digest. An intact blob stays, a damaged one is replaced."""
        digest = digest_of(data)
        path = blob_path(self.path, digest)
        if not _holds(path, data):
            with writing(path):
                replace_file(self.path / BUILDER / STAGING, path, data)
        return digest

    def blob(self, digest: str) -> bytes:
        """The verified bytes of a blob, published or not."""
        return read_blob(self.path, digest)

    def current(self) -> StoreReader | None:
        """The store as readers see it now; None when nothing was published or it is unreadable."""
        try:
            return StoreReader.open(self.path)
        except _BROKEN:
            return None

    def lookup(self, key: LaunchKey) -> IndexEntry | None:
        """The entry of ``key``, whether published or only finished (by any builder)."""
        # In this order: an entry leaves the journal after it was published, so one of both has it.
        entry = self.journal.by_key(key)
        if entry is not None:
            return entry
        reader = self.current()
        return reader.index.by_key().get(key) if reader else None

    def lookup_ir(self, ir: str) -> IndexEntry | None:
        """An entry made from this IR, whether published or only finished (by any builder)."""
        entry = self.journal.by_ir(ir)
        if entry is not None:
            return entry
        reader = self.current()
        entries = reader.index.entries if reader else ()
        return next((e for e in entries if e.ir == ir), None)

    def check(self, entry: IndexEntry) -> None:
        """Read every blob of ``entry``; raises the `MonoError` of the first that is wrong."""
        check_entry(self.blob, entry)

    def recover(self) -> tuple[IndexEntry, ...]:
        """Publish what killed builders finished and return it; results with broken blobs are dropped."""
        intact, broken = [], []
        for entry in self.journal.entries():
            try:
                self.check(entry)
            except MonoError:
                broken.append(entry)
            else:
                intact.append(entry)
        self.journal.clear(broken)
        if intact:
            self.publish(intact)
        return tuple(intact)

    def publish(self, entries: Iterable[IndexEntry], removed: Iterable[LaunchKey] = ()) -> str:
        """Merge ``entries`` into the index, without ``removed``, and return the index's digest.

        Nothing is written when nothing changes; ``entries`` leave the journal. Blobs of earlier indexes stay until `collect`, for
        servers that have them pinned.

        Raises:
            StoreDamaged, StoreMissing, InvalidValue: a blob of a new entry is not as it should be.
            StoreFull, StorePermission, StoreBusy: nothing was published.
        """
        added = tuple(entries)
        gone = {key.digest for key in removed}
        with PublishLock(self.path):
            current = self.current()
            kept = [e for e in current.index.entries if e.key.digest not in gone] if current else []
            index = Index.of([*kept, *added])
            if current is None or index.digest != current.index_digest:
                self._replace_index(index, self._layers(index, current, frozenset(added)))
        self.journal.clear(added)
        return index.digest

    def _layers(
        self, index: Index, current: StoreReader | None, added: frozenset[IndexEntry]
    ) -> tuple[Descriptor, ...]:
        layers: set[Descriptor] = set()
        described: set[str] = set()
        for entry in index.entries:
            if entry in added:
                layers.update(check_entry(self.blob, entry))
            elif entry.artefact not in described:
                try:
                    layers.update(artefact_layers(self.blob, entry.artefact))
                except _BROKEN:
                    # An old artefact that is broken stays named, so that `verify` still finds it.
                    layers.update(current.layers if current else ())
            described.add(entry.artefact)
        return in_order(layers)

    def _replace_index(self, index: Index, layers: tuple[Descriptor, ...]) -> None:
        self.put_blob(index.data)
        manifest = manifest_data(index, layers)
        self.put_blob(manifest)
        with writing(self.path):
            # Blobs of other builders that were kept may have been renamed a moment ago.
            sync_directory(self.path / BLOBS)
            replace_file(
                self.path / BUILDER / STAGING, self.path / INDEX_FILE, listing_data(manifest)
            )

    def _prepare(self) -> None:
        with writing(self.path):
            if not _layout_is_fine(self.path):
                layout = canonical_json({"imageLayoutVersion": LAYOUT_VERSION})
                replace_file(self.path / BUILDER / STAGING, self.path / LAYOUT_FILE, layout)
            blobs = self.path / BLOBS
            own_directory(blobs.parent)
            own_directory(blobs)


def _refuse_foreign(path: Path) -> MonoError | None:
    """Raise for a place that is no store of ours; return the damage of a store that is."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise StoreError(
            "a file where the store should be", where=str(path), fix="name another directory"
        ) from error
    except OSError:
        # Making the store's directories tells more exactly what is refused.
        return None
    if LAYOUT_FILE not in names:
        if names - _HARMLESS:
            raise StoreFormat(
                "the directory is not empty and is no store",
                where=str(path),
                fix="name an empty directory, or one that does not exist yet",
            )
        return None
    try:
        StoreReader.open(path)
    except _BROKEN as error:
        # Without index.json the first publication is still to come.
        if INDEX_FILE not in names:
            return None
        if _names_another(path):
            raise StoreFormat(
                "the OCI image layout here is not a store, or has lost its manifest",
                where=str(path),
                fix="name another directory",
            ) from error
        return error
    return None


def _names_another(path: Path) -> bool:
    """Whether ``index.json`` is intact and does not say that it is a store's."""
    try:
        listing = parse_json(read_regular(path / INDEX_FILE), INDEX_FILE)
    except _BROKEN:
        return False
    return STORE_TYPE not in str(listing)


def _layout_is_fine(path: Path) -> bool:
    with suppress(*_BROKEN):
        parse_json(read_regular(path / LAYOUT_FILE), str(path))
        return True
    return False


def _holds(path: Path, data: bytes) -> bool:
    try:
        mode = path.lstat().st_mode & 0o777
        return mode == FILE_MODE and read_regular(path) == data
    except (OSError, MonoError):
        return False
