"""Reading a store: an OCI image layout whose every byte is checked against its digest before use.

``index.json`` names one manifest; the manifest's config is the index, its layers are the artefacts,
the inputs and the code objects. A reader opens nothing for writing and takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mono_runtime.canonical import Json, checked_count, checked_digest, digest_of, json_value
from mono_runtime.errors import (
    InvalidValue,
    StoreDamaged,
    StoreDiffers,
    StoreFormat,
    StoreMissing,
)
from mono_runtime.files import REBUILD, open_error, read_regular
from mono_runtime.index import Index, IndexEntry
from mono_runtime.safety import Trust, store_directories, trust_for

if TYPE_CHECKING:
    from mono_runtime.artefact import Artefact, CodeObject
    from mono_runtime.inputs import Inputs

T = TypeVar("T")

LAYOUT_FILE = "oci-layout"
LAYOUT_VERSION = "1.0.0"
INDEX_FILE = "index.json"
BLOBS = "blobs/sha256"
# OCI image specification 1.1: an artifact is an image manifest with an artifactType of its own.
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
STORE_TYPE = "application/vnd.mono-build.store.v1"
INDEX_TYPE = "application/vnd.mono-build.index.v1+json"
ARTEFACT_TYPE = "application/vnd.mono-build.artefact.v3+json"
INPUTS_TYPE = "application/vnd.mono-build.inputs.v1+json"
CODE_OBJECT_TYPE = "application/vnd.mono-build.code-object.v1+elf"
_OTHER_FORMAT = "use the mono-build release that wrote the store, or rebuild the store"
# Bytes of the layout's two small files, some hundred each.
_SMALL = 1 << 20
# How often a reader starts anew because builders replaced what it was reading.
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob as a manifest refers to it: media type, digest and bytes."""

    media_type: str
    digest: str
    size: int

    def to_json(self) -> Json:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}

    @staticmethod
    def from_json(value: Json, where: str) -> Descriptor:
        """The descriptor in ``value``; a digest that could be a path is refused."""
        if not isinstance(value, dict) or not isinstance(value.get("mediaType"), str):
            raise InvalidValue(f"not a descriptor: {value!r}", where=where)
        digest = checked_digest(value.get("digest"), where)
        return Descriptor(
            value["mediaType"], digest, checked_count(value.get("size"), f"the size of {digest}")
        )


def blob_name(digest: str) -> str:
    """The path of a blob inside its store; the digest is validated first."""
    return f"{BLOBS}/{checked_digest(digest, 'store').removeprefix('sha256:')}"


def blob_path(store: Path, digest: str) -> Path:
    """Where ``store`` keeps the blob of this digest; the digest is validated first."""
    return store / blob_name(digest)


def read_blob(
    store: Path | str, digest: str, *, size: int | None = None, trust: Trust | None = None
) -> bytes:
    """The blob's bytes, if they have this digest; else `StoreDamaged` with both digests.

    Args:
        size, trust: as for `read_regular`.
    """
    path = f"{store}/{blob_name(digest)}"
    data = read_regular(path, size=size, trust=trust)
    found = digest_of(data)
    if found != digest:
        raise StoreDamaged(
            f"the content is not what its name says: expected {digest}, found {found}",
            where=path,
            fix=REBUILD,
        )
    return data


def parse_json(data: bytes, where: str) -> Json:
    """``data`` as JSON; `StoreDamaged` when it is none."""
    try:
        return json_value(data.decode())
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"not JSON: {error}", where=where, fix=REBUILD) from error


def contradictions(entry: IndexEntry, artefact: Artefact) -> list[tuple[str, str, str]]:
    """Where an index entry and its artefact differ: (what, the entry's, the artefact's)."""
    pairs = [
        ("IR", entry.ir, artefact.ir),
        ("architecture", entry.key.arch, artefact.arch),
    ]
    return [(what, a, b) for what, a, b in pairs if a != b]


@dataclass(frozen=True, slots=True)
class StoreReader:
    """An opened store: its index, and verified access to its blobs.

    Attributes:
        path: the store's directory.
        manifest: digest of the manifest that ``index.json`` names; None when the index was opened by
            its own digest.
        layers: every blob the manifest refers to, the index aside; empty without a manifest.
        index: what the store holds.
        index_digest: the digest a server may pin.
        trust: whose files are believed; None when everybody's are, because a digest was pinned or
            because nobody could write, or because the caller did not ask for safety.
    """

    path: Path
    manifest: str | None
    layers: tuple[Descriptor, ...]
    index: Index
    index_digest: str
    trust: Trust | None = None

    @staticmethod
    def open(path: Path, *, safe: bool = False) -> StoreReader:
        """Open what is published in ``path``; each way a store can be unusable has its own `StoreError`.

        Args:
            safe: refuse a store that another user could have altered (see `mono_runtime.safety`).
        """
        trust = _check_layout(path, safe)
        listing = _read_listing(path, trust)
        for _ in range(_ATTEMPTS):
            try:
                return _open_listing(path, listing, trust)
            except StoreMissing:
                # A builder may have replaced the index, and cleaned up, between two of our reads.
                before, listing = listing, _read_listing(path, trust)
                if listing == before:
                    raise
        return _open_listing(path, listing, trust)

    @staticmethod
    def pinned(path: Path, index_digest: str) -> StoreReader:
        """Open the index of this digest in ``path``, be it the published one or an earlier one.

        Owners and modes are not looked at, since every byte follows from the digest.

        Raises:
            StoreDiffers: the store has no such index.
        """
        _check_layout(path, safe=False)
        try:
            data = read_blob(path, index_digest)
        except StoreMissing as error:
            published = StoreReader.open(path)
            if published.index_digest == index_digest:
                return published
            raise StoreDiffers(
                "the store is not the pinned one:"
                f" expected index {index_digest}, found {published.index_digest}",
                where=str(path),
                fix="use the store that was meant, or pin the digest that its build printed",
            ) from error
        index = _parsed(Index.from_json, data, str(blob_path(path, index_digest)))
        return StoreReader(path, None, (), index, index_digest)

    def blob(self, digest: str, size: int | None = None) -> bytes:
        """The verified bytes of a blob, which has ``size`` bytes when that is known."""
        return read_blob(self.path, digest, size=size, trust=self.trust)

    def artefact(self, digest: str) -> Artefact:
        """The artefact blob of this digest."""
        # A store that is opened and listed needs neither plans nor inputs.
        from mono_runtime.artefact import Artefact

        return self._read(Artefact.from_json, digest)

    def artefact_of(self, entry: IndexEntry) -> Artefact:
        """The artefact of ``entry``; `StoreDamaged` when it is one of something else."""
        artefact = self.artefact(entry.artefact)
        require_agreement(entry, artefact, str(self.path))
        return artefact

    def code(self, code: CodeObject) -> bytes:
        """The verified bytes of a code object."""
        return self.blob(code.digest, code.size)

    def inputs(self, digest: str) -> Inputs:
        """The inputs blob of this digest."""
        from mono_runtime.inputs import Inputs

        return self._read(Inputs.from_json, digest)

    def _read(self, parse: Callable[[Json], T], digest: str) -> T:
        return _parsed(parse, self.blob(digest), f"{self.path}/{blob_name(digest)}")


