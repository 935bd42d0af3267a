"""What a build needs and what this machine has of it, as plain data."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mono_build.sources.cache import cache_directory
from mono_build.sources.fetch import cached_versions
from mono_build.sources.helpers import find_helpers
from mono_build.sources.kernels import VLLM, check_packages, resolve_kernels
from mono_build.toolchain import bitcode as device_libraries
from mono_build.toolchain.device import TOPOLOGY, device_archs
from mono_build.toolchain.environment import ignored_variables
from mono_build.toolchain.flydsl import search_flydsl
from mono_build.toolchain.linker import ROCM, search_linker
from mono_build.toolchain.packages import package_directory, package_version, search_path
from mono_build.toolchain.search import Place
from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError

OK, MISSING, UNSUPPORTED, OPTIONAL = "ok", "missing", "unsupported", "optional"
# The Python versions that FlyDSL has wheels for.
_PYTHONS = ((3, 10), (3, 14))


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a build needs or can use.

    Attributes:
        state: ``ok``, ``missing``, ``unsupported``, or ``optional`` for what is absent and not needed.
        where: where it was found.
        looked: every place that was looked at.
        fix: how to get it, for anything that is not ``ok``.
        note: what its absence means, or which one of several was taken.
    """

    name: str
    state: str
    version: str | None = None
    digest: str | None = None
    where: str | None = None
    looked: tuple[Place, ...] = ()
    fix: str | None = None
    note: str | None = None

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "state": self.state,
            "version": self.version,
            "digest": self.digest,
            "where": self.where,
            "looked": [{"where": p.where, "outcome": p.outcome} for p in self.looked],
            "fix": self.fix,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All items, and lines about environment variables that have no effect."""

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether nothing that a build needs is missing or unsupported."""
        return all(item.state in (OK, OPTIONAL) for item in self.items)

    def to_json(self) -> Json:
        return {
            "ready": self.ready,
            "items": [item.to_json() for item in self.items],
            "notes": list(self.notes),
        }


def examine(
    environ: Mapping[str, str],
    *,
    kernels: str | None = None,
    packages: Sequence[str] = (),
    store: Path | None = None,
    search: Sequence[str] | None = None,
    rocm: Path = ROCM,
    topology: Path = TOPOLOGY,
) -> Report:
    """Look at everything once; nothing is fetched, imported or raised.

    Args:
        kernels: the kernel source as `resolve_kernels` takes it.
        packages: dotted names of kernel packages that have to be in it.
        store: a store that a build would write.
        search: import path for Python packages; this Python's by default.
        rocm, topology: where ROCm and the GPU driver's files lie.
    """
    checks: list[tuple[str, Callable[[], Item]]] = [
        ("python", _python),
        ("flydsl", lambda: _flydsl(search)),
        ("torch", lambda: _package("torch", "FlyDSL imports it", search)),
        ("numpy", lambda: _package("numpy", "FlyDSL imports it", search)),
        ("linker", lambda: _linker(environ, rocm, search)),
        ("bitcode", lambda: _bitcode(environ, rocm)),
        ("kernels", lambda: _kernels(environ, kernels, packages, search)),
        ("aiter", lambda: _aiter(search)),
        ("cache", lambda: _cache(environ)),
        *([("store", lambda: _store(store))] if store is not None else []),
        ("llvm-objdump", lambda: _tool("llvm-objdump", "inspect --asm", environ, rocm)),
        (
            "llvm-readelf",
            lambda: _tool("llvm-readelf", "looking into an ELF by hand", environ, rocm),
        ),
        ("gpu", lambda: _gpu(environ, topology)),
    ]
    return Report(tuple(_safe(n, check) for n, check in checks), tuple(ignored_variables(environ)))


def _safe(name: str, check: Callable[[], Item]) -> Item:
    try:
        return check()
    except MonoError as error:
        return Item(name, MISSING, where=error.where, fix=error.fix, note=error.what)
    except OSError as error:
        # A directory without permission, a broken mount: an answer of its own, not a traceback.
        return Item(name, MISSING, where=str(error.filename), note=error.strerror or str(error))


def _python() -> Item:
    version = platform.python_version()
    good = _PYTHONS[0] <= sys.version_info[:2] < _PYTHONS[1]
    fix = None if good else "use Python 3.10, 3.11, 3.12 or 3.13"
    return Item("python", OK if good else UNSUPPORTED, version, where=sys.executable, fix=fix)


def _flydsl(search: Sequence[str] | None) -> Item:
    result = search_flydsl(search)
    found = result.found
    if found is None:
        state = UNSUPPORTED if result.unsupported else MISSING
        note = result.problem
        return Item("flydsl", state, looked=result.looked, fix=result.fix, note=note)
    return Item("flydsl", OK, found.version, found.digest, str(found.root), result.looked)


