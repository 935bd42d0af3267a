"""Finding ``libamdhip64``: the copy that this process uses already, or the one that the loader finds.

Two copies can be installed side by side (torch's wheels bring their own beside ``/opt/rocm``). Each
has its own devices, streams and memory, so a second one must never be loaded beside the first.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mono_runtime.errors import DriverMissing

VARIABLE = "MONO_HIP_LIBRARY"
SONAMES = ("libamdhip64.so.7", "libamdhip64.so.6")
_FILE = re.compile(r"libamdhip64[^/]*\.so[.0-9]*\Z")
# torch's libraries that are linked with HIP; the first is the smaller one.
_TORCH_LIBRARIES = ("libc10_hip.so", "libtorch_hip.so")
_MAPS = Path("/proc/self/maps")
_INSTALL = (
    "install ROCm's HIP runtime (hip-runtime-amd), or name the library in "
    f"{VARIABLE}=/path/to/libamdhip64.so.7"
)


@dataclass(frozen=True, slots=True)
class Copy:
    """One file that is mapped into this process.

    Attributes:
        path: as the kernel names it; links are resolved.
        file: device and inode, which tell files apart whatever their names are.
        ranges: the addresses it takes, as pairs of first and one past the last.
    """

    path: str
    file: tuple[str, int]
    ranges: tuple[tuple[int, int], ...]

    def holds(self, address: int) -> bool:
        """Whether ``address`` lies in this copy."""
        return any(start <= address < end for start, end in self.ranges)


def mapped_copies(maps: Path = _MAPS) -> tuple[Copy, ...]:
    """The copies of ``libamdhip64`` that this process has mapped, in the order of their addresses."""
    try:
        lines = maps.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise DriverMissing(
            f"cannot tell whether HIP is loaded already: {error.strerror}", where=str(maps)
        ) from error
    found: dict[tuple[str, int], Copy] = {}
    for line in lines:
        if "libamdhip64" not in line:
            continue
        addresses, _, _, device, inode, path = line.split(maxsplit=5)
        if not _FILE.search(path.removesuffix(" (deleted)")):
            continue
        start, end = (int(part, 16) for part in addresses.split("-"))
        file = (device, int(inode))
        before = found[file].ranges if file in found else ()
        found[file] = Copy(path, file, (*before, (start, end)))
    return tuple(found.values())


def _torch_directory() -> Path | None:
    """The directory of the loaded torch's libraries; None without a torch that is made for HIP."""
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    version = getattr(torch, "version", None)
    if file is None or (version is not None and getattr(version, "hip", None) is None):
        return None
    return Path(file).parent / "lib"


