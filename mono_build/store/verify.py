"""Checking a whole store: every file, digest, size and reference, and all faults instead of the first."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mono_build.store.closure import parse_artefact
from mono_build.store.locks import BUILDER
from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json
from mono_runtime.errors import (
    InvalidValue,
    MonoError,
    StoreDamaged,
    StoreMissing,
    StoreUnsafe,
)
from mono_runtime.files import read_regular
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import (
    ARTEFACT_TYPE,
    BLOBS,
    CODE_OBJECT_TYPE,
    INDEX_FILE,
    INPUTS_TYPE,
    LAYOUT_FILE,
    Descriptor,
    StoreReader,
    contradictions,
    parse_json,
    read_blob,
)

# Compares a code object's bytes with the artefact that names it; a line for each contradiction.
CheckObject = Callable[[bytes, Artefact], list[str]]

CORRUPT = "corrupt"
UNTRUSTED = "untrusted"
OTHER = "other"
_BITS = {CORRUPT: 1, UNTRUSTED: 2, OTHER: 4}
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_MISSING = "missing"
# An index names artefacts without their size.
_UNSTATED = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        kind: ``corrupt`` (bytes or references), ``untrusted`` (somebody else could have put it
            there, or it leads elsewhere) or ``other`` (it could not be checked).
        file: path inside the store.
        expected, found: digests, sizes, modes or owners; None where there is nothing to compare.
    """

    kind: str
    file: str
    what: str
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` saw. ``notices`` are harmless: (file, why) of files that nothing refers to."""

    store: str
    index: str | None
    entries: int
    blobs: int
    size: int
    faults: tuple[Fault, ...]
    notices: tuple[tuple[str, str], ...]

    @property
    def exit_code(self) -> int:
        """0, or the bits of all faults: 1 corrupt, 2 untrusted, 4 other."""
        code = 0
        for fault in self.faults:
            code |= _BITS[fault.kind]
        return code

    def to_json(self) -> Json:
        return {
            "store": self.store,
            "index": self.index,
            "entries": self.entries,
            "blobs": self.blobs,
            "size": self.size,
            "faults": [asdict(f) for f in self.faults],
            "notices": [{"file": file, "what": what} for file, what in self.notices],
            "exit_code": self.exit_code,
        }


def verify(
    store: Path,
    check_object: CheckObject | None = None,
    select: Callable[[LaunchKey], bool] | None = None,
) -> VerifyReport:
    """Check every file of ``store``; never raises for what is wrong with it, and writes nothing.

    With ``select``, only what concerns the admitted launches is reported: their blobs, and
    everything that is no blob of a launch.
    """
    check = _Check(store, check_object, select)
    check.run()
    return VerifyReport(
        store=str(store),
        index=check.reader.index_digest if check.reader else None,
        entries=len(check.selected()),
        blobs=len(check.sizes),
        size=sum(check.sizes.values()),
        faults=tuple(sorted(check.faults, key=lambda f: (f.file, f.kind, f.what))),
        notices=tuple(sorted(check.notices)),
    )


@dataclass(slots=True)
class _Check:
    """One run: what was found so far.

    Attributes:
        manifest: the digest of the published manifest, once the store is open.
        sizes: digest -> bytes of each file in the place of a blob, intact or not.
        intact: digests whose file has the bytes it should have.
        needed: digest -> descriptor, from the index alone.
        complete: whether ``needed`` is all that the index needs.
    """

    store: Path
    check_object: CheckObject | None
    select: Callable[[LaunchKey], bool] | None = None
    reader: StoreReader | None = None
    manifest: str = ""
    faults: list[Fault] = field(default_factory=list)
    notices: list[tuple[str, str]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    intact: set[str] = field(default_factory=set)
    needed: dict[str, Descriptor] = field(default_factory=dict)
    complete: bool = True

    def run(self) -> None:
        if self._files():
            self._open()
        if self.reader is not None:
            self._top()
            self._entries()
            if self.select is None:
                self._layers(self.reader)
            else:
                self._leave_out_others()

    def selected(self) -> tuple[IndexEntry, ...]:
        """The entries that are asked about."""
        entries = self.reader.index.entries if self.reader else ()
        return tuple(e for e in entries if self.select is None or self.select(e.key))

    def _leave_out_others(self) -> None:
        mine = {_file_of(digest) for digest in self.needed}
        others = {_file_of(digest) for digest in self.sizes} - mine
        self.faults = [f for f in self.faults if f.file not in others]

    def fault(
        self, kind: str, file: str, what: str, expected: str | None = None, found: str | None = None
    ) -> None:
        self.faults.append(Fault(kind, file, what, expected, found))

    # Files: types, names, owners, modes, digests.

    def _files(self) -> bool:
        try:
            root = self.store.stat()
            for path, status in _walk(self.store, self._unreadable):
                self._file(path, status, root.st_uid)
        except OSError as error:
            self._unreadable(error)
            return False
        if root.st_mode & stat.S_IWOTH:
            self.fault(UNTRUSTED, ".", "anybody may write here", "0755", _mode(root))
        return True

    def _unreadable(self, error: OSError) -> None:
        name = Path(error.filename or self.store)
        file = "." if name == self.store else str(name.relative_to(self.store))
        self.fault(OTHER, file, f"cannot be read: {error.strerror}")

    def _file(self, path: Path, status: os.stat_result, owner: int) -> None:
        file = str(path.relative_to(self.store))
        if status.st_uid not in (0, owner):
            found = f"uid {status.st_uid}"
            self.fault(UNTRUSTED, file, "belongs to another user", f"uid {owner}", found)
        if stat.S_ISLNK(status.st_mode):
            self.fault(UNTRUSTED, file, "is a link", "a regular file", str(path.readlink()))
            return
        if status.st_mode & stat.S_IWOTH:
            expected = "0755" if stat.S_ISDIR(status.st_mode) else "0644"
            self.fault(UNTRUSTED, file, "anybody may write here", expected, _mode(status))
        if stat.S_ISDIR(status.st_mode):
            self._directory(file)
        elif not stat.S_ISREG(status.st_mode):
            kind = stat.filemode(status.st_mode)[0]
            self.fault(UNTRUSTED, file, "is no regular file", "a regular file", f"type {kind}")
        elif path.parent != self.store / BLOBS:
            if file not in (LAYOUT_FILE, INDEX_FILE):
                self._stray(file)
        elif not _HEX.match(path.name):
            self.fault(UNTRUSTED, file, "has a name that is no digest", "64 hex digits", path.name)
        else:
            self._blob(path, file, status.st_size)

    def _directory(self, file: str) -> None:
        if file == BUILDER:
            self.notices.append((file, "a builder is at work, or one was killed"))
        elif file not in ("blobs", BLOBS, "lost+found"):
            self._stray(file)

    def _stray(self, file: str) -> None:
        if file.startswith("blobs/"):
            self.fault(UNTRUSTED, file, "is not part of a store")
        else:
            self.notices.append((file, "is not part of a store"))

    def _blob(self, path: Path, file: str, size: int) -> None:
        digest = f"sha256:{path.name}"
        self.sizes[digest] = size
        try:
            found = _sha256(path)
        except OSError as error:
            self._unreadable(error)
            return
        if found == digest:
            self.intact.add(digest)
        else:
            what = f"the content ({size} bytes) is not what its name says"
            self.fault(CORRUPT, file, what, digest, found)

    # References: index.json -> manifest -> index -> artefacts -> inputs and code objects.

    def _open(self) -> None:
        try:
            self.reader = StoreReader.open(self.store)
        except MonoError as error:
            file = self._inside(error.where)
            if any(f.file == file for f in self.faults):
                return
            # An absent directory is no damage, an absent file of a store is.
            kind = OTHER if file == "." else _kind(error)
            found = _MISSING if isinstance(error, StoreMissing) else None
            self.fault(kind, file, error.what, found=found)

    def _inside(self, where: str | None) -> str:
        path = Path(where or self.store)
        return str(path.relative_to(self.store)) if path.is_relative_to(self.store) else str(path)

    def _need(self, layer: Descriptor, why: str) -> bool:
        """Note that the index needs ``layer``; whether its bytes can be used."""
        self.needed.setdefault(layer.digest, layer)
        file = _file_of(layer.digest)
        size = self.sizes.get(layer.digest)
        if size is None:
            if not any(f.file == file and f.found == _MISSING for f in self.faults):
                self.fault(CORRUPT, file, f"{why} is not there", layer.digest, _MISSING)
        elif layer.digest in self.intact and layer.size not in (_UNSTATED, size):
            what = f"{why} has another size than its reference says"
            self.fault(CORRUPT, file, what, f"{layer.size} bytes", f"{size} bytes")
        return layer.digest in self.intact

    def _entries(self) -> None:
        artefacts: dict[str, Artefact | None] = {}
        for entry in self.selected():
            if entry.artefact not in artefacts:
                artefacts[entry.artefact] = self._artefact(entry)
            artefact = artefacts[entry.artefact]
            if artefact is not None:
                for what, stated, found in contradictions(entry, artefact):
                    text = f"is not of the {what} that the index says for {entry.key}"
                    self.fault(CORRUPT, _file_of(entry.artefact), text, stated, found)

    def _artefact(self, entry: IndexEntry) -> Artefact | None:
        digest = entry.artefact
        layer = Descriptor(ARTEFACT_TYPE, digest, _UNSTATED)
        usable = self._need(layer, f"the artefact of {entry.key}")
        try:
            artefact = parse_artefact(read_blob(self.store, digest), digest) if usable else None
        except MonoError as error:
            self.fault(_kind(error), _file_of(digest), error.what, ARTEFACT_TYPE)
            artefact = None
        if artefact is None:
            self.complete = False
            return None
        self._inputs(artefact, entry)
        for code in artefact.code_objects:
            layer = Descriptor(CODE_OBJECT_TYPE, code.digest, code.size)
            if self._need(layer, f"a code object of {entry.key}"):
                self._object(code.digest, artefact)
        return artefact

    def _inputs(self, artefact: Artefact, entry: IndexEntry) -> None:
        digest = artefact.inputs
        layer = Descriptor(INPUTS_TYPE, digest, _UNSTATED)
        if not self._need(layer, f"the list of inputs of {entry.key}"):
            return
        try:
            Inputs.from_json(parse_json(read_blob(self.store, digest), digest))
        except MonoError as error:
            self.fault(_kind(error), _file_of(digest), error.what, INPUTS_TYPE)

    def _object(self, digest: str, artefact: Artefact) -> None:
        if self.check_object is None:
            return
        try:
            problems = self.check_object(read_blob(self.store, digest), artefact)
        except MonoError as error:
            problems = [error.what]
        for problem in problems:
            self.fault(CORRUPT, _file_of(digest), problem)

    def _top(self) -> None:
        listing = parse_json(read_regular(self.store / INDEX_FILE), INDEX_FILE)
        manifest = Descriptor.from_json(listing["manifests"][0], INDEX_FILE)
        body = parse_json(read_blob(self.store, manifest.digest), manifest.digest)
        config = Descriptor.from_json(body["config"], manifest.digest)
        self.manifest = manifest.digest
        for layer, why in ((manifest, "the manifest"), (config, "the index")):
            self._need(layer, why)

    def _layers(self, reader: StoreReader) -> None:
        manifest = _file_of(self.manifest)
        named = {layer.digest: layer for layer in reader.layers}
        for layer in reader.layers:
            self._need(layer, "a blob that the manifest names")
        own = {self.manifest, reader.index_digest}
        for digest in sorted(self.needed.keys() - named.keys() - own):
            self.fault(CORRUPT, manifest, "does not name a blob that the index needs", digest)
        for digest, layer in sorted(named.items()):
            needed = self.needed[digest]
            if needed is layer and self.complete:
                what = "names a blob that the index does not need"
                self.fault(CORRUPT, manifest, what, found=digest)
            elif needed.media_type != layer.media_type:
                what = f"gives {digest} another type than it has"
                self.fault(CORRUPT, manifest, what, needed.media_type, layer.media_type)
        for digest in sorted(self.sizes.keys() - self.needed.keys()):
            self.notices.append((_file_of(digest), "nothing refers to it; gc removes it"))


def _walk(root: Path, on_error: Callable[[OSError], None]) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(root) as entries:
        found = sorted(entries, key=lambda e: e.name)
    for entry in found:
        path = Path(entry.path)
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield path, status
        # What builders leave behind is no part of the store.
        if stat.S_ISDIR(status.st_mode) and entry.name not in (BUILDER, "lost+found"):
            try:
                yield from _walk(path, on_error)
            except OSError as error:
                on_error(error)


def _sha256(path: Path) -> str:
    sha = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return "sha256:" + sha.hexdigest()


def _file_of(digest: str) -> str:
    return f"{BLOBS}/{digest.removeprefix('sha256:')}"


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _kind(error: MonoError) -> str:
    if isinstance(error, StoreUnsafe):
        return UNTRUSTED
    corrupt = isinstance(error, (StoreDamaged, StoreMissing, InvalidValue))
    return CORRUPT if corrupt else OTHER
