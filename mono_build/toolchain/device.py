"""The architectures of the GPUs of this machine, from the kernel driver and not from a GPU runtime."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mono_build.errors import UsageError
from mono_build.toolchain.environment import gfx_name

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
_TARGET = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)
_ENUMERATOR_SECONDS = 10


def device_archs(environ: Mapping[str, str], *, topology: Path = TOPOLOGY) -> tuple[str, ...]:
    """The distinct architectures of the GPUs that are here, sorted; empty without a GPU."""
    found = set()
    for properties in topology.glob("*/properties"):
        try:
            match = _TARGET.search(properties.read_text())
        except OSError:
            continue
        # CPUs are nodes of version 0.
        if match and (version := int(match[1])):
            found.add(gfx_name(version // 10000, version // 100 % 100, version % 100))
    return tuple(sorted(found or _enumerated(environ)))


def device_arch(environ: Mapping[str, str], *, topology: Path = TOPOLOGY) -> str | None:
    """The one architecture of this machine's GPUs, or None; `UsageError` when there are several."""
    archs = device_archs(environ, topology=topology)
    if len(archs) > 1:
        raise UsageError(
            f"this machine has GPUs of several architectures: {', '.join(archs)}",
            fix="name one with --arch",
        )
    return archs[0] if archs else None


def _enumerated(environ: Mapping[str, str]) -> set[str]:
    rocm = environ.get("ROCM_PATH")
    path = ":".join([*([f"{rocm}/bin"] if rocm else []), environ.get("PATH", ""), "/opt/rocm/bin"])
    program = shutil.which("rocm_agent_enumerator", path=path)
    if program is None:
        return set()
    try:
        done = subprocess.run(
            [program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ENUMERATOR_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set()
    names = {line.strip() for line in done.stdout.splitlines()}
    return {name for name in names if name.startswith("gfx") and name != "gfx000"}
