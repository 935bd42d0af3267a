"""What the coordinator asks of a compile session, and what it hears back: plain data on a pipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from mono_runtime.canonical import Json
from mono_runtime.index import IndexEntry
from mono_runtime.launch_key import LaunchKey

COMPILED, REUSED, FAILED, BUSY = "compiled", "reused", "failed", "busy"


@dataclass(frozen=True, slots=True)
class Job:
    """One launch to build.

    Attributes:
        cost: expected CPU seconds; the longest start first.
        twin: jobs with equal ``twin`` probably give equal IR, so they do not run side by side.
        wait: seconds to wait for another builder that has this key; 0 returns ``busy`` at once.
        log: file that takes the compiler's output.
    """

    key: LaunchKey
    cost: float
    twin: str
    log: str
    wait: float = 0.0

    def to_json(self) -> Json:
        return {**asdict(self), "key": self.key.to_json()}

    @staticmethod
    def from_json(value: Json) -> Job:
        return Job(**{**value, "key": LaunchKey.from_json(value["key"])})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a launch was not built.

    Attributes:
        kind: ``compile``, ``extract``, ``residency``, ``object``, ``died``, ``timeout``, ``memory``,
            ``store`` or ``import``.
        what: FlyDSL's or our own message, short.
        fix: what to do, when we know.
        fatal: whether no other launch can succeed either (a full disk, say).
        abnormal: whether the process died without a word; only then another try makes sense.
    """

    kind: str
    what: str
    fix: str | None = None
    fatal: bool = False
    abnormal: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job.

    Attributes:
        status: ``compiled``, ``reused`` (equal IR was there), ``failed`` or ``busy``.
        entry: the index entry of a built launch.
        traced: whether the kernel was traced.
        cpu_seconds: user and system time of the worker and its linker.
        peak_bytes: largest resident size of the worker.
        holder: who has the lock of a busy key.
        attempts: how often the launch was tried.
        note: something an operator should know of a launch that was built.
    """

    key: LaunchKey
    status: str
    entry: IndexEntry | None = None
    traced: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int = 0
    failure: Failure | None = None
    holder: str = ""
    log: str | None = None
    attempts: int = 1
    note: str = ""

    def to_json(self) -> Json:
        entry = self.entry and [self.entry.artefact, self.entry.ir]
        return {**asdict(self), "key": self.key.to_json(), "entry": entry}

    @staticmethod
    def from_json(value: Json) -> Outcome:
        key = LaunchKey.from_json(value["key"])
        entry = IndexEntry(key, *value["entry"]) if value["entry"] else None
        failure = Failure(**value["failure"]) if value["failure"] else None
        return Outcome(**{**value, "key": key, "entry": entry, "failure": failure})


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Everything a session and its workers need to know; one family and one architecture.

    Attributes:
        arch, family: what it builds.
        store: the store's directory.
        kernel_root: import root of the kernel packages, or None when every job is a launch of our own.
        kernel_facts, helper_facts, toolchain, environment: as `mono_runtime.inputs.Inputs` has them.
        helper_root: directory that holds the ``aiter`` helper modules, or None.
        devices: products that residency is proved for.
        workers: launches at a time.
        timeout: seconds for one launch.
        memory: bytes of data one launch may allocate.
        retries: how often a launch is tried again after its process died.
        fail_fast: stop at the first failure.
    """

    arch: str
    family: str
    store: str
    kernel_root: str | None
    kernel_facts: dict[str, str]
    helper_root: str | None
    helper_facts: dict[str, str]
    toolchain: dict[str, dict[str, str]]
    environment: dict[str, str]
    devices: tuple[str, ...]
    workers: int
    timeout: float
    memory: int
    retries: int
    fail_fast: bool
    jobs: tuple[Job, ...] = field(default=())

    def to_json(self) -> Json:
        return {**asdict(self), "jobs": [j.to_json() for j in self.jobs]}

    @staticmethod
    def from_json(value: Json) -> SessionContext:
        jobs = tuple(Job.from_json(j) for j in value["jobs"])
        return SessionContext(**{**value, "jobs": jobs, "devices": tuple(value["devices"])})
