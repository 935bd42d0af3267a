"""Importing kernel packages without the engine around them.

The kernels' own packages and the helper modules are executed; their parents (``vllm``,
``vllm.models``, ``aiter`` ...) become bare namespaces, and nothing else of those projects can be
imported. This project's own kernels are imported from where this project is. Bytecode caches are not
used: they are matched by time and size, so they can be stale.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from mono_build.errors import ToolchainError
from mono_build.own_kernels import ROOT, is_own
from mono_build.sources import helpers as aiter
from mono_build.sources.helpers import HelperModules
from mono_build.sources.kernels import KernelSource
from mono_build.sources.recorder import SourceRecorder
from mono_build.sources.roots import FileDigests, SourceRoots


class KernelImporter(MetaPathFinder):
    """The import hook of one family's kernels; also knows which files they turned out to need."""

    def __init__(
        self,
        source: KernelSource,
        packages: Sequence[str],
        helpers: HelperModules | None,
        extra: Sequence[str] = (),
    ) -> None:
        self.roots = SourceRoots(source.root, tuple(packages), helpers.root if helpers else None)
        self._digests = FileDigests()
        self._recorder = SourceRecorder(self.roots, self._digests, extra)
        self._executed = tuple(packages)
        if helpers is not None and helpers.provider == "aiter":
            # AITER's helpers may come to need a neighbour; what they import is recorded.
            self._executed += (aiter.PACKAGE + ".",)
        elif helpers is not None:
            self._executed += tuple(f"{aiter.PACKAGE}.{module}" for module in aiter.NEEDED)

    def install(self) -> None:
        """Put the hook first; `ToolchainError` when the real packages are imported already."""
        loaded = sorted(top for top in self.roots.tops if top in sys.modules)
        if loaded:
            raise ToolchainError(
                f"{' and '.join(loaded)} is imported already, so its kernels cannot be isolated",
                fix="build in a process that has not imported it",
            )
        sys.meta_path.insert(0, self)
        self._recorder.start()

    def uninstall(self) -> None:
        """Remove the hook and every module that came through it."""
        self._recorder.stop()
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name in [n for n in sys.modules if n.split(".")[0] in self.roots.tops or is_own(n)]:
            del sys.modules[name]

    def sources(self, own: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
        """(import-relative path, sha256 hex) of every file that the kernels ran or read so far.

        The engine's kernels, or this project's ``own`` modules. The first call parses them; a process
        that forks should make it before.
        """
        return self._recorder.sources(own)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        """As the import system calls it; foreign modules are only noted."""
        if is_own(fullname):
            return self._source(fullname, ROOT)
        root = self.roots.tops.get(fullname.split(".")[0])
        if root is None:
            self._recorder.note_import(fullname)
            return None
        if self._executes(fullname):
            return self._source(fullname, root)
        if any(name.startswith(f"{fullname}.") for name in self._executed):
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(root.joinpath(*fullname.split(".")))]
            return spec
        top = fullname.split(".")[0]
        mine = ", ".join(n.rstrip(".") for n in self._executed if n.split(".")[0] == top)
        raise ImportError(
            f"{fullname} is not imported: of {top} only {mine or 'nothing'} runs while kernels are built",
            name=fullname,
        )

    def _executes(self, fullname: str) -> bool:
        return any(
            fullname == name or fullname.startswith(name if name.endswith(".") else f"{name}.")
            for name in self._executed
        )

    def _source(self, fullname: str, root: Path) -> ModuleSpec:
        parent = root.joinpath(*fullname.split(".")[:-1])
        spec = PathFinder.find_spec(fullname, [str(parent)])
        if spec is None:
            raise ModuleNotFoundError(f"no kernel module {fullname}", name=fullname)
        if not isinstance(spec.loader, SourceFileLoader):
            # A directory without __init__.py is a namespace; compiled code could not be digested.
            if spec.loader is None or spec.origin is None:
                return spec
            raise ImportError(f"{fullname} is not Python source", name=fullname)
        spec.loader = _Loader(spec.loader.name, spec.loader.path, self._digests)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the source that is there, and notes the digest of exactly those bytes."""

    def __init__(self, fullname: str, path: str, digests: FileDigests) -> None:
        super().__init__(fullname, path)
        self._digests = digests

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        self._digests.learn(Path(path), hashlib.sha256(data).hexdigest())
        code: types.CodeType = self.source_to_code(data, path)
        return code


def kernel_importer(
    source: KernelSource,
    packages: Sequence[str],
    helpers: HelperModules | None,
    extra: Sequence[str] = (),
) -> KernelImporter:
    """Install the import hook for ``packages`` of ``source`` in this process.

    Args:
        packages: dotted names of the packages whose code may run.
        helpers: who gives AITER's modules; None for kernels that need none.
        extra: imported modules that the kernels' code follows from as well, such as their family's;
            what they import counts with them.
    """
    importer = KernelImporter(source, packages, helpers, extra)
    importer.install()
    return importer
