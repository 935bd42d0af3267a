"""Everything a build needs besides the plan, located once: tools, kernel sources, helpers, logs."""

from __future__ import annotations

import os
import site
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mono_build.compile.direct import Current
from mono_build.families.base import Family
from mono_build.families.registry import family as find_family
from mono_build.own_kernels import ROOT
from mono_build.sources import (
    FileDigests,
    HelperModules,
    KernelSource,
    SourceRoots,
    cache_directory,
    check_packages,
    current_sources,
    find_helpers,
    resolve_kernels,
)
from mono_build.sources.fetch import pip_download
from mono_build.toolchain import (
    Toolchain,
    code_environment,
    identify,
    toolkit,
    worker_environment,
)
from mono_build.toolchain.hashing import tree_digest
from mono_build.toolchain.packages import project_entries
from mono_runtime.inputs import Pairs, pairs
from mono_runtime.launch_key import LaunchKey

# The distribution of the built-in families; ``--kernels`` says where it comes from.
ENGINE = "vllm"
_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
# Our code whose change can change an artefact. What only reads a store or loads from it is left out.
DECIDING = (
    "mono_build/compile/*.py",
    "mono_build/families/*.py",
    "mono_build/elf.py",
    "mono_runtime/arch.py",
    "mono_runtime/artefact.py",
    "mono_runtime/canonical.py",
    "mono_runtime/expressions.py",
    "mono_runtime/families/*.py",
    "mono_runtime/inputs.py",
    "mono_runtime/launch_key.py",
    "mono_runtime/launch_plan.py",
    "mono_runtime/occupancy.py",
    "mono_runtime/targets.py",
)


@dataclass(frozen=True, slots=True)
class FamilyFacts:
    """What a compile session is told of its family's surroundings; see `SessionContext`."""

    kernel_root: str | None
    kernel_facts: dict[str, str]
    helper_root: str | None
    helper_facts: dict[str, str]
    toolchain: dict[str, dict[str, str]]
    environment: dict[str, str]


