"""Who runs DeepSeek-V4.1's mono layers: vLLM's runner with FlyDSL in the image, or this project's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec

from mono_runtime.errors import InvalidValue

VARIABLE = "MONO_V41_RUNNER"
AUTO, VLLM, OWN = "auto", "vllm", "own"
# What vLLM's runner imports of AITER (``mono/layer.py``, ``attention/device.py``, ``common/peer_memory.py``).
AITER_HELPERS = (
    "aiter.ops.flydsl.kernels.buffer_ops",
    "aiter.ops.flydsl.kernels.dpp_utils",
    "aiter.ops.flydsl.kernels.kernels_common",
    "aiter.ops.flydsl.quick_allreduce_int4_ipc",
)


def v41_runner(environ: Mapping[str, str] = os.environ) -> str:
    """`VLLM` or `OWN`, as ``MONO_V41_RUNNER`` says; ``auto`` takes what the image has all modules for.

    Raises:
        InvalidValue: the variable is something else.
    """
    wanted = wanted_runner(environ)
    if wanted != AUTO:
        return wanted
    return OWN if missing_modules() else VLLM


def wanted_runner(environ: Mapping[str, str] = os.environ) -> str:
    """The value of ``MONO_V41_RUNNER``: `AUTO`, `VLLM` or `OWN`; else `InvalidValue`."""
    text = environ.get(VARIABLE, "").strip() or AUTO
    if text not in (AUTO, VLLM, OWN):
        raise InvalidValue(
            f"{VARIABLE} is {text!r}",
            fix=f"set it to {AUTO}, {VLLM} or {OWN}, or leave it out for {AUTO}",
        )
    return text


def missing_modules(names: Iterable[str] = ("flydsl", *AITER_HELPERS)) -> tuple[str, ...]:
    """Those of ``names`` that could not be imported; nothing is, not even their packages."""
    return tuple(name for name in names if not _is_there(name))


def _is_there(name: str) -> bool:
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return False
    for depth in range(len(rest)):
        # importlib.util.find_spec of a dotted name would import its packages: AITER's take seconds.
        if spec is None or spec.submodule_search_locations is None:
            return False
        dotted = ".".join((top, *rest[: depth + 1]))
        spec = PathFinder.find_spec(dotted, list(spec.submodule_search_locations))
    return spec is not None
