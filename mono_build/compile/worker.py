"""One launch in one process: lock the key, trace, decide, lower, check, and keep the result."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mono_build import elf
from mono_build.compile import direct, extract, failures
from mono_build.compile.job import BUSY, COMPILED, FAILED, REUSED, Job, Outcome
from mono_build.compile.loaded import LoadedFamily
from mono_build.compile.lowered import LoweredLaunch, Signature, TracedLaunch
from mono_build.residency import prove_residency
from mono_build.store.closure import parse_artefact
from mono_build.store.locks import KeyLock, Waiting
from mono_build.store.writer import StoreWriter
from mono_build.targets import devices_for
from mono_runtime.artefact import Artefact
from mono_runtime.canonical import canonical_json, digest_json, digest_of
from mono_runtime.errors import MonoError
from mono_runtime.index import IndexEntry
from mono_runtime.targets import TARGETS

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
# What still acts on a launch after it was traced.
_LOWERING_TOOLS = ("bitcode", "builder", "flydsl", "linker")
# Seconds beyond its own time limit after which a worker whose session died ends itself.
_ORPHAN_GRACE = 60


def build(loaded: LoadedFamily, job: Job) -> Outcome:
    """Build ``job``; every failure becomes an `Outcome`, only the process's death does not."""
    start = time.monotonic()
    try:
        _limit(loaded.context.memory, loaded.context.timeout + job.wait)
        _redirect_output(Path(job.log))
        with StoreWriter(Path(loaded.context.store)) as store:
            outcome = _locked(loaded, job, store)
    except (Exception, SystemExit) as error:
        # Into the launch's log, which standard error is by now.
        traceback.print_exception(error)
        outcome = Outcome(job.key, FAILED, failure=failures.describe(error), log=job.log)
    return _with_usage(outcome, start)


def _locked(loaded: LoadedFamily, job: Job, store: StoreWriter) -> Outcome:
    with _holding(store.path, job.key.digest, job.wait) as holder:
        if holder is not None and not job.wait:
            return Outcome(job.key, BUSY, holder=holder)
        entry = store.lookup(job.key)
        found = direct.examine(store.path, job.key, entry, loaded.current())
        if entry is not None and found.state == "current":
            # Another builder made it while we waited; record it so that our index has it too.
            store.journal.record(entry)
            return Outcome(job.key, REUSED, entry)
        return _trace(loaded, job, store)


@contextmanager
def _holding(store: Path, digest: str, wait: float) -> Iterator[str | None]:
    """The lock of ``digest`` for the body; yields who has it when it could not be had in time."""
    lock = KeyLock(store, digest)
    taken = lock.acquire(timeout=wait, on_wait=_report_wait)
    try:
        holder = None if taken else lock.holder()
        yield None if holder is None else f"process {holder.pid or 'unknown'}"
    finally:
        lock.release()


def _report_wait(waiting: Waiting) -> None:
    who = f"process {waiting.pid or 'unknown'}"
    os.write(1, f"{failures.WAITING} {who} has had the lock, {waiting.waited:.0f} s\n".encode())


@dataclass(slots=True)
class _Decision:
    """Set while FlyDSL is in the middle of its work: what the traced IR turned out to be."""

    ir: str = ""
    inputs: str = ""
    found: Artefact | None = None
    earlier: Artefact | None = None
    lock: KeyLock | None = None
    workspace: Mapping[str, int] = field(default_factory=dict)

    def note(self, built: IndexEntry, store: StoreWriter) -> str:
        """What to say when equal IR gave other bytes than before: the key misses an input."""
        if self.earlier is None or self.found is not None:
            return ""
        artefact = _artefact_of(store, built)
        if artefact is None or artefact.code_objects == self.earlier.code_objects:
            return ""
        before, after = (a.code_objects[0].digest for a in (self.earlier, artefact))
        return f"equal IR and tools gave other bytes than before: {before}, now {after}"


def _trace(loaded: LoadedFamily, job: Job, store: StoreWriter) -> Outcome:
    key, decision = job.key, _Decision()

    def wanted(traced: TracedLaunch) -> bool:
        # All sources have been read once the IR is there.
        inputs = loaded.inputs(key.launch)
        decision.inputs = inputs.digest
        store.put_blob(canonical_json(inputs.to_json()))
        decision.ir = _ir_digest(loaded, traced, names, persistent, decision.workspace)
        decision.lock = KeyLock(store.path, decision.ir)
        # Half of the time is left for compiling it here, if who has it does not come to an end.
        decision.lock.acquire(timeout=loaded.context.timeout / 2, on_wait=_report_wait)
        entry = store.lookup_ir(decision.ir)
        decision.earlier = _artefact_of(store, entry)
        decision.found = decision.earlier if _intact(store, entry) else None
        return decision.found is None

    if loaded.error is not None:
        raise loaded.error
    persistent = _is_persistent(loaded, job)
    launcher = loaded.family.launcher(key)
    names = loaded.compiler.signature(launcher)
    parameters = [p for p in names.parameters if p != names.stream]
    placeholders = loaded.family.placeholders(key, parameters)
    decision.workspace = loaded.family.workspace(key)
    gc.disable()  # A traced launch is a few hundred thousand objects, and the process ends with it.
    try:
        lowered = loaded.compiler.compile_launch(launcher, placeholders, wanted)
        entry = _keep(loaded, job, store, decision, lowered)
    finally:
        if decision.lock:
            decision.lock.release()
    status = REUSED if decision.found else COMPILED
    return Outcome(key, status, entry, traced=True, note=decision.note(entry, store))


