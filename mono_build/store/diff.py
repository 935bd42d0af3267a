"""Comparing two stores: which launches differ, and because of which inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache

from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

# What was counted when a launch with these code objects ran, by name; None when nothing was.
Counted = Callable[[LaunchKey, tuple[str, ...]], Mapping[str, Json] | None]


@dataclass(frozen=True, slots=True)
class Change:
    """One value that differs; None on the side where it is absent.

    Attributes:
        section: ``sources``, ``toolchain``, ``environment``, ``kernels``, ``helpers`` or
            ``builder`` of the inputs; ``plan``; ``resources``; ``counts``.
        name: the source's path, ``linker.sha256``, ``dispatches[0].grid[1]``, ``KERNEL.vgpr`` ...
    """

    section: str
    name: str
    a: Json
    b: Json


@dataclass(frozen=True, slots=True)
class LaunchDiff:
    """One launch that both stores have and that differs.

    Attributes:
        same_ir: whether it was made from the same IR by the same toolchain.
        same_machine_code: whether instructions and kernel descriptors are equal.
        code_objects: digests in a and in b; None when they are equal.
        counts: where both were executed, what was counted differently.
    """

    key: LaunchKey
    same_ir: bool
    same_machine_code: bool
    code_objects: tuple[tuple[str, ...], tuple[str, ...]] | None
    inputs: tuple[Change, ...]
    plan: tuple[Change, ...]
    resources: tuple[Change, ...]
    counts: tuple[Change, ...] = ()

    def to_json(self) -> Json:
        return {
            "key": self.key.to_json(),
            "same_ir": self.same_ir,
            "same_machine_code": self.same_machine_code,
            "code_objects": None
            if self.code_objects is None
            else {"a": list(self.code_objects[0]), "b": list(self.code_objects[1])},
            "inputs": [asdict(c) for c in self.inputs],
            "plan": [asdict(c) for c in self.plan],
            "resources": [asdict(c) for c in self.resources],
            "counts": [asdict(c) for c in self.counts],
        }


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """Two stores, a and b, each list in key order; ``same`` counts launches that are equal."""

    only_a: tuple[LaunchKey, ...]
    only_b: tuple[LaunchKey, ...]
    changed: tuple[LaunchDiff, ...]
    same: int

    @property
    def equal(self) -> bool:
        """Whether both stores hold the same launches, made from the same inputs."""
        return not (self.only_a or self.only_b or self.changed)

    def to_json(self) -> Json:
        return {
            "equal": self.equal,
            "only_a": [k.to_json() for k in self.only_a],
            "only_b": [k.to_json() for k in self.only_b],
            "changed": [c.to_json() for c in self.changed],
            "same": self.same,
        }


def diff(a: StoreReader, b: StoreReader, counted: Counted | None = None) -> StoreDiff:
    """Compare the current indexes of two stores; a damaged blob raises `StoreDamaged`.

    Args:
        counted: what executions of both sides' launches counted, if that is to be compared too.
    """
    left, right = _by_digest(a), _by_digest(b)
    changed = []
    side_a, side_b = _Side(a), _Side(b)
    for digest, entry in left.items():
        other = right.get(digest)
        if other is not None and entry.artefact != other.artefact:
            changed.append(_launch(entry, other, side_a, side_b, counted))
    return StoreDiff(
        only_a=tuple(e.key for d, e in left.items() if d not in right),
        only_b=tuple(e.key for d, e in right.items() if d not in left),
        changed=tuple(changed),
        same=len(left.keys() & right.keys()) - len(changed),
    )


class _Side:
    """One store's artefacts and inputs, each read once: launches share them."""

    def __init__(self, reader: StoreReader) -> None:
        self.artefact = cache(reader.artefact)
        self.inputs = cache(reader.inputs)


def _by_digest(reader: StoreReader) -> dict[str, IndexEntry]:
    return {e.key.digest: e for e in reader.index.entries}


def _launch(
    entry: IndexEntry, other: IndexEntry, side_a: _Side, side_b: _Side, counted: Counted | None
) -> LaunchDiff:
    a, b = side_a.artefact(entry.artefact), side_b.artefact(other.artefact)
    objects = tuple(c.digest for c in a.code_objects), tuple(c.digest for c in b.code_objects)
    inputs: tuple[Change, ...] = ()
    if a.inputs != b.inputs:
        inputs = inputs_changes(side_a.inputs(a.inputs), side_b.inputs(b.inputs))
    return LaunchDiff(
        key=entry.key,
        same_ir=entry.ir == other.ir,
        same_machine_code=_machine_codes(a) == _machine_codes(b),
        code_objects=None if objects[0] == objects[1] else objects,
        inputs=inputs,
        plan=_changes("plan", dict(_plan(a)), dict(_plan(b))),
        resources=_changes("resources", dict(_resources(a)), dict(_resources(b))),
        counts=_counts(entry.key, objects, counted) if counted else (),
    )


def _counts(
    key: LaunchKey, objects: tuple[tuple[str, ...], tuple[str, ...]], counted: Counted
) -> tuple[Change, ...]:
    a, b = (counted(key, side) for side in objects)
    if a is None or b is None:
        return ()
    return _changes("counts", dict(a), dict(b))


def inputs_changes(a: Inputs, b: Inputs) -> tuple[Change, ...]:
    """Every source file, tool fact, variable and kernel fact in which two sets of inputs differ."""
    old, new = a.to_json(), b.to_json()
    found: list[Change] = []
    for section in ("sources", "kernels", "helpers", "environment"):
        found += _changes(section, old[section], new[section])
    tools = [
        {f"{t}.{n}": v for t, facts in side["toolchain"].items() for n, v in facts.items()}
        for side in (old, new)
    ]
    found += _changes("toolchain", *tools)
    found += _changes("builder", {"format": a.builder}, {"format": b.builder})
    return tuple(found)


def _changes(section: str, a: dict[str, Json], b: dict[str, Json]) -> tuple[Change, ...]:
    return tuple(
        Change(section, name, a.get(name), b.get(name))
        for name in [*a, *(n for n in b if n not in a)]
        if a.get(name) != b.get(name)
    )


def _machine_codes(artefact: Artefact) -> list[str]:
    return [c.machine_code for c in artefact.code_objects]


def _plan(artefact: Artefact) -> Iterator[tuple[str, Json]]:
    # Objects by position: their digests differ whenever any instruction does, which is said elsewhere.
    position = {c.digest: i for i, c in enumerate(artefact.code_objects)}
    plan = artefact.plan.to_json()
    for dispatch in plan["dispatches"]:
        dispatch["code_object"] = position[dispatch["code_object"]]
    return _flat("", plan)


def _flat(name: str, value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else key, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flat(f"{name}[{position}]", item)
    else:
        yield name, value


def _resources(artefact: Artefact) -> Iterator[tuple[str, Json]]:
    many = len(artefact.code_objects) > 1
    for position, code in enumerate(artefact.code_objects):
        # Two objects of one launch may use the same symbol.
        prefix = f"code_objects[{position}]." if many else ""
        yield f"{prefix}size", code.size
        yield f"{prefix}text_size", code.text_size
        for kernel in code.kernels:
            for name, figure in asdict(kernel).items():
                if name != "symbol":
                    yield f"{prefix}{kernel.symbol}.{name}", figure
