"""Reading a store: an OCI image layout whose every byte is checked against its digest before use.

``index.json`` names one manifest; the manifest's config is the index, its layers are the artefacts,
the inputs and the code objects. A reader opens nothing for writing and takes no lock.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json, checked_digest, digest_of
from mono_runtime.errors import (
    InvalidValue,
    StoreDamaged,
    StoreFormat,
    StoreMissing,
    StorePermission,
    StoreUnsafe,
)
from mono_runtime.index import Index
from mono_runtime.inputs import Inputs

LAYOUT_FILE = "oci-layout"
LAYOUT_VERSION = "1.0.0"
INDEX_FILE = "index.json"
BLOBS = "blobs/sha256"
# OCI image specification 1.1: an artifact is an image manifest with an artifactType of its own.
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
STORE_TYPE = "application/vnd.mono-build.store.v1"
INDEX_TYPE = "application/vnd.mono-build.index.v1+json"
ARTEFACT_TYPE = "application/vnd.mono-build.artefact.v1+json"
INPUTS_TYPE = "application/vnd.mono-build.inputs.v1+json"
CODE_OBJECT_TYPE = "application/vnd.mono-build.code-object.v1+elf"
REBUILD = "rebuild the store with mono-build, or copy it again from where it was built"


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
        if not isinstance(value, dict) or not isinstance(value.get("size"), int):
            raise InvalidValue(f"not a descriptor: {value!r}", where=where)
        return Descriptor(
            str(value.get("mediaType")), checked_digest(value.get("digest"), where), value["size"]
        )


def blob_path(store: Path, digest: str) -> Path:
    """Where ``store`` keeps the blob of this digest; the digest is validated first."""
    return store / BLOBS / checked_digest(digest, str(store)).removeprefix("sha256:")


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. Links are refused, and each failure has its own error."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _open_error(error, path) from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreUnsafe("not a regular file", where=str(path), fix=REBUILD)
        return file.read()


def _open_error(error: OSError, path: Path) -> Exception:
    if error.errno in (errno.EACCES, errno.EPERM):
        fix = "give this user read permission (a store is built with modes 0644 and 0755)"
        return StorePermission(
            "no permission to read a file of the store", where=str(path), fix=fix
        )
    if error.errno == errno.ELOOP:
        return StoreUnsafe("a link where a file belongs", where=str(path), fix=REBUILD)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StoreMissing("no such file in the store", where=str(path), fix=REBUILD)
    return StoreDamaged(f"cannot read: {error.strerror}", where=str(path), fix=REBUILD)


def read_blob(store: Path, digest: str) -> bytes:
    """The blob's bytes, if they have this digest; else `StoreDamaged` with both digests."""
    path = blob_path(store, digest)
    data = read_regular(path)
    found = digest_of(data)
    if found != digest:
        raise StoreDamaged(
            f"the content is not what its name says: expected {digest}, found {found}",
            where=str(path),
            fix=REBUILD,
        )
    return data


def parse_json(data: bytes, where: str) -> Json:
    """``data`` as JSON; `StoreDamaged` when it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"not JSON: {error}", where=where, fix=REBUILD) from error


@dataclass(frozen=True, slots=True)
class StoreReader:
    """An opened store: its index, and verified access to its blobs.

    Attributes:
        path: the store's directory.
        manifest: digest of the manifest that ``index.json`` names.
        layers: every blob the manifest refers to, the index aside.
        index: what the store holds.
        index_digest: the digest a server may pin.
    """

    path: Path
    manifest: str
    layers: tuple[Descriptor, ...]
    index: Index
    index_digest: str

    @staticmethod
    def open(path: Path) -> StoreReader:
        """Open ``path``; each way a store can be unusable raises its own `StoreError`."""
        _check_layout(path)
        try:
            return _open_once(path)
        except StoreMissing:
            # A builder may have replaced the index, and cleaned up, between two of our reads.
            return _open_once(path)

    def blob(self, digest: str) -> bytes:
        """The verified bytes of a blob."""
        return read_blob(self.path, digest)

    def artefact(self, digest: str) -> Artefact:
        """The artefact blob of this digest."""
        where = str(blob_path(self.path, digest))
        return Artefact.from_json(parse_json(self.blob(digest), where))

    def inputs(self, digest: str) -> Inputs:
        """The inputs blob of this digest."""
        where = str(blob_path(self.path, digest))
        return Inputs.from_json(parse_json(self.blob(digest), where))


def _check_layout(path: Path) -> None:
    try:
        data = read_regular(path / LAYOUT_FILE)
    except StoreMissing as error:
        raise StoreMissing(
            "there is no store here",
            where=str(path),
            fix="build one with mono-build, or name another with --store or MONO_STORE",
        ) from error
    version = parse_json(data, str(path / LAYOUT_FILE))
    if not isinstance(version, dict) or version.get("imageLayoutVersion") != LAYOUT_VERSION:
        raise StoreFormat(
            f"not OCI image layout {LAYOUT_VERSION}: {version!r}", where=str(path / LAYOUT_FILE)
        )


def _check_store_type(kind: object, where: str) -> None:
    if kind != STORE_TYPE:
        raise StoreFormat(
            f"the store has the format {kind!r}; this version reads {STORE_TYPE}",
            where=where,
            fix="use the mono-build release that wrote the store, or rebuild the store",
        )


def _open_once(path: Path) -> StoreReader:
    where = str(path / INDEX_FILE)
    try:
        data = read_regular(path / INDEX_FILE)
    except StoreMissing as error:
        raise StoreMissing(
            "nothing has been published in this store yet",
            where=where,
            fix="wait for the build that fills it, or run mono-build again",
        ) from error
    listing = parse_json(data, where)
    manifests = listing.get("manifests") if isinstance(listing, dict) else None
    if not isinstance(manifests, list) or len(manifests) != 1:
        raise StoreFormat("index.json does not name exactly one manifest", where=where)
    manifest = Descriptor.from_json(manifests[0], where)
    # Optional in a descriptor, and tools that copy layouts leave it out; the manifest has it too.
    _check_store_type(manifests[0].get("artifactType", STORE_TYPE), where)
    body = parse_json(read_blob(path, manifest.digest), str(blob_path(path, manifest.digest)))
    _check_store_type(body.get("artifactType") if isinstance(body, dict) else None, where)
    if not isinstance(body.get("layers"), list):
        raise StoreDamaged("not an OCI image manifest", where=where, fix=REBUILD)
    config = Descriptor.from_json(body.get("config"), where)
    if config.media_type != INDEX_TYPE:
        raise StoreFormat(
            f"the index has the format {config.media_type!r}; this version reads {INDEX_TYPE}",
            where=where,
            fix="use the mono-build release that wrote the store, or rebuild the store",
        )
    index = parse_json(read_blob(path, config.digest), str(blob_path(path, config.digest)))
    layers = tuple(Descriptor.from_json(layer, where) for layer in body["layers"])
    return StoreReader(path, manifest.digest, layers, Index.from_json(index), config.digest)