def _ir_digest(
    loaded: LoadedFamily,
    traced: TracedLaunch,
    names: Signature,
    persistent: bool,
    workspace: Mapping[str, int],
) -> str:
    """The second level of the key: what decides an artefact once its launch has been traced.

    The IR has no parameter names, does not say whether workgroups wait for each other or how much
    memory they use, and all that is part of the plan. Tools that act while tracing only (torch, Python)
    have done so.
    """
    context = loaded.context
    return digest_json(
        {
            "ir": digest_of(traced.ir.encode()),
            "pipeline": list(traced.pipeline),
            "options": traced.options,
            "parameters": list(names.parameters),
            "stream": names.stream,
            "persistent": persistent,
            "workspace": dict(workspace),
            "arch": context.arch,
            "toolchain": {tool: context.toolchain[tool] for tool in _LOWERING_TOOLS},
            "environment": context.environment,
            "builder": direct.BUILD_FORMAT,
        }
    )


def _artefact_of(store: StoreWriter, entry: IndexEntry | None) -> Artefact | None:
    """The artefact of ``entry`` if it can be read, whatever became of its code objects."""
    if entry is None:
        return None
    try:
        return parse_artefact(store.blob(entry.artefact), entry.artefact)
    except MonoError:
        return None


def _intact(store: StoreWriter, entry: IndexEntry | None) -> bool:
    if entry is None:
        return False
    try:
        store.check(entry)
    except MonoError:
        return False
    return True


def _keep(
    loaded: LoadedFamily,
    job: Job,
    store: StoreWriter,
    decision: _Decision,
    lowered: LoweredLaunch | None,
) -> IndexEntry:
    if decision.found is not None:
        # A fresh build from the present sources would record them, so reuse does too.
        artefact = replace(decision.found, inputs=decision.inputs)
    elif lowered is not None:
        artefact = _artefact(loaded, job, decision, lowered)
    else:
        raise MonoError("the trace ended with neither a result nor a stored equal")
    prove_residency(artefact, devices_for(artefact.arch, loaded.context.devices))
    for _, data in lowered.binaries if lowered else ():
        store.put_blob(data)
    digest = store.put_blob(canonical_json(artefact.to_json()))
    entry = IndexEntry(job.key, digest, decision.ir)
    # A builder that we did not wait for to the end may have kept its own result meanwhile.
    decision.earlier = decision.earlier or _artefact_of(store, store.lookup_ir(decision.ir))
    store.journal.record(entry)
    return entry


def _is_persistent(loaded: LoadedFamily, job: Job) -> bool:
    spec = loaded.family.spec(job.key.launch)
    return spec is not None and spec.persistent


def _artefact(
    loaded: LoadedFamily, job: Job, decision: _Decision, lowered: LoweredLaunch
) -> Artefact:
    target = TARGETS[job.key.arch]
    objects = {name: elf.parse(data) for name, data in lowered.binaries}
    extract.check_objects(objects, target)
    plan = extract.launch_plan(
        lowered,
        objects,
        persistent=_is_persistent(loaded, job),
        workspace=decision.workspace,
    )
    return Artefact(
        ir=decision.ir,
        arch=job.key.arch,
        inputs=decision.inputs,
        plan=plan,
        code_objects=tuple(
            sorted((o.code_object for o in objects.values()), key=lambda c: c.digest)
        ),
    )


def _limit(memory: int, seconds: float) -> None:
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(seconds) + _ORPHAN_GRACE)
    # prctl(2): this worker has nobody to report to once its fork server is gone.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        # If the machine runs out of memory, the kernel shall take the launch, not the session.
        Path("/proc/self/oom_score_adj").write_text("900")
    except OSError:
        return


def _redirect_output(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _with_usage(outcome: Outcome, start: float) -> Outcome:
    mine, linker = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return replace(
        outcome,
        cpu_seconds=sum(u.ru_utime + u.ru_stime for u in (mine, linker)),
        wall_seconds=time.monotonic() - start,
        peak_bytes=mine.ru_maxrss * 1024,
    )
