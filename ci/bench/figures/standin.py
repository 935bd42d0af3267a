"""The stand-in HIP library of the tests, as the environment of a measured process."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from figures.bench import PROJECT

# The device that the 84-launch deployment is for: MI355X, one whole GPU.
_DEVICE = {
    "arch": "gfx950:sramecc+:xnack-",
    "compute_units": 256,
    "memory": 288 << 30,
    "name": "AMD Instinct MI355X",
}


def over_standin(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` for a process that finds the stand-in as its HIP and launches without a record."""
    sys.path.insert(0, str(PROJECT / "tests" / "hip"))
    try:
        import standin_hip
    finally:
        del sys.path[0]
    made = standin_hip.environment(standin_hip.FakeDevice(**_DEVICE), record=False)
    ours = {n: v for n, v in made.items() if n.startswith("STANDIN_") or n == "MONO_HIP_LIBRARY"}
    library = standin_hip.library()
    # FlyDSL's own library asks the dynamic loader for libamdhip64.so.7.
    return {**environment, **ours, "LD_LIBRARY_PATH": str(library.parent)}
