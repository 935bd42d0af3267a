"""Environment variables: what a compile process sees, what enters keys, and what is reported.

A compile process gets an environment made from nothing, so that a variable which nobody thought of
cannot change its code.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mono_build.errors import UsageError
from mono_runtime.arch import parse_architecture
from mono_runtime.errors import InvalidValue

# Where FlyDSL reads its target from: the first for code, the others for helpers used while tracing.
ARCH_VARIABLES = ("ARCH", "FLYDSL_GPU_ARCH", "HSA_OVERRIDE_GFX_VERSION")
# Variables of FlyDSL that change code and that we pass on (flydsl/compiler/jit_function.py,
# "cache invalidating" variables, lists the ones that change code).
HONOURED = ("FLYDSL_COMPILE_OPT_LEVEL",)
_DEFAULT_OPT_LEVEL = "2"
# Every variable that FlyDSL 0.4.2 to 0.5.0 reads (flydsl/utils/env.py and its callers).
FLYDSL_VARIABLES = (
    "FLYDSL_AUTOTUNE",
    "FLYDSL_AUTOTUNE_CACHE_DIR",
    "FLYDSL_AUTOTUNE_CONFIG_DIR",
    "FLYDSL_COMPILE_BACKEND",
    "FLYDSL_COMPILE_LLVM_DIR",
    "FLYDSL_COMPILE_OPT_LEVEL",
    "FLYDSL_DEBUG_AST_DIFF",
    "FLYDSL_DEBUG_DUMP_ASM",
    "FLYDSL_DEBUG_ENABLE_DEBUG_INFO",
    "FLYDSL_DEBUG_ENABLE_VERIFIER",
    "FLYDSL_DEBUG_LOG_LEVEL",
    "FLYDSL_DEBUG_LOG_TO_CONSOLE",
    "FLYDSL_DEBUG_LOG_TO_FILE",
    "FLYDSL_DEBUG_MAX_LOC_DEPTH",
    "FLYDSL_DEBUG_PRINT_AFTER_ALL",
    "FLYDSL_DEBUG_PRINT_ORIGIN_IR",
    "FLYDSL_DEBUG_SHOW_STACKTRACE",
    "FLYDSL_DUMP_DIR",
    "FLYDSL_DUMP_IR",
    "FLYDSL_EXTRA_SOURCE_DIRS",
    "FLYDSL_GPU_ARCH",
    "FLYDSL_KTRACE_BLOCKS",
    "FLYDSL_KTRACE_BUFFER_BYTES",
    "FLYDSL_KTRACE_DUMP_DIR",
    "FLYDSL_KTRACE_ENABLE",
    "FLYDSL_ROCM_AGENT_TIMEOUT",
    "FLYDSL_RUNTIME_CACHE_DIR",
    "FLYDSL_RUNTIME_ENABLE_CACHE",
    "FLYDSL_RUNTIME_KIND",
    "FLYDSL_RUNTIME_RUN_ONLY",
)
# What Python and its packages need to start, and nothing that kernels could read a setting from.
_KEPT = (
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "TMPDIR",
    "VIRTUAL_ENV",
)
_GFX_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)\Z")


def worker_environment(
    arch: str, toolkit_path: Path, environ: Mapping[str, str], allowed: Sequence[str]
) -> dict[str, str]:
    """The whole environment of a compile process for ``arch``.

    Args:
        toolkit_path: the directory that `toolkit` made.
        environ: the builder's environment.
        allowed: further variables that the family reads and that are part of its keys.
    """
    worker = {name: environ[name] for name in _KEPT if name in environ}
    worker.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if "PYTHONPATH" in worker:
        # Compile processes run in a directory of their own.
        parts = worker["PYTHONPATH"].split(os.pathsep)
        worker["PYTHONPATH"] = os.pathsep.join(str(Path(part).absolute()) for part in parts)
    # HOME is replaced so that no file of the user's is read; packages installed there stay visible.
    if "PYTHONUSERBASE" in environ:
        worker["PYTHONUSERBASE"] = environ["PYTHONUSERBASE"]
    elif "HOME" in environ:
        worker["PYTHONUSERBASE"] = str(Path(environ["HOME"], ".local"))
    worker.update(code_environment(environ, allowed))
    worker.update(
        ARCH=arch,
        COMPILE_ONLY="1",
        FLYDSL_GPU_ARCH=arch,
        FLYDSL_RUNTIME_ENABLE_CACHE="0",
        HOME=str(toolkit_path / "home"),
        LANG="C.UTF-8",
        MKL_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONHASHSEED="0",
        ROCM_PATH=str(toolkit_path),
    )
    return worker


def code_environment(environ: Mapping[str, str], allowed: Sequence[str]) -> dict[str, str]:
    """The variables that are set, change code and are passed on: these enter the direct key.

    ``FLYDSL_COMPILE_OPT_LEVEL`` at FlyDSL's default counts as not set; anything but 0 to 3 raises
    `UsageError`.
    """
    chosen = {n: environ[n] for n in (*HONOURED, *allowed) if environ.get(n)}
    level = chosen.get("FLYDSL_COMPILE_OPT_LEVEL")
    if level is not None and level not in ("0", "1", "2", "3"):
        raise UsageError(
            f"FLYDSL_COMPILE_OPT_LEVEL={level} is no optimisation level", fix="set 0, 1, 2 or 3"
        )
    if level == _DEFAULT_OPT_LEVEL and "FLYDSL_COMPILE_OPT_LEVEL" not in allowed:
        del chosen["FLYDSL_COMPILE_OPT_LEVEL"]
    return chosen


def environment_arch(environ: Mapping[str, str]) -> str | None:
    """The architecture that the environment names, or None.

    Raises `UsageError` when a variable names an unknown one or two contradict each other.
    """
    named = {variable: _base(value) for variable, value in _arch_settings(environ)}
    for variable, arch in named.items():
        if arch is None:
            try:
                parse_architecture(environ[variable])
            except InvalidValue as error:
                raise UsageError(
                    f"{variable}={environ[variable]} in the environment: {error.what}",
                    fix=f"{error.fix}; or name one with --arch, which wins over the environment",
                ) from error
            raise UsageError(f"{variable}={environ[variable]} in the environment is not understood")
    if len(set(named.values())) > 1:
        settings = ", ".join(f"{n}={environ[n]}" for n in named)
        raise UsageError(
            f"the environment names different architectures: {settings}",
            fix="unset all but one, or name one with --arch, which wins over the environment",
        )
    return next(iter(named.values()), None)


def environment_conflicts(arch: str, environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that names another architecture than the explicit ``arch``."""
    base = arch.lower().split(":")[0]
    return [
        f"{variable}={value} in the environment is ignored: {arch} was asked for"
        for variable, value in _arch_settings(environ)
        if _base(value) != base
    ]


