"""Fetching a wheel by version into the cache, once for all builders, and finding damage there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mono_build.errors import ToolchainError
from mono_build.sources.cache import Report, fresh_directory, locked, read_json, silent, write_json
from mono_build.sources.wheel import WheelTree, intact_tree, unpacked
from mono_build.toolchain.hashing import file_sha256

Fetch = Callable[[str, Path], None]
_FIX = (
    "connect to a package index; or download it elsewhere with "
    "`python -m pip download --no-deps --only-binary :all: {0}` and give --kernels the file; "
    "or set MONO_CACHE to a cache that holds it; or install {0} and use --kernels installed"
)


@dataclass(frozen=True, slots=True)
class FetchedTree:
    """Sources of a fetched wheel, and the wheel's sha256 hex."""

    tree: WheelTree
    sha256: str


def pip_download(requirement: str, directory: Path) -> None:
    """Let pip put the wheel of ``requirement`` into ``directory``, without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--quiet", "--dest", str(directory), requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"pip does not run: {error}", fix=_FIX.format(requirement)) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = (
            [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["pip failed"]
        )
        raise ToolchainError(
            f"{requirement} could not be fetched: {errors[-1]}", fix=_FIX.format(requirement)
        )


def fetched(
    package: str,
    version: str,
    prefix: str,
    cache: Path,
    *,
    fetch: Fetch = pip_download,
    report: Report = silent,
) -> FetchedTree:
    """The sources below ``prefix`` of ``package==version``, from the cache or through ``fetch``.

    What the cache holds is checked against the digest that was recorded when it was fetched;
    damage is reported and mended. Without a need to write, a read-only cache is enough.
    """
    wheels = cache / "wheels"
    ready = _ready(cache, package, version)
    if ready is not None:
        return ready
    with locked(wheels, f"{package}-{version}"):
        ready = _ready(cache, package, version)
        if ready is not None:
            return ready
        kept = _kept_wheel(wheels, package, version, report)
        wheel, sha256 = kept or _download(wheels, package, version, fetch, report)
    tree = unpacked(wheel, sha256, prefix, cache)
    return FetchedTree(tree, sha256)


def _record(wheels: Path, package: str, version: str) -> Path:
    return wheels / f"{package}-{version}.json"


def _ready(cache: Path, package: str, version: str) -> FetchedTree | None:
    record = read_json(_record(cache / "wheels", package, version))
    sha256 = record.get("sha256") if record else None
    if not isinstance(sha256, str) or len(sha256) != 64 or not sha256.isalnum():
        return None
    tree = intact_tree(cache, sha256)
    return None if tree is None else FetchedTree(tree, sha256)


def _kept_wheel(
    wheels: Path, package: str, version: str, report: Report
) -> tuple[Path, str] | None:
    record = read_json(_record(wheels, package, version)) or {}
    for wheel in sorted(wheels.glob(f"{package}-{version}-*.whl")):
        found = file_sha256(wheel)
        expected = record.get("sha256") if record.get("file") == wheel.name else None
        if expected in (None, found):
            _remember(wheels, package, version, wheel, found)
            return wheel, found
        report(
            f"{wheel} is damaged (expected sha256 {expected}, found {found}): it is fetched again"
        )
        wheel.unlink()
    return None


def _download(
    wheels: Path, package: str, version: str, fetch: Fetch, report: Report
) -> tuple[Path, str]:
    requirement = f"{package}=={version}"
    report(f"fetching the wheel of {requirement} into {wheels}")
    staging = fresh_directory(wheels / f".{package}-{version}.staging")
    try:
        fetch(requirement, staging)
        files = sorted(staging.glob("*.whl"))
        if len(files) != 1:
            names = ", ".join(f.name for f in files) or "nothing"
            raise ToolchainError(
                f"{requirement} should be one wheel, and {names} was fetched",
                fix=_FIX.format(requirement),
            )
        wheel = wheels / files[0].name
        files[0].chmod(0o644)
        files[0].replace(wheel)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    sha256 = file_sha256(wheel)
    _remember(wheels, package, version, wheel, sha256)
    return wheel, sha256


def _remember(wheels: Path, package: str, version: str, wheel: Path, sha256: str) -> None:
    # A wheel that somebody put there has no record yet; where nothing may be written it stays so.
    if os.access(wheels, os.W_OK):
        write_json(_record(wheels, package, version), {"file": wheel.name, "sha256": sha256})


def cached_versions(package: str, cache: Path) -> set[str]:
    """The versions of ``package`` whose wheels the cache holds."""
    head = f"{package}-"
    wheels = (cache / "wheels").glob(f"{head}*-*.whl")
    return {wheel.name[len(head) :].split("-")[0] for wheel in wheels}