def _parsed(parse: Callable[[Json], T], data: bytes, where: str) -> T:
    value = parse_json(data, where)
    try:
        return parse(value)
    except InvalidValue as error:
        raise StoreDamaged(error.what, where=where, fix=REBUILD) from error
    except StoreFormat as error:
        error.where = where
        raise


def require_agreement(entry: IndexEntry, artefact: Artefact, where: str) -> None:
    """Raise `StoreDamaged` when ``artefact`` is not of what ``entry`` says."""
    for what, stated, found in contradictions(entry, artefact):
        raise StoreDamaged(
            f"the index says {what} {stated} of {entry.key}, its artefact says {found}",
            where=where,
            fix=REBUILD,
        )


def _check_layout(path: Path, safe: bool) -> Trust | None:
    absent = StoreMissing(
        "there is no store here",
        where=str(path),
        fix="build one with mono-build, or name another with --store or MONO_STORE",
    )
    try:
        directories = store_directories(path)
        trust = trust_for(directories) if safe else None
        data = read_regular(path / LAYOUT_FILE, limit=_SMALL, trust=trust)
    except StoreMissing as error:
        raise absent from error
    except OSError as error:
        located = open_error(error, error.filename or path)
        raise (absent if isinstance(located, StoreMissing) else located) from error
    version = parse_json(data, str(path / LAYOUT_FILE))
    if not isinstance(version, dict) or version.get("imageLayoutVersion") != LAYOUT_VERSION:
        raise StoreFormat(
            f"not OCI image layout {LAYOUT_VERSION}: {version!r}",
            where=str(path / LAYOUT_FILE),
            fix=_OTHER_FORMAT,
        )
    return trust


def _read_listing(path: Path, trust: Trust | None) -> bytes:
    try:
        return read_regular(path / INDEX_FILE, limit=_SMALL, trust=trust)
    except StoreMissing as error:
        raise StoreMissing(
            "nothing has been published in this store yet",
            where=str(path / INDEX_FILE),
            fix="wait for the build that fills it, or run mono-build again",
        ) from error


def _open_listing(path: Path, data: bytes, trust: Trust | None) -> StoreReader:
    manifest = _parsed(_manifest_of, data, str(path / INDEX_FILE))
    where = str(blob_path(path, manifest.digest))
    body = read_blob(path, manifest.digest, size=manifest.size, trust=trust)
    config, layers = _parsed(_content_of, body, where)
    index = read_blob(path, config.digest, size=config.size, trust=trust)
    where = str(blob_path(path, config.digest))
    return StoreReader(
        path,
        manifest.digest,
        layers,
        _parsed(Index.from_json, index, where),
        config.digest,
        trust,
    )


def _manifest_of(listing: Json) -> Descriptor:
    """The one manifest that an ``index.json`` names."""
    manifests = listing.get("manifests") if isinstance(listing, dict) else None
    if not isinstance(manifests, list) or len(manifests) != 1:
        raise StoreFormat("index.json does not name exactly one manifest", fix=_OTHER_FORMAT)
    manifest = Descriptor.from_json(manifests[0], INDEX_FILE)
    _check_type("manifest", manifest.media_type, OCI_MANIFEST)
    # Optional in a descriptor, and tools that copy layouts leave it out; the manifest has it too.
    _check_type("store", manifests[0].get("artifactType", STORE_TYPE), STORE_TYPE)
    return manifest


def _content_of(manifest: Json) -> tuple[Descriptor, tuple[Descriptor, ...]]:
    """A manifest's index, and its layers."""
    kind = manifest.get("artifactType") if isinstance(manifest, dict) else None
    _check_type("store", kind, STORE_TYPE)
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise InvalidValue("not an OCI image manifest")
    config = Descriptor.from_json(manifest.get("config"), "manifest")
    _check_type("index", config.media_type, INDEX_TYPE)
    return config, tuple([Descriptor.from_json(layer, "manifest") for layer in layers])


def _check_type(what: str, found: object, expected: str) -> None:
    if found != expected:
        raise StoreFormat(
            f"the {what} has the format {found!r}; this version reads {expected}",
            fix=_OTHER_FORMAT,
        )
