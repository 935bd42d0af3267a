"""A build: what is current stays, what is not goes to compile sessions, and the index comes last."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from mono_build.compile import direct
from mono_build.compile.coordinator import Event, run_session
from mono_build.compile.job import COMPILED, REUSED, Job, Outcome, SessionContext
from mono_build.families.base import Family
from mono_build.plan import BuildPlan
from mono_build.store.writer import StoreWriter
from mono_build.toolbox import Toolbox
from mono_runtime.artefact import Artefact
from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError
from mono_runtime.index import IndexEntry
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import parse_json


class Interrupted(MonoError):
    """The build was stopped by the operator; what was finished is in the store."""

    exit_code = 130


class Progress(Protocol):
    """What a build tells while it runs. The command line shows it; tests collect it."""

    def begin(self, total: int, reused: int) -> None:
        """``total`` launches are planned, ``reused`` of them are current already."""

    def event(self, event: Event) -> None:
        """A session reported ``event``."""

    def note(self, text: str) -> None:
        """Something an operator should know."""

    def end(self) -> None:
        """Nothing more will be reported."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a build may use.

    Attributes:
        workers: launches at a time.
        timeout: seconds for one launch.
        memory: bytes of data that one launch may allocate; 0 sets no limit.
        retries: how often a launch is tried again when its process died.
        fail_fast: stop at the first failure instead of building the rest.
    """

    workers: int
    timeout: float = 900.0
    memory: int = 8 << 30
    retries: int = 1
    fail_fast: bool = False


@dataclass(slots=True)
class BuildReport:
    """The counts of one build; ``not_started`` are launches that a stop left out."""

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
            "failures": [o.to_json() for o in self.failures],
        }


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the store has for a plan: the usable entries, and why each other key is not one."""

    current: dict[LaunchKey, IndexEntry]
    stale: dict[LaunchKey, direct.Freshness]


def assess(
    store: Path, plan: BuildPlan, entries: dict[LaunchKey, IndexEntry], toolbox: Toolbox
) -> Assessment:
    """Compare every planned key with the store by its direct key; no FlyDSL, no trace."""
    current: dict[LaunchKey, IndexEntry] = {}
    stale: dict[LaunchKey, direct.Freshness] = {}
    for key in plan.keys:
        entry = entries.get(key)
        found = direct.examine(store, key, entry, toolbox.current(key.family))
        if found.state == "current" and entry is not None:
            current[key] = entry
        else:
            stale[key] = found
    return Assessment(current, stale)


def build(
    plan: BuildPlan, store_path: Path, toolbox: Toolbox, limits: Limits, progress: Progress
) -> BuildReport:
    """Build ``plan`` into the store; failures are in the report, only fatal errors are raised.

    ``cpu_seconds`` counts the whole process so far, its start included, and every session.
    An interrupt (``KeyboardInterrupt``) ends the running launches, publishes the finished ones and
    returns a report with ``interrupted`` set.
    """
    start = time.monotonic()
    report = BuildReport(planned=len(plan.keys))
    with StoreWriter(store_path) as store:
        store.recover()
        reader = store.current()
        known = reader.index.by_key() if reader else {}
        assessment = assess(store_path, plan, known, toolbox)
        report.reused = len(assessment.current)
        _report_damage(assessment, progress)
        progress.begin(len(plan.keys), report.reused)
        finished: list[IndexEntry] = []
        try:
            for event in _sessions(tuple(assessment.stale), store_path, toolbox, limits):
                progress.event(event)
                _count(report, finished, event)
        except KeyboardInterrupt:
            report.interrupted = True
        finally:
            progress.end()
            report.index_digest = _publish(store, finished, known)
        if report.interrupted:
            # A launch may have been kept a moment before the session was told to stop.
            finished += store.recover()
            report.index_digest = _publish(store, finished, known)
        built = {e.key: e for e in finished}
        done = {k: e for k in plan.keys if (e := built.get(k) or assessment.current.get(k))}
        report.not_started = len(plan.keys) - len(done) - len(report.failures)
        _count_objects(report, store, done.values())
    report.cpu_seconds += _own_cpu()
    report.wall_seconds = time.monotonic() - start
    return report


def _report_damage(assessment: Assessment, progress: Progress) -> None:
    for key, found in assessment.stale.items():
        if found.state == "damaged":
            progress.note(f"{key}: damaged in the store, building it again\n{found.damage}")


def _publish(
    store: StoreWriter, finished: list[IndexEntry], known: dict[LaunchKey, IndexEntry]
) -> str:
    if not finished and not known:
        # An index of nothing would look like a store that was built.
        return ""
    digest = store.publish(finished)
    store.journal.clear(finished)
    return digest


def _sessions(
    keys: tuple[LaunchKey, ...], store: Path, toolbox: Toolbox, limits: Limits
) -> Iterator[Event]:
    """The events of one session after the other, a session for each family and architecture."""
    for (family, arch), group in groupby(keys, key=lambda k: (k.family, k.arch)):
        stopped, failed = False, set[str | None]()
        jobs = _jobs(toolbox.family(family), tuple(group), toolbox)
        context = _context(family, arch, jobs, store, toolbox, limits)
        with toolbox.environment(family, arch) as environment:
            events = run_session(context, environment, toolbox.logs)
            with closing(events):
                for event in events:
                    yield event
                    failure = event.outcome.failure if event.outcome else None
                    if event.outcome and failure:
                        failed.add(event.outcome.log)
                        stopped |= failure.fatal or limits.fail_fast
        for job in jobs:
            if job.log not in failed:
                Path(job.log).unlink(missing_ok=True)
        if stopped:
            return


def _jobs(family: Family, keys: tuple[LaunchKey, ...], toolbox: Toolbox) -> tuple[Job, ...]:
    return tuple(
        Job(key, family.cost(key), family.twin(key), str(toolbox.log_file(key))) for key in keys
    )


def _context(
    family: str, arch: str, jobs: tuple[Job, ...], store: Path, toolbox: Toolbox, limits: Limits
) -> SessionContext:
    facts = toolbox.facts(family)
    return SessionContext(
        arch=arch,
        family=family,
        store=str(store.absolute()),
        kernel_root=facts.kernel_root,
        kernel_facts=facts.kernel_facts,
        helper_root=facts.helper_root,
        helper_facts=facts.helper_facts,
        toolchain=facts.toolchain,
        environment=facts.environment,
        devices=toolbox.devices,
        workers=min(limits.workers, len(jobs)),
        timeout=limits.timeout,
        memory=limits.memory,
        retries=limits.retries,
        fail_fast=limits.fail_fast,
        jobs=jobs,
    )


def _count(report: BuildReport, finished: list[IndexEntry], event: Event) -> None:
    if event.kind == "end":
        report.cpu_seconds += event.seconds
    outcome = event.outcome
    if outcome is None:
        return
    report.traced += outcome.traced
    report.peak_bytes = max(report.peak_bytes, outcome.peak_bytes)
    if outcome.entry is None:
        report.failures.append(outcome)
        return
    finished.append(outcome.entry)
    report.compiled += outcome.status == COMPILED
    report.reused += outcome.status == REUSED


def _count_objects(report: BuildReport, store: StoreWriter, entries: Iterable[IndexEntry]) -> None:
    objects: set[str] = set()
    codes: set[str] = set()
    for digest in {e.artefact for e in entries}:
        artefact = Artefact.from_json(parse_json(store.blob(digest), digest))
        objects |= {c.digest for c in artefact.code_objects}
        codes |= {c.machine_code for c in artefact.code_objects}
    report.code_objects, report.machine_codes = len(objects), len(codes)


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