@dataclass(slots=True)
class Toolbox:
    """The tools of one build.

    Attributes:
        tools: FlyDSL, linker, bitcode and Python, as they are found (`identify_meanwhile`).
        kernels: what ``--kernels`` said, or None for the default.
        devices: products that residency is proved for.
        environ: the environment of the command.
        report: gets a line for what takes long, such as fetching a wheel.
    """

    tools: Future[Toolchain]
    kernels: str | None
    devices: tuple[str, ...]
    environ: Mapping[str, str]
    report: Callable[[str], None]
    _sources: dict[str, KernelSource] = field(default_factory=dict)
    _helpers: HelperModules | None = None
    _currents: dict[tuple[str, bool], Current] = field(default_factory=dict)
    _digests: FileDigests = field(default_factory=FileDigests)
    _logs: Path | None = None

    def family(self, name: str) -> Family:
        """The family of this name."""
        return find_family(name)

    def source(self, name: str) -> KernelSource:
        """Where the kernels of a family come from; fetched when that was asked for."""
        family = self.family(name)
        source = self._sources.get(family.source)
        if source is None:
            spec = self.kernels if family.source == ENGINE else None
            source = resolve_kernels(
                spec,
                self.environ,
                package=family.source,
                fetch=self._fetch,
                report=self.report,
            )
            self._sources[family.source] = source
        check_packages(source, family.packages)
        return source

    def _fetch(self, requirement: str, directory: Path) -> None:
        # Nobody should wait for a download to learn that there is no compiler.
        self.tools.result()
        pip_download(requirement, directory)

    @property
    def toolchain(self) -> Toolchain:
        """The tools; waits for them, and raises what is wrong with them."""
        return self.tools.result()

    def helpers(self, name: str) -> HelperModules | None:
        """Who gives a family AITER's helper modules; None when it needs none."""
        if not self.family(name).needs_aiter:
            return None
        self._helpers = self._helpers or find_helpers()
        return self._helpers

    def toolchain_facts(self) -> tuple[tuple[str, Pairs], ...]:
        """The tools of `Inputs.toolchain`, this project's own code among them."""
        return tuple(sorted([*self.toolchain.facts(), ("builder", _builder_facts())]))

    def code_environment(self, name: str) -> dict[str, str]:
        """The variables that are set and change a family's code."""
        return code_environment(self.environ, self.family(name).environment)

    def needs_source(self, keys: Iterable[LaunchKey]) -> bool:
        """Whether one of these launches, of one family, is not this project's own."""
        return any(not self.family(key.family).own_modules(key.launch) for key in keys)

    def current(self, key: LaunchKey) -> Current:
        """What a build of this launch would read now."""
        name, own = key.family, not self.needs_source([key])
        if (name, own) not in self._currents:
            roots = SourceRoots(ROOT, ()) if own else self._roots(name)
            self._currents[name, own] = Current(
                self.toolchain_facts(),
                pairs(self.code_environment(name)),
                lambda paths: current_sources(paths, roots, self._digests),
            )
        return self._currents[name, own]

    def _roots(self, name: str) -> SourceRoots:
        helpers = self.helpers(name)
        root = self.source(name).root
        return SourceRoots(root, self.family(name).packages, helpers.root if helpers else None)

    def facts(self, name: str, keys: Iterable[LaunchKey]) -> FamilyFacts:
        """What a compile session of this family is told that makes these launches of it."""
        needed = self.needs_source(keys)
        source, helpers = (self.source(name), self.helpers(name)) if needed else (None, None)
        return FamilyFacts(
            kernel_root=str(source.root) if source else None,
            kernel_facts=dict(source.facts()) if source else {},
            helper_root=str(helpers.root) if helpers else None,
            helper_facts=dict(helpers.facts()) if helpers else {},
            toolchain={tool: dict(facts) for tool, facts in self.toolchain_facts()},
            environment=self.code_environment(name),
        )

    @contextmanager
    def environment(self, name: str, arch: str) -> Iterator[dict[str, str]]:
        """The whole environment of a compile session, with a private toolkit that lives as long."""
        allowed = self.family(name).environment
        with toolkit(self.toolchain.linker, self.toolchain.bitcode) as root:
            made = worker_environment(arch, root, self.environ, allowed)
            # The session runs elsewhere, and this project need not be installed.
            named = made["PYTHONPATH"].split(os.pathsep) if made.get("PYTHONPATH") else []
            installed = [*site.getsitepackages(), site.getusersitepackages()]
            paths = [*project_entries([*named, *installed]), *named]
            yield {**made, "PYTHONPATH": os.pathsep.join(paths)}

    @property
    def logs(self) -> Path:
        """The directory for compile logs, in the user's cache."""
        if self._logs is None:
            self._logs = _log_directory(cache_directory(self.environ, self.report))
        return self._logs

    def log_file(self, key: LaunchKey) -> Path:
        """Where the compiler's output of one launch goes."""
        short = key.digest.removeprefix("sha256:")[:12]
        return self.logs / f"{key.family}-{key.launch}-{key.arch}-{short}-{os.getpid()}.log"


def identify_meanwhile(environ: Mapping[str, str]) -> Future[Toolchain]:
    """Start to find and digest the tools, hundreds of megabytes, beside whatever is done first."""
    pool = ThreadPoolExecutor(max_workers=1)
    found = pool.submit(identify, environ)
    pool.shutdown(wait=False)
    return found


@cache
def _builder_facts() -> Pairs:
    """The digest of our modules that decide what is kept of a launch; of no other release's number."""
    chosen = [p for pattern in DECIDING for p in _PACKAGE_ROOT.glob(pattern)]
    files = {p.relative_to(_PACKAGE_ROOT).as_posix(): p for p in chosen}
    return pairs({"sha256": tree_digest(files)})


def _log_directory(cache: Path) -> Path:
    logs = cache / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        if os.access(logs, os.W_OK):
            return logs
    except OSError:
        # A cache that was filled beforehand may be read-only; logs then go to TMPDIR.
        pass
    return Path(tempfile.mkdtemp(prefix="mono-build-logs-"))
