"""The counts of one build, as it goes on and as it is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from mono_build.compile.coordinator import Event
from mono_build.compile.job import COMPILED, REUSED, Outcome
from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json
from mono_runtime.index import IndexEntry


@dataclass(slots=True)
class BuildReport:
    """What a build did.

    Attributes:
        planned: launch keys asked for.
        traced: launches whose kernel was traced.
        compiled: launches that were lowered to code.
        reused: launches that were current, or whose equal IR was there.
        not_started: launches that a stop left out.
        code_objects, machine_codes: distinct ones of everything planned that the store now has.
        cpu_seconds: user and system time of every process of the build.
        wall_seconds: time since the command started.
        peak_bytes: largest resident size of a worker.
        index_digest: what a server may pin; empty when nothing was ever published.
        interrupted: whether Ctrl-C or SIGTERM ended it; then launches may be ``not_started``.
    """

    planned: int = 0
    traced: int = 0
    compiled: int = 0
    reused: int = 0
    failures: list[Outcome] = field(default_factory=list)
    not_started: int = 0
    code_objects: int = 0
    machine_codes: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int = 0
    index_digest: str = ""
    interrupted: bool = False

    def count(self, event: Event) -> IndexEntry | None:
        """Take note of a session's event; the index entry of a launch that was finished by it."""
        if event.kind == "end":
            self.cpu_seconds += event.seconds
        outcome = event.outcome
        if outcome is None:
            return None
        self.traced += outcome.traced
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)
        self.compiled += outcome.status == COMPILED
        self.reused += outcome.status == REUSED
        if outcome.entry is None:
            self.failures.append(outcome)
        return outcome.entry

    def count_objects(self, artefacts: Iterable[Artefact]) -> None:
        """Count what the launches share."""
        objects = {c.digest: c.machine_code for a in artefacts for c in a.code_objects}
        self.code_objects, self.machine_codes = len(objects), len(set(objects.values()))

    def to_json(self) -> Json:
        return {
            "planned": self.planned,
            "traced": self.traced,
            "compiled": self.compiled,
            "reused": self.reused,
            "failed": len(self.failures),
            "not_started": self.not_started,
            "code_objects": self.code_objects,
            "machine_codes": self.machine_codes,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "peak_bytes": self.peak_bytes,
            "index_digest": self.index_digest,
            "interrupted": self.interrupted,
            "failures": [failure_to_json(o) for o in self.failures],
        }


def failure_to_json(outcome: Outcome) -> Json:
    """A launch that was not built, as reports have it: nothing that only a built launch has."""
    return {
        "key": outcome.key.to_json(),
        "key_digest": outcome.key.digest,
        "status": outcome.status,
        "failure": outcome.failure and asdict(outcome.failure),
        "log": outcome.log,
        "attempts": outcome.attempts,
        "traced": outcome.traced,
        "cpu_seconds": round(outcome.cpu_seconds, 3),
        "wall_seconds": round(outcome.wall_seconds, 3),
        "peak_bytes": outcome.peak_bytes,
        "holder": outcome.holder,
        "note": outcome.note,
    }
