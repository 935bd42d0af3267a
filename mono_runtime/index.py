"""The index: launch key -> artefact. The only file of a store that a server has to read first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mono_runtime.canonical import (
    Json,
    canonical_json,
    checked_digest,
    checked_schema,
    digest_of,
)
from mono_runtime.errors import InvalidValue
from mono_runtime.launch_key import LaunchKey

INDEX_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One launch key and the digests of its artefact and of the IR it was made from."""

    key: LaunchKey
    artefact: str
    ir: str


@dataclass(frozen=True, slots=True)
class Index:
    """Entries sorted by launch key; equal entries always give equal bytes."""

    entries: tuple[IndexEntry, ...] = ()

    @staticmethod
    def of(entries: Iterable[IndexEntry]) -> Index:
        """An index of ``entries``; of two with one key the later wins."""
        by_key = {e.key: e for e in entries}
        return Index(tuple(sorted(by_key.values(), key=lambda e: e.key.sort_key)))

    def updated(self, entries: Iterable[IndexEntry]) -> Index:
        """This index with ``entries`` added or replaced."""
        return Index.of([*self.entries, *entries])

    def by_key(self) -> dict[LaunchKey, IndexEntry]:
        """The entries by launch key."""
        return {e.key: e for e in self.entries}

    @property
    def data(self) -> bytes:
        """The bytes of the index blob."""
        return canonical_json(
            {
                "schema": INDEX_SCHEMA,
                "entries": [
                    {"key": e.key.to_json(), "artefact": e.artefact, "ir": e.ir}
                    for e in self.entries
                ],
            }
        )

    @property
    def digest(self) -> str:
        """The digest that a server may pin."""
        return digest_of(self.data)

    @staticmethod
    def from_json(value: Json) -> Index:
        """The index that `data` wrote; anything else raises `InvalidValue`.

        Raises:
            StoreFormat: it was written in another version of the format.
        """
        checked_schema(value, "index", INDEX_SCHEMA)
        try:
            return Index.of(
                [
                    IndexEntry(
                        LaunchKey.from_json(e["key"]),
                        checked_digest(e["artefact"], "index"),
                        checked_digest(e["ir"], "index"),
                    )
                    for e in value["entries"]
                ]
            )
        except (KeyError, TypeError) as error:
            raise InvalidValue(f"not an index: {error!r}") from error
