"""FlyDSL, the linker and the device libraries: found, identified and put before a compile process.

Nothing here imports FlyDSL or torch.
"""

from __future__ import annotations

from mono_build.toolchain.bitcode import Bitcode, find_bitcode
from mono_build.toolchain.device import device_arch, device_archs
from mono_build.toolchain.environment import (
    code_environment,
    environment_arch,
    environment_conflicts,
    ignored_variables,
    worker_environment,
)
from mono_build.toolchain.flydsl import FlyDSL, find_flydsl
from mono_build.toolchain.identity import Toolchain, check_pins, identify
from mono_build.toolchain.linker import Linker, find_linker
from mono_build.toolchain.toolkit import toolkit

__all__ = [
    "Bitcode",
    "FlyDSL",
    "Linker",
    "Toolchain",
    "check_pins",
    "code_environment",
    "device_arch",
    "device_archs",
    "environment_arch",
    "environment_conflicts",
    "find_bitcode",
    "find_flydsl",
    "find_linker",
    "identify",
    "ignored_variables",
    "toolkit",
    "worker_environment",
]