def ignored_variables(environ: Mapping[str, str], allowed: Sequence[str] = ()) -> list[str]:
    """A line for each FlyDSL variable that is set and has no effect on a build, misspelt ones too."""
    lines = []
    for name in sorted(n for n in environ if n.startswith("FLYDSL_")):
        if name in HONOURED or name in allowed or name in ARCH_VARIABLES:
            continue
        if name in FLYDSL_VARIABLES:
            lines.append(f"{name} is set and ignored: builds do not depend on it")
            continue
        near = difflib.get_close_matches(name, FLYDSL_VARIABLES, n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        lines.append(f"{name} is set and ignored: FlyDSL has no such variable{hint}")
    return lines


def _arch_settings(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, environ[name]) for name in ARCH_VARIABLES if environ.get(name)]


def _base(value: str) -> str | None:
    text = value.strip().lower()
    if match := _GFX_VERSION.match(text):
        text = gfx_name(int(match[1]), int(match[2]), int(match[3]))
    try:
        return parse_architecture(text).name
    except InvalidValue:
        return None


def gfx_name(major: int, minor: int, stepping: int) -> str:
    """The name of a GFX version: (9, 4, 2) is ``gfx942``, (9, 0, 10) is ``gfx90a``."""
    return f"gfx{major}{minor:x}{stepping:x}"
