"""What an index needs: every blob that its entries lead to, and the manifest that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mono_runtime.artefact import Artefact
from mono_runtime.canonical import canonical_json, digest_of
from mono_runtime.errors import StoreDamaged
from mono_runtime.files import REBUILD
from mono_runtime.index import Index, IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.oci import (
    ARTEFACT_TYPE,
    CODE_OBJECT_TYPE,
    INDEX_TYPE,
    INPUTS_TYPE,
    OCI_INDEX,
    OCI_MANIFEST,
    STORE_TYPE,
    Descriptor,
    parse_json,
    require_agreement,
)

# Gives the verified bytes of a digest, or raises the `MonoError` that says why not.
BlobSource = Callable[[str], bytes]


def parse_artefact(data: bytes, digest: str) -> Artefact:
    """``data`` as an artefact; ``digest`` names it in errors."""
    return Artefact.from_json(parse_json(data, digest))


def artefact_layers(read: BlobSource, digest: str) -> tuple[Descriptor, ...]:
    """The artefact of this digest, its inputs and its code objects, the latter by their stated size."""
    data = read(digest)
    artefact = parse_artefact(data, digest)
    objects = (Descriptor(CODE_OBJECT_TYPE, c.digest, c.size) for c in artefact.code_objects)
    return (
        Descriptor(ARTEFACT_TYPE, digest, len(data)),
        Descriptor(INPUTS_TYPE, artefact.inputs, len(read(artefact.inputs))),
        *objects,
    )


def in_order(layers: Iterable[Descriptor]) -> tuple[Descriptor, ...]:
    """``layers`` without repetition, in the one order a manifest has."""
    return tuple(sorted(set(layers), key=lambda d: (d.media_type, d.digest, d.size)))


def layers_of(read: BlobSource, index: Index) -> tuple[Descriptor, ...]:
    """Every blob that ``index`` needs, itself aside, in manifest order."""
    digests = sorted({e.artefact for e in index.entries})
    return in_order(layer for digest in digests for layer in artefact_layers(read, digest))


def check_entry(read: BlobSource, entry: IndexEntry) -> tuple[Descriptor, ...]:
    """The blobs of ``entry``, each read and compared with what the artefact says of it.

    Raises:
        StoreDamaged, StoreMissing: a blob is wrong, contradicts the entry, or is not there.
        InvalidValue: a blob is intact and is not what it should be.
    """
    artefact = parse_artefact(read(entry.artefact), entry.artefact)
    Inputs.from_json(parse_json(read(artefact.inputs), artefact.inputs))
    require_agreement(entry, artefact, entry.artefact)
    for code in artefact.code_objects:
        size = len(read(code.digest))
        if size != code.size:
            raise StoreDamaged(
                f"the code object has {size} bytes, its artefact says {code.size}",
                where=code.digest,
                fix=REBUILD,
            )
    return artefact_layers(read, entry.artefact)


def manifest_data(index: Index, layers: Iterable[Descriptor]) -> bytes:
    """The OCI image manifest of ``index`` (image specification 1.1, "image manifest")."""
    data = index.data
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": STORE_TYPE,
            "config": Descriptor(INDEX_TYPE, digest_of(data), len(data)).to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
    )


def listing_data(manifest: bytes) -> bytes:
    """The ``index.json`` that names ``manifest`` alone (image specification 1.1, "image index")."""
    descriptor = Descriptor(OCI_MANIFEST, digest_of(manifest), len(manifest))
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [{**descriptor.to_json(), "artifactType": STORE_TYPE}],
        }
    )
