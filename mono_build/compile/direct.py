"""The direct key: is what the store has of a launch still what this build would make? No FlyDSL needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from mono_build.store.closure import parse_artefact
from mono_runtime.artefact import Artefact
from mono_runtime.errors import InvalidValue, StoreError
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs, Pairs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import parse_json, read_blob

# Raised with every change of the build that can change bytes for equal inputs.
BUILD_FORMAT = 3

HashSources = Callable[[Iterable[str]], Pairs]


@dataclass(frozen=True, slots=True)
class Difference:
    """One input that changed: its kind, its name, and both values (None where there was none)."""

    kind: str
    name: str
    recorded: str | None
    current: str | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """What became of one launch key in the store.

    Attributes:
        state: ``absent``, ``current``, ``changed`` (inputs differ) or ``damaged``.
        artefact: the stored artefact, when it is current.
        differences: what changed.
        damage: what is wrong with the stored bytes.
    """

    state: str
    artefact: Artefact | None = None
    differences: tuple[Difference, ...] = ()
    damage: str = ""


@dataclass(slots=True)
class Current:
    """What a build that starts now would read; recorded file lists are hashed anew, each file once.

    Attributes:
        toolchain, environment: as `Inputs` has them.
        hash_sources: gives (path, sha256) of import paths as they are now.
    """

    toolchain: tuple[tuple[str, Pairs], ...]
    environment: Pairs
    hash_sources: HashSources
    _pairs: dict[tuple[Path, str], tuple[Inputs, Inputs]] = field(default_factory=dict)

    def beside(self, store: Path, digest: str) -> tuple[Inputs, Inputs]:
        """The recorded inputs of this digest, and the same list of inputs as it is now."""
        known = self._pairs.get((store, digest))
        if known is None:
            recorded = Inputs.from_json(parse_json(read_blob(store, digest), digest))
            now = replace(
                recorded,
                sources=self.hash_sources(path for path, _ in recorded.sources),
                toolchain=self.toolchain,
                environment=self.environment,
                builder=BUILD_FORMAT,
            )
            known = self._pairs[(store, digest)] = (recorded, now)
        return known


def examine(store: Path, key: LaunchKey, entry: IndexEntry | None, current: Current) -> Freshness:
    """Whether ``entry`` can be used as it is; every byte that would be reused is verified."""
    if entry is None:
        return Freshness("absent")
    try:
        artefact = parse_artefact(read_blob(store, entry.artefact), entry.artefact)
        recorded, now = current.beside(store, artefact.inputs)
        for code_object in artefact.code_objects:
            read_blob(store, code_object.digest)
    except (StoreError, InvalidValue) as error:
        return Freshness("damaged", damage=str(error))
    if recorded.direct_key(key.digest) == now.direct_key(key.digest):
        return Freshness("current", artefact)
    return Freshness("changed", differences=tuple(differences(recorded, now)))


def differences(recorded: Inputs, now: Inputs) -> Iterable[Difference]:
    """Every input that decides bytes and differs, by kind and name."""
    yield from _compare("source", recorded.sources, now.sources)
    before, after = dict(recorded.toolchain), dict(now.toolchain)
    for tool in sorted(before.keys() | after.keys()):
        yield from _compare(f"toolchain {tool}", before.get(tool, ()), after.get(tool, ()))
    yield from _compare("environment", recorded.environment, now.environment)
    if recorded.builder != now.builder:
        yield Difference("format", "builder", str(recorded.builder), str(now.builder))


def _compare(kind: str, recorded: Pairs, current: Pairs) -> Iterable[Difference]:
    before, after = dict(recorded), dict(current)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield Difference(kind, name, before.get(name), after.get(name))
