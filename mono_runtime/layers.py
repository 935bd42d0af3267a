"""The stores that a server reads, one over the other: a launch comes from the first that has it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_runtime.artefact import Artefact, CodeObject
from mono_runtime.canonical import checked_digest, digest_json
from mono_runtime.errors import InvalidValue, LaunchMissing, StoreMissing
from mono_runtime.files import open_error
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader, require_agreement

VARIABLE = "MONO_STORE"
DIGEST_VARIABLE = "MONO_STORE_DIGEST"
# One store, or several with the first hit first. A text is one path; only the variable is split.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def layered(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The stores of ``MONO_STORE`` (separated by colons), first hit first; empty when unset."""
    return tuple(Path(part) for part in environ.get(VARIABLE, "").split(":") if part)


@dataclass(frozen=True, slots=True)
class Found:
    """Where a launch key was found: the first store that has it, and its entry there."""

    reader: StoreReader
    entry: IndexEntry


class Layers:
    """Opened stores, first hit first. Safe to use from several threads.

    What was opened stays: a build that publishes later is not seen, and what it replaced can be read
    until ``mono-build gc``.

    Attributes:
        readers: the stores.
        digest: of one store its index digest; of several the digest of the list of theirs.
    """

    def __init__(self, readers: Sequence[StoreReader]) -> None:
        self.readers = tuple(readers)
        digests = [reader.index_digest for reader in self.readers]
        self.digest = digests[0] if len(digests) == 1 else digest_json(digests)
        self._found: dict[LaunchKey, Found] = {}
        for reader in self.readers:
            for entry in reader.index.entries:
                self._found.setdefault(entry.key, Found(reader, entry))
        # Launch keys of equal IR share an artefact.
        self._artefacts: dict[str, Artefact] = {}

    def keys(self) -> Collection[LaunchKey]:
        """Every launch key that a store has."""
        return self._found.keys()

    def find(self, key: LaunchKey) -> Found:
        """The entry of ``key``; `LaunchMissing` names the nearest entries and the fields that differ."""
        found = self._found.get(key)
        if found is None:
            # Not needed by a server that finds everything.
            from mono_runtime.nearest import explain

            miss = explain(key, self._found)
            where = ":".join(str(reader.path) for reader in self.readers)
            error = LaunchMissing(miss.what, where=where, fix=miss.fix)
            error.miss = miss
            raise error
        return found

    def missing(self, keys: Iterable[LaunchKey]) -> tuple[LaunchKey, ...]:
        """Those of ``keys`` that no store has, each once and in their order."""
        return tuple(key for key in dict.fromkeys(keys) if key not in self._found)

    def artefact(self, found: Found) -> Artefact:
        """The artefact of an entry, its bytes checked.

        Raises:
            StoreDamaged, StoreMissing, StorePermission, StoreUnsafe, StoreFormat: it cannot be used.
                Another store's entry of the same launch is never taken instead.
        """
        artefact = self._artefacts.get(found.entry.artefact)
        if artefact is None:
            artefact = found.reader.artefact(found.entry.artefact)
            self._artefacts[found.entry.artefact] = artefact
        require_agreement(found.entry, artefact, str(found.reader.path))
        return artefact

    def code(self, found: Found, code: CodeObject) -> bytes:
        """The bytes of a code object of an entry's artefact, checked; errors as for `artefact`."""
        return found.reader.code(code)

    def inputs(self, found: Found) -> Inputs:
        """What the entry's artefact was built from; errors as for `artefact`."""
        return found.reader.inputs(self.artefact(found).inputs)


def open_layers(
    paths: Paths | None = None,
    *,
    digest: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Layers:
    """Open stores for reading, each of which must be there, sound and safe.

    There is no user's cache by default, as a server may have no ``HOME``. Every named store is needed:
    a server that goes on without one of them would miss launches while it serves.

    Args:
        paths: one store, or several with the first hit first; by default those of ``MONO_STORE``.
        digest: the index digest that a store must have; for several stores one for each, in their
            order, separated by commas. By default ``MONO_STORE_DIGEST``, when it is set.
        environ: the environment.

    Raises:
        StoreMissing: no store is named, or one of them is not there.
        StorePermission, StoreDamaged, StoreFormat, StoreUnsafe: one of them cannot be used.
        StoreDiffers: one of them is not the one that was pinned.
        InvalidValue: the pinned digests are malformed, or not one for each store.
    """
    stores = _stores(paths, environ)
    pins = _pins(digest, environ, len(stores))
    return Layers([_open(store, pin) for store, pin in zip(stores, pins, strict=True)])


def _open(store: Path, pin: str | None) -> StoreReader:
    try:
        # Once, so that a link that is set to another store later does not mix the two.
        path = Path(os.path.realpath(store, strict=True))
    except (FileNotFoundError, NotADirectoryError):
        # Opening it says so.
        path = store
    except OSError as error:
        raise open_error(error, error.filename or store) from error
    if pin is None:
        return StoreReader.open(path, safe=True)
    return StoreReader.pinned(path, pin)


def _stores(paths: Paths | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    if paths is None:
        stores = layered(environ)
    elif isinstance(paths, (str, os.PathLike)):
        stores = (_path(paths),)
    else:
        stores = tuple(_path(path) for path in paths)
    if not stores:
        raise StoreMissing(
            "no store is named",
            fix=f"set {VARIABLE} to the directory of a store (several are separated by colons), or"
            " give its path to open",
        )
    return stores


def _path(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    # An empty text would mean the current directory, which nobody chose.
    if not text or "\0" in text:
        raise InvalidValue(f"no path of a store: {text!r}", fix="give the directory of a store")
    return Path(text)


def _pins(
    digest: str | None, environ: Mapping[str, str], stores: int
) -> tuple[str, ...] | tuple[None, ...]:
    text, where = (
        (environ.get(DIGEST_VARIABLE) or None, DIGEST_VARIABLE)
        if digest is None
        else (digest, "digest")
    )
    if text is None:
        return (None,) * stores
    pins = tuple(checked_digest(part.strip(), where) for part in text.split(","))
    if len(pins) != stores:
        raise InvalidValue(
            f"{len(pins)} digests are pinned for {stores} stores",
            where=where,
            fix="give one sha256 digest for each store, in the order of the stores, separated by commas",
        )
    return pins
