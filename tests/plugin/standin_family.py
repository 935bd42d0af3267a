"""A family from outside, registered by entry point, whose launches need no FlyDSL."""

from __future__ import annotations

from collections.abc import Mapping

from mono_build.families.base import Deployment, Family, Field, LaunchSpec
from mono_runtime.launch_key import LaunchKey

ROWS = Field("rows", int, "width", minimum=1, maximum=4096)
FOLD = Field("fold", bool, "ignored by the code: two keys, one IR", default=False)
PAUSE = Field("pause", float, "seconds that a compile takes", default=0.0)
BEHAVIOUR = Field(
    "behaviour",
    str,
    "what the compile does",
    default="work",
    choices=("work", "fail", "abort", "kill", "hang", "eat", "exit"),
)
GRID = Field("grid", int, "workgroups", default=256, minimum=1)
_BUILD = "standin_kernels.launches:Build"
_FACTORY = "standin_kernels.launches:factory"


class StandIn(Family):
    """Launches for tests; one of them is persistent."""

    name = "standin"
    title = "launches for tests"
    source = "standin_kernels"
    packages = ("standin_kernels",)
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (1,), "gfx942": (1,)}
    rows_field = "rows"
    needs_aiter = False
    environment = ("STANDIN_SETTING",)
    compiler = "standin_compiler"
    launches = (
        LaunchSpec(
            "work",
            "workgroups that do not wait for each other",
            (ROWS, FOLD, PAUSE, BEHAVIOUR),
            _BUILD,
            _FACTORY,
            persistent=False,
        ),
        LaunchSpec(
            "resident", "workgroups that wait for each other", (ROWS, GRID), _BUILD, _FACTORY
        ),
    )
    deployment_fields = ()

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or (1, 2, 4)

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        return [
            self.key(deployment, "work", rows, {"fold": fold})
            for rows in self.widths(deployment)
            for fold in (False, True)
        ]

    def twin(self, key: LaunchKey) -> str:
        return f"{key.launch} {key.values['rows']}"


FAMILY = StandIn()
