"""A family of FlyDSL kernels of our own that the emulator is tested with."""

from __future__ import annotations

from collections.abc import Mapping

from mono_build.families.base import Deployment, Family, Field, LaunchSpec
from mono_runtime.launch_key import LaunchKey

_FIELDS = (Field("block", int, "work-items a workgroup", minimum=64, maximum=1024, multiple=64),)
# What a launch has to have besides CDNA3's instructions.
_CDNA4 = frozenset(("mxfp8", "mxfp4", "mxfp8_mxfp4"))
_WAITING = frozenset(("handshake", "exchange"))


def _specs(module: str, *names: str) -> tuple[LaunchSpec, ...]:
    place = f"emulated_kernels.{module}"
    key_class = "emulated_kernels.device:Build"
    return tuple(LaunchSpec(n, n, _FIELDS, key_class, f"{place}:{n}", n in _WAITING) for n in names)


class Emulated(Family):
    """Small kernels, each for something that an emulator must get right."""

    name = "emulated"
    title = "small kernels for tests of the emulator"
    source = "emulated_kernels"
    packages = ("emulated_kernels",)
    targets: Mapping[str, tuple[int, ...]] = {"gfx942": (1,), "gfx950": (1,)}
    rows_field = "block"
    cases = "emulated_cases:case"
    needs_aiter = False
    deployment_fields = ()
    launches = (
        *_specs("elementwise", "vector_add", "bounded_add", "overrun"),
        *_specs("reductions", "lds_sum", "lds_overrun", "softmax", "racing_softmax", "rmsnorm"),
        *_specs("matrix", "gemm_bf16", "gemm_fp8", "mxfp8", "mxfp4", "mxfp8_mxfp4"),
        *_specs("sharing", "returned", "histogram", "handshake", "exchange"),
    )

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or (256,)

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        names = [
            s.name for s in self.launches if s.name not in _CDNA4 or deployment.arch == "gfx950"
        ]
        return [self.key(deployment, n, w, {}) for w in self.widths(deployment) for n in names]


FAMILY = Emulated()
