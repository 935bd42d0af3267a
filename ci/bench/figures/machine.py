"""The machine and the tools that figures were taken with; no names of hosts, users or folders."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures.bench import Bench, inherited
from mono_build import __version__
from mono_build.toolbox import Toolbox, identify_meanwhile


def facts(bench: Bench) -> dict[str, Any]:
    """What somebody needs to read the figures: processors, load, versions."""
    environ = inherited()
    toolbox = Toolbox(identify_meanwhile(environ), bench.kernels, (), environ, bench.report)
    toolchain = toolbox.toolchain
    source, helpers = toolbox.source("deepseek_v41"), toolbox.helpers("deepseek_v41")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mono-build": __version__,
        "flydsl": toolchain.flydsl.version,
        "linker": toolchain.linker.version,
        "kernels": f"{source.package} {source.version} ({source.origin})",
        "helpers": f"{helpers.provider} {helpers.version}" if helpers else "none",
    }


def describe(found: dict[str, Any]) -> str:
    """`facts` as lines of text."""
    width = max(len(name) for name in found)
    names = {name: name.replace("_", " ") for name in found}
    return "\n".join(f"{names[name]:{width}}  {value}" for name, value in found.items())


@contextmanager
def at_most(cores: int) -> Iterator[int]:
    """Keep this process and what it starts on ``cores`` processors; yields how many it has."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield min(cores, len(before))
    finally:
        os.sched_setaffinity(0, before)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