def _package(name: str, why: str, search: Sequence[str] | None) -> Item:
    directory = package_directory(name, search)
    if directory is None:
        places = search_path() if search is None else search
        looked = tuple(Place(p or ".", "absent") for p in places)
        return Item(name, MISSING, looked=looked, fix=f"pip install {name}", note=why)
    version = package_version(name, directory)
    return Item(name, OK, version, None, str(directory), (Place(str(directory), "used"),))


def _linker(environ: Mapping[str, str], rocm: Path, search: Sequence[str] | None) -> Item:
    result = search_linker(environ, rocm=rocm, search=search)
    found = result.found
    if found is None:
        return Item("linker", MISSING, looked=result.looked, fix=result.fix, note=result.problem)
    return Item(
        "linker",
        OK,
        found.version,
        found.digest,
        " ".join([str(found.path), *found.arguments]),
        result.looked,
    )


def _bitcode(environ: Mapping[str, str], rocm: Path) -> Item:
    found, looked = device_libraries.look_for_bitcode(environ, rocm=rocm)
    if found.directory is not None:
        return Item("bitcode", OK, None, found.digest, str(found.directory), looked)
    note = "kernels that call ocml or ockl functions cannot be linked; the built-in families do not"
    fix = device_libraries.FIX
    return Item("bitcode", OPTIONAL, None, found.digest, looked=looked, fix=fix, note=note)


def _kernels(
    environ: Mapping[str, str],
    spec: str | None,
    packages: Sequence[str],
    search: Sequence[str] | None,
) -> Item:
    place = spec or "installed"
    if spec is None and package_directory("vllm", search) is None:
        looked = (Place("Python package vllm", "absent"),)
        wanted = f"vllm=={VLLM}"
        if VLLM not in cached_versions("vllm", cache_directory(environ)):
            return Item(
                "kernels",
                OPTIONAL,
                looked=(*looked, Place("cache", f"{wanted} is not in it")),
                fix=f"nothing to do with a network; else pip download --no-deps {wanted}, and --kernels FILE",
                note=f"the first build fetches the wheel of {wanted}",
            )
        place = wanted
    source = resolve_kernels(place, environ, search=search, fetch=_no_fetch)
    check_packages(source, packages)
    note = f"{source.package}, {source.origin}"
    where = str(source.root)
    return Item(
        "kernels",
        OK,
        source.version,
        source.wheel_sha256,
        where,
        (Place(where, "used"),),
        note=note,
    )


def _no_fetch(requirement: str, _directory: Path) -> None:
    raise MonoError(f"{requirement} is not in the cache", fix="a build fetches it")


def _aiter(search: Sequence[str] | None) -> Item:
    helpers = find_helpers(search)
    note = None
    if helpers.provider != "aiter":
        note = "this project's stand-ins for AITER's three helper modules are used"
    return Item("aiter", OK, helpers.version, None, str(helpers.root), helpers.looked, note=note)


def _cache(environ: Mapping[str, str]) -> Item:
    warnings: list[str] = []
    directory = cache_directory(environ, warnings.append)
    note = warnings[0] if warnings else None
    return Item(
        "cache", OK, where=str(directory), looked=(Place(str(directory), "used"),), note=note
    )


def _store(store: Path | None) -> Item:
    path = (store or Path()).absolute()
    existing = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        note = None if path.exists() else "it will be made by the first build"
        return Item("store", OK, where=str(path), looked=(Place(str(path), "used"),), note=note)
    return Item(
        "store",
        MISSING,
        where=str(path),
        looked=(Place(str(existing), "cannot be written"),),
        fix="name a writable directory with --store, or mend the permissions there",
    )


def _tool(name: str, use: str, environ: Mapping[str, str], rocm: Path) -> Item:
    directories = [f"{environ['ROCM_PATH']}/llvm/bin"] if environ.get("ROCM_PATH") else []
    directories += [f"{rocm}/llvm/bin", *environ.get("PATH", os.defpath).split(os.pathsep)]
    for directory in directories:
        found = shutil.which(name, path=directory) if directory else None
        if found:
            return Item(name, OK, where=found, looked=(Place(found, "used"),))
    looked = tuple(Place(directory, "absent") for directory in directories)
    return Item(name, OPTIONAL, looked=looked, fix="apt install llvm", note=f"only for {use}")


def _gpu(environ: Mapping[str, str], topology: Path) -> Item:
    archs = device_archs(environ, topology=topology)
    if archs:
        return Item("gpu", OK, ", ".join(archs), where=str(topology))
    note = "builds need no GPU; without one, --arch says what to build for"
    return Item("gpu", OPTIONAL, looked=(Place(str(topology), "no GPU"),), note=note)
