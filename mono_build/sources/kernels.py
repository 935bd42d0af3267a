"""Where the kernels' Python code comes from: an installation, a wheel, a version to fetch, or a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mono_build.errors import NotFound, ToolchainError, UsageError
from mono_build.sources.cache import Report, cache_directory, silent
from mono_build.sources.fetch import Fetch, fetched, pip_download
from mono_build.sources.wheel import WheelTree, unpacked
from mono_build.toolchain.hashing import file_sha256
from mono_build.toolchain.packages import package_directory, package_version
from mono_runtime.inputs import pairs

# The release whose launches this project's families describe.
VLLM = "0.33.0"
# Of a large package only these files are taken out of a wheel.
_WANTED = {"vllm": "vllm/models/"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!_-]*)\Z")
_LISTED = 12


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Kernel sources on this machine.

    Attributes:
        package: the distribution they belong to.
        root: the import root, the directory that holds the package's directory.
        version: the distribution's version, ``unknown`` for a tree that does not say.
        origin: ``installed``, ``wheel`` or ``tree``.
        wheel_sha256: sha256 hex of the wheel they were taken from.
    """

    package: str
    root: Path
    version: str
    origin: str
    wheel_sha256: str | None = None

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The form of `mono_runtime.inputs.Inputs.kernels`; no path is part of it."""
        facts = {"package": self.package, "version": self.version}
        if self.wheel_sha256 is not None:
            facts["wheel_sha256"] = self.wheel_sha256
        return pairs(facts)


def resolve_kernels(
    spec: str | None,
    environ: Mapping[str, str],
    cache: Path | None = None,
    *,
    package: str = "vllm",
    packages: Sequence[str] = (),
    search: Sequence[str] | None = None,
    fetch: Fetch = pip_download,
    report: Report = silent,
) -> KernelSource:
    """The kernel sources that ``spec`` names, with every one of ``packages`` in them.

    Args:
        spec: ``installed``, ``vllm==0.33.0``, the path of a wheel or of a tree; None takes what is
            installed and else fetches the release that the built-in families describe.
        cache: where fetched wheels are kept; the user's cache by default.
        package: the distribution that is meant.
        packages: dotted names that must be there.
        search: import path for ``installed``; this Python's by default.
        fetch: puts the wheel of a requirement into a directory.
        report: gets a line for what takes long or had to be mended.

    Raises `ToolchainError` when the sources cannot be had or hold no such packages, `NotFound` for a
    path that does not exist, `UsageError` for a ``spec`` that is neither.
    """
    try:
        source = _resolve(spec, environ, cache, package, search, fetch, report)
        check_packages(source, packages)
    except OSError as error:
        raise ToolchainError(
            f"the kernel sources cannot be read: {error.strerror or error}",
            where=str(error.filename or spec),
            fix="mend the permissions there, or name others with --kernels",
        ) from error
    return source


def _resolve(
    spec: str | None,
    environ: Mapping[str, str],
    cache: Path | None,
    package: str,
    search: Sequence[str] | None,
    fetch: Fetch,
    report: Report,
) -> KernelSource:
    if spec is None or spec == "installed":
        installed = _installed(package, search)
        if installed is not None:
            return installed
        if spec == "installed" or package != "vllm":
            raise ToolchainError(
                f"{package} is not installed for this Python",
                fix=f"install it, or name a wheel, a tree or a version: --kernels {package}=={VLLM}",
            )
        spec = f"vllm=={VLLM}"
    path = Path(spec)
    match = _REQUIREMENT.match(spec)
    if match is None or path.exists():
        return _from_path(path, spec, environ, cache, package, report)
    name, version = _normal(match[1]), match[2]
    if name != _normal(package):
        raise UsageError(f"--kernels {spec} names another package than {package}")
    where = cache or cache_directory(environ, report)
    found = fetched(name, version, _prefix(package), where, fetch=fetch, report=report)
    return _from_tree(found.tree, package, found.sha256)


def check_packages(source: KernelSource, packages: Iterable[str]) -> None:
    """Refuse ``source`` with a `ToolchainError` when it lacks one of the dotted ``packages``."""
    missing = [name for name in packages if not _has(source.root, name)]
    if missing:
        raise ToolchainError(
            f"{source.package} {source.version} ({source.origin}) lacks the kernel packages "
            f"{', '.join(missing)}; it has {_what_is_there(source)}",
            where=str(source.root),
            fix=f"use a release that has them: --kernels vllm=={VLLM}",
        )


def _installed(package: str, search: Sequence[str] | None) -> KernelSource | None:
    directory = package_directory(package, search)
    if directory is None:
        return None
    version = package_version(package, directory) or "unknown"
    return KernelSource(package, directory.parent, version, "installed")


def _from_path(
    path: Path,
    spec: str,
    environ: Mapping[str, str],
    cache: Path | None,
    package: str,
    report: Report,
) -> KernelSource:
    if path.is_dir():
        return _tree(path, package)
    if path.is_file():
        where = cache or cache_directory(environ, report)
        sha256 = file_sha256(path)
        tree = unpacked(path, sha256, _prefix(package), where)
        if _normal(tree.package) != _normal(package):
            raise ToolchainError(f"the wheel is of {tree.package}, not of {package}", where=spec)
        return _from_tree(tree, package, sha256)
    if "/" in spec or spec.endswith(".whl"):
        raise NotFound(f"there is no wheel or tree {spec!r}", fix="give --kernels an existing path")
    raise UsageError(
        f"--kernels {spec!r} is not understood",
        fix=f"say 'installed', an exact version such as '{package}=={VLLM}', a wheel or a directory",
    )


def _from_tree(tree: WheelTree, package: str, sha256: str) -> KernelSource:
    return KernelSource(package, tree.root, tree.version, "wheel", sha256)


def _tree(path: Path, package: str) -> KernelSource:
    path = path.resolve()
    candidates = [path, path / "src", *([path.parent] if path.name == package else [])]
    for root in candidates:
        if (root / package).is_dir():
            version = package_version(package, root / package) or _tree_version(root, package)
            return KernelSource(package, root, version, "tree")
    raise ToolchainError(
        f"the directory holds no {package} package",
        where=str(path),
        fix=f"name the directory that {package}/ lies in",
    )


def _tree_version(root: Path, package: str) -> str:
    for base in (root, root.parent):
        for found in metadata.distributions(path=[str(base)]):
            if _normal(found.metadata["Name"] or "") == _normal(package):
                return found.version
    return "unknown"


def _has(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or any(path.glob("*.py"))


def _what_is_there(source: KernelSource) -> str:
    base = source.root / source.package
    if not base.is_dir():
        return f"no {source.package} package"
    mono = {p.relative_to(source.root).as_posix() for p in base.rglob("mono") if p.is_dir()}
    if not mono:
        models = base / "models"
        return "no mono kernels" + ("" if models.is_dir() else f" and no {source.package}/models")
    names = sorted(mono)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _prefix(package: str) -> str:
    return _WANTED.get(package, f"{package}/")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