def torch_copy(copies: tuple[Copy, ...]) -> Copy | None:
    """The copy that the loaded torch calls; None when there is no such torch or it cannot be told."""
    directory = _torch_directory()
    if directory is None:
        return None
    for name in _TORCH_LIBRARIES:
        try:
            # Found only when it is loaded; a symbol of it is then looked up among its own needs.
            library = ctypes.CDLL(str(directory / name), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            address = ctypes.cast(library.hipGetDevice, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
        for copy in copies:
            if copy.holds(address):
                return copy
    inside = [copy for copy in copies if Path(copy.path).parent == directory.resolve()]
    return inside[0] if len(inside) == 1 else None


def _same_file(path: str, copy: Copy) -> bool:
    try:
        return Path(path).samefile(copy.path)
    except OSError:
        return False


def _named(path: str, origin: str, copies: tuple[Copy, ...]) -> str:
    """The path that was asked for, unless it would be a second copy."""
    if not Path(path).is_file():
        raise DriverMissing(
            "the HIP library that was asked for is not there",
            where=f"{origin}: {path}",
            fix=_INSTALL,
        )
    if copies and not any(_same_file(path, copy) for copy in copies):
        loaded = ", ".join(copy.path for copy in copies)
        raise DriverMissing(
            "another copy of the HIP library is loaded already, and two know nothing of each other",
            where=f"{origin}: {path}; loaded: {loaded}",
            fix=f"name the one that is loaded, or do not set {VARIABLE}",
        )
    # The loader takes a name without a slash for something to search for.
    return str(Path(path).absolute())


def _loaded(copies: tuple[Copy, ...]) -> Copy:
    chosen = copies[0] if len(copies) == 1 else torch_copy(copies)
    if chosen is None:
        raise DriverMissing(
            "several copies of the HIP library are loaded, and torch does not say which to use",
            where=", ".join(copy.path for copy in copies),
            fix=f"name one in {VARIABLE}, or find out who loads the other (LD_DEBUG=libs)",
        )
    if chosen.path.endswith(" (deleted)"):
        raise DriverMissing(
            "the HIP library was replaced on disk after this process had loaded it",
            where=chosen.path,
            fix="start the process again",
        )
    return chosen


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    yield from SONAMES
    roots = [environ.get("ROCM_PATH") or "", "/opt/rocm"]
    for root in dict.fromkeys(filter(None, roots)):
        yield from (str(Path(root, "lib", name)) for name in SONAMES)


def _load(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DriverMissing(
            "the HIP library does not load",
            where=f"{path}: {error}",
            fix="install what it needs, or add its directory to LD_LIBRARY_PATH",
        ) from error


def _first_loadable(environ: Mapping[str, str]) -> ctypes.CDLL:
    refused = []
    for candidate in _candidates(environ):
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            refused.append(str(error))
    raise DriverMissing(
        "there is no HIP library that loads", where="; ".join(refused), fix=_INSTALL
    )


class Library:
    """The one ``libamdhip64`` of this process.

    Attributes:
        path: where it lies.
        handle: ctypes' handle; its functions have no signatures yet.
    """

    def __init__(self, path: str, handle: ctypes.CDLL) -> None:
        self.path = path
        self.handle = handle
        self._objects_loaded = _ObjectCounter()
        self._loads = -1

    def check_still_single(self) -> None:
        """Raise `DriverMissing` when torch has loaded another copy since; cheap when nothing was."""
        loads = self._objects_loaded()
        if loads == self._loads:
            return
        copies = mapped_copies()
        if len(copies) > 1:
            theirs = torch_copy(copies)
            if theirs is not None and not _same_file(self.path, theirs):
                raise DriverMissing(
                    "torch has loaded another copy of the HIP library than this runtime",
                    where=f"torch: {theirs.path}; runtime: {self.path}",
                    fix=f"import torch first, or set {VARIABLE} to torch's copy",
                )
        self._loads = loads


def find_library(path: str | None = None, environ: Mapping[str, str] = os.environ) -> Library:
    """Load ``libamdhip64``, or take hold of the copy that is loaded.

    In this order: ``path``, ``MONO_HIP_LIBRARY``, a copy that this process has mapped (with several:
    torch's), the loader's own search for versions 7 and 6, ``ROCM_PATH/lib``, ``/opt/rocm/lib``.

    Raises:
        DriverMissing: nothing was found or it does not load; or it would be a second copy.
    """
    copies = mapped_copies()
    asked, origin = (path, "path") if path else (environ.get(VARIABLE), VARIABLE)
    if asked:
        named = _named(asked, origin, copies)
        return Library(named, _load(named))
    if copies:
        chosen = _loaded(copies)
        return Library(chosen.path, _load(chosen.path))
    handle = _first_loadable(environ)
    new = mapped_copies()
    return Library(new[0].path if len(new) == 1 else str(handle._name), handle)


class _ObjectInfo(ctypes.Structure):
    """``struct dl_phdr_info`` (dl_iterate_phdr(3)) as far as it is read."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("added", ctypes.c_ulonglong),
    )


class _ObjectCounter:
    """Counts the shared objects that this process has ever loaded, by dl_iterate_phdr(3)."""

    def __init__(self) -> None:
        self._added = 0
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(_ObjectInfo), ctypes.c_size_t, ctypes.c_void_p
        )
        self._callback = prototype(self._first)
        self._iterate = ctypes.CDLL(None).dl_iterate_phdr

    def _first(self, info: ctypes._Pointer[_ObjectInfo], size: int, data: object) -> int:
        self._added = info.contents.added
        return 1  # the count is the same in every object: no further one

    def __call__(self) -> int:
        self._iterate(self._callback, None)
        return self._added
