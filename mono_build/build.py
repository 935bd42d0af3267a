"""A build: what is current stays, what is not goes to compile sessions, and the index comes last."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Protocol

from mono_build.assessment import Assessment, assess
from mono_build.compile.coordinator import Event, SessionDied, run_session
from mono_build.compile.failures import describe
from mono_build.compile.job import FAILED, Failure, Job, Outcome, SessionContext
from mono_build.limits import Limits
from mono_build.plan import BuildPlan
from mono_build.report import BuildReport
from mono_build.store.closure import parse_artefact
from mono_build.store.journal import Journal
from mono_build.store.writer import StoreWriter
from mono_build.toolbox import Toolbox
from mono_runtime.errors import InvalidValue, StoreDamaged, StoreMissing
from mono_runtime.index import Index, IndexEntry
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader


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


def build(
    plan: BuildPlan,
    store: Path,
    toolbox: Toolbox,
    limits: Limits,
    progress: Progress,
    started: float | None = None,
) -> BuildReport:
    """Build ``plan`` into the store; failures are in the report, only fatal errors are raised.

    A store that has everything is only read, so it may be read-only. An interrupt
    (``KeyboardInterrupt``) ends the running launches, publishes the finished ones and returns a
    report with ``interrupted`` set.

    Args:
        started: when the command started (``time.monotonic``), for the report.
    """
    report = BuildReport(planned=len(plan.keys))
    began = time.monotonic() if started is None else started
    index, unreadable = _published(store)
    assessment = assess(store, plan, index.by_key(), toolbox)
    if assessment.stale or unreadable or Journal(store).entries():
        with StoreWriter(store) as writer:
            _Build(plan, writer, toolbox, limits, progress, report).run()
    else:
        _count_current(report, assessment, progress)
        report.index_digest = index.digest
        report.count_objects(artefact for _, artefact in assessment.current.values())
    report.cpu_seconds += _own_cpu()
    report.wall_seconds = time.monotonic() - began
    return report


def _published(store: Path) -> tuple[Index, bool]:
    """The store's index, and whether there is one that cannot be read (it will be replaced)."""
    try:
        return StoreReader.open(store).index, False
    except StoreMissing:
        return Index(), False
    except (StoreDamaged, InvalidValue):
        return Index(), True


class _Build:
    """One build that writes: its finished entries and its report as they grow."""

    def __init__(
        self,
        plan: BuildPlan,
        store: StoreWriter,
        toolbox: Toolbox,
        limits: Limits,
        progress: Progress,
        report: BuildReport,
    ) -> None:
        self._plan, self._store, self._toolbox = plan, store, toolbox
        self._limits, self._progress, self._report = limits, progress, report
        self._finished: dict[LaunchKey, IndexEntry] = {}

    def run(self) -> None:
        """Build what is stale, publish what was finished, and fill the report."""
        if self._store.damage is not None:
            self._progress.note(f"the index is unreadable and is made anew\n{self._store.damage}")
        self._store.recover()
        reader = self._store.current()
        known = reader.index.by_key() if reader else {}
        assessment = assess(self._store.path, self._plan, known, self._toolbox)
        for key, found in assessment.stale.items():
            if found.state == "damaged":
                self._progress.note(f"{key}: damaged in the store, built again\n{found.damage}")
        _count_current(self._report, assessment, self._progress)
        try:
            for event in self._sessions(tuple(assessment.stale)):
                # Counted before it is told, for an interrupt may follow what an operator reads.
                if entry := self._report.count(event):
                    self._finished[entry.key] = entry
                self._progress.event(event)
        except KeyboardInterrupt:
            self._report.interrupted = True
        finally:
            self._progress.end()
            self._publish(bool(known))
        if self._report.interrupted:
            # A launch may have been kept a moment before the session was told to stop.
            self._finished |= {e.key: e for e in self._store.recover()}
            self._publish(bool(known))
        self._sum_up(assessment)

    def _publish(self, known: bool) -> None:
        # An index of nothing would look like a store that was built.
        if self._finished or known:
            self._report.index_digest = self._store.publish(self._finished.values())

    def _sum_up(self, assessment: Assessment) -> None:
        artefacts = [artefact for _, artefact in assessment.current.values()]
        built = [e for k, e in self._finished.items() if k in assessment.stale]
        for digest in {e.artefact for e in built}:
            artefacts.append(parse_artefact(self._store.blob(digest), digest))
        report = self._report
        report.count_objects(artefacts)
        done = len(assessment.current) + len(built) + len(report.failures)
        report.not_started = report.planned - done

    def _sessions(self, keys: tuple[LaunchKey, ...]) -> Iterator[Event]:
        """The events of one session after the other, one for each family and architecture."""
        for (family, arch), group in groupby(keys, key=lambda k: (k.family, k.arch)):
            stopped, failed = False, set[str | None]()
            jobs = self._jobs(family, tuple(group))
            context = self._context(family, arch, jobs)
            try:
                for event in self._session(context):
                    yield event
                    failure = event.outcome.failure if event.outcome else None
                    if event.outcome and failure:
                        failed.add(event.outcome.log)
                        stopped |= failure.fatal or self._limits.fail_fast
            finally:
                for job in jobs:
                    if job.log not in failed:
                        Path(job.log).unlink(missing_ok=True)
            if stopped:
                return

    def _session(self, context: SessionContext) -> Iterator[Event]:
        """The events of one session; if it dies, its other launches fail and the build goes on."""
        left = {job.key: job for job in context.jobs}
        logs = self._toolbox.logs
        try:
            with (
                self._toolbox.environment(context.family, context.arch) as environment,
                closing(run_session(context, environment, logs)) as events,
            ):
                for event in events:
                    if event.outcome:
                        left.pop(event.outcome.key, None)
                    yield event
        except SessionDied as error:
            failure = Failure("died", error.what, error.fix)
            for key in left:
                yield Event("done", key, Outcome(key, FAILED, failure=failure, log=error.where))

    def _jobs(self, family: str, keys: tuple[LaunchKey, ...]) -> tuple[Job, ...]:
        known = self._toolbox.family(family)
        return tuple(
            Job(key, known.cost(key), known.twin(key), str(self._toolbox.log_file(key)))
            for key in keys
        )

    def _context(self, family: str, arch: str, jobs: tuple[Job, ...]) -> SessionContext:
        facts, limits = self._toolbox.facts(family, [job.key for job in jobs]), self._limits
        return SessionContext(
            arch=arch,
            family=family,
            store=str(self._store.path.absolute()),
            kernel_root=facts.kernel_root,
            kernel_facts=facts.kernel_facts,
            helper_root=facts.helper_root,
            helper_facts=facts.helper_facts,
            toolchain=facts.toolchain,
            environment=facts.environment,
            devices=self._toolbox.devices,
            workers=min(limits.workers, len(jobs)),
            timeout=limits.timeout,
            memory=limits.memory,
            retries=limits.retries,
            fail_fast=limits.fail_fast,
            jobs=jobs,
        )


def _count_current(report: BuildReport, assessment: Assessment, progress: Progress) -> None:
    report.reused = len(assessment.current)
    report.failures += [
        Outcome(key, FAILED, failure=describe(error)) for key, error in assessment.refused.items()
    ]
    progress.begin(report.planned, report.reused)


def _own_cpu() -> float:
    # The fork servers are no children of ours and report for themselves; all else is waited for.
    mine, waited = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in (mine, waited))
