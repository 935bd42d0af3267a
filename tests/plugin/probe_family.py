"""A family of small FlyDSL kernels, for tests of the real compiler."""

from __future__ import annotations

from collections.abc import Mapping

from mono_build.families.base import Deployment, Family, Field, LaunchSpec
from mono_runtime.launch_key import LaunchKey

_FIELDS = (
    Field("block", int, "work-items a workgroup", minimum=64, maximum=1024, multiple=64),
    Field("fold", bool, "ignored by the code", default=False),
)


def _spec(name: str, *, persistent: bool = False) -> LaunchSpec:
    module = "probe_kernels.launches"
    return LaunchSpec(name, name, _FIELDS, f"{module}:Build", f"{module}:{name}", persistent)


class Probe(Family):
    """Vector additions that are launched in several ways."""

    name = "probe"
    title = "small kernels for tests"
    source = "probe_kernels"
    packages = ("probe_kernels",)
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (1,), "gfx942": (1,)}
    rows_field = "block"
    needs_aiter = False
    deployment_fields = ()
    launches = (
        _spec("computed"),
        _spec("chain"),
        _spec("resident", persistent=True),
        _spec("conditional"),
        _spec("hinted"),
        _spec("misspelt"),
        _spec("unselectable"),
    )

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or (256,)

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        names = ("computed", "chain", "resident")
        return [self.key(deployment, n, r, {}) for n in names for r in self.widths(deployment)]


FAMILY = Probe()
