"""Finished launches whose index entry is not published yet: what a killed builder leaves to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mono_build.store.errors import writing
from mono_build.store.files import own_directory, replace_file
from mono_build.store.locks import BUILDER, BY_KEY, JOURNAL, STAGING
from mono_runtime.canonical import Json, canonical_json, checked_digest
from mono_runtime.errors import InvalidValue, MonoError
from mono_runtime.files import read_regular
from mono_runtime.index import IndexEntry
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import parse_json

_SCHEMA = 1


class Journal:
    """One small file a launch key and one an IR, in ``<store>/.builder/journal``.

    A file that is no entry, or is filed under a wrong name, is removed and counts as absent.
    """

    def __init__(self, store: Path) -> None:
        self._staging = store / BUILDER / STAGING
        self._keys = store / BUILDER / JOURNAL / BY_KEY
        self._irs = store / BUILDER / JOURNAL / "irs"

    def record(self, entry: IndexEntry) -> None:
        """Keep ``entry``; its blobs must be in the store already."""
        data = canonical_json({"schema": _SCHEMA, "entry": _entry_to_json(entry)})
        with writing(self._keys):
            for path in (self._key_path(entry.key), self._ir_path(entry.ir)):
                own_directory(path.parent)
                replace_file(self._staging, path, data)

    def by_key(self, key: LaunchKey) -> IndexEntry | None:
        """The finished launch of this key, if one waits for publication."""
        entry = _read(self._key_path(key))
        return entry if entry is not None and entry.key.digest == key.digest else None

    def by_ir(self, ir: str) -> IndexEntry | None:
        """A finished launch that was made from this IR, if one waits for publication."""
        entry = _read(self._ir_path(ir))
        return entry if entry is not None and entry.ir == ir else None

    def entries(self) -> tuple[IndexEntry, ...]:
        """Every finished launch that waits for publication, sorted by key."""
        found = [e for path in _files(self._keys) if (e := _read(path)) and self._is_at(e, path)]
        return tuple(sorted(found, key=lambda e: e.key.sort_key))

    def clear(self, published: Iterable[IndexEntry]) -> None:
        """Forget ``published``; an entry that was replaced meanwhile stays."""
        for entry in published:
            for path in (self._key_path(entry.key), self._ir_path(entry.ir)):
                if _read(path) == entry:
                    path.unlink(missing_ok=True)

    def _key_path(self, key: LaunchKey) -> Path:
        return self._keys / key.digest.removeprefix("sha256:")

    def _ir_path(self, ir: str) -> Path:
        return self._irs / checked_digest(ir, "journal").removeprefix("sha256:")

    def _is_at(self, entry: IndexEntry, path: Path) -> bool:
        if self._key_path(entry.key) == path:
            return True
        _discard(path)
        return False


def _files(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(directory.iterdir())


def _read(path: Path) -> IndexEntry | None:
    try:
        data = read_regular(path)
    except MonoError:
        return None
    try:
        return _entry_from_json(parse_json(data, str(path)))
    except MonoError:
        _discard(path)
        return None


def _discard(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _entry_to_json(entry: IndexEntry) -> Json:
    return {"key": entry.key.to_json(), "artefact": entry.artefact, "ir": entry.ir}


def _entry_from_json(value: Json) -> IndexEntry:
    try:
        if value["schema"] != _SCHEMA:
            raise InvalidValue(f"journal schema {value['schema']!r}, not {_SCHEMA}")
        entry = value["entry"]
        return IndexEntry(
            LaunchKey.from_json(entry["key"]),
            checked_digest(entry["artefact"], "journal"),
            checked_digest(entry["ir"], "journal"),
        )
    except (KeyError, TypeError) as error:
        raise InvalidValue(f"not a journal entry: {error!r}") from error
