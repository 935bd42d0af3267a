"""A family's kernels, imported into this process for one architecture, and what they were made from."""

from __future__ import annotations

import gc
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mono_build.compile.direct import BUILD_FORMAT, Current
from mono_build.compile.job import SessionContext
from mono_build.families.base import Family
from mono_build.families.registry import family as find_family
from mono_build.own_kernels import ROOT, own_facts
from mono_build.sources import (
    HelperModules,
    KernelImporter,
    KernelSource,
    current_sources,
    kernel_importer,
)
from mono_runtime.inputs import Inputs, Pairs, pairs


@dataclass(slots=True)
class LoadedFamily:
    """What a worker forks from.

    Attributes:
        compiler: the family's compiler adapter, loaded.
        error: why the kernels could not be imported; every launch then fails with it.
    """

    context: SessionContext
    family: Family
    importer: KernelImporter
    compiler: Any = None
    error: Exception | None = None

    @property
    def toolchain(self) -> tuple[tuple[str, Pairs], ...]:
        """The toolchain facts in the form of `Inputs`."""
        return tuple(sorted((n, pairs(f)) for n, f in self.context.toolchain.items()))

    def inputs(self, launch: str) -> Inputs:
        """Everything that was read for a launch; call it when that has been traced."""
        own = self.family.own_modules(launch)
        return Inputs(
            sources=self.importer.sources(own),
            kernels=own_facts() if own else pairs(self.context.kernel_facts),
            helpers=() if own else pairs(self.context.helper_facts),
            toolchain=self.toolchain,
            environment=pairs(self.context.environment),
            builder=BUILD_FORMAT,
        )

    def current(self) -> Current:
        """The inputs of this session, to compare a stored launch with."""
        roots = self.importer.roots
        return Current(
            self.toolchain,
            pairs(self.context.environment),
            lambda paths: current_sources(paths, roots),
        )


def load(context: SessionContext) -> LoadedFamily:
    """Import the kernels of ``context``; an error in them is kept, not raised."""
    family = find_family(context.family)
    source = KernelSource(family.source, Path(context.kernel_root or ROOT), "", "")
    packages = () if context.kernel_root is None else family.packages
    helpers = None
    if context.helper_root is not None:
        helpers = HelperModules(
            context.helper_facts["provider"],
            context.helper_facts["version"],
            Path(context.helper_root),
        )
    # What a family from outside says of its launches decides their plans; ours are in the builder's digest.
    importer = kernel_importer(source, packages, helpers, extra=(type(family).__module__,))
    loaded = LoadedFamily(context, family, importer)
    try:
        loaded.compiler = importlib.import_module(family.compiler)
        loaded.compiler.load_compiler()
        for module in _modules(family, context):
            importlib.import_module(module)
        # What the modules import is worked out here once, and not again in every forked worker.
        loaded.importer.sources()
    except Exception as error:
        # A fork server that dies would take the reason with it.
        loaded.error = error
    # What is loaded now stays for ever; workers that never touch it share its pages.
    gc.collect()
    gc.freeze()
    return loaded


def _modules(family: Family, context: SessionContext) -> list[str]:
    """What to import: our own kernels as they are planned, the engine's all or none.

    So what is recorded of the engine's does not depend on the plan.
    """
    own = {s.name: family.own_modules(s.name) for s in family.launches}
    planned = dict.fromkeys(job.key.launch for job in context.jobs)
    modules = [module for launch in planned for module in own.get(launch, ())]
    if context.kernel_root is not None:
        ours = {module for names in own.values() for module in names}
        modules += [module for module in family.modules() if module not in ours]
    return modules
