"""MiniMax-M3: the FFN launch.

Facts are those of vLLM 0.33.0 under ``vllm/models/minimax_m3/amd/specialized_decode``:
``runtime/spec.py`` (widths, refusals), ``mono/ffn.py`` (the build key), ``mono/runner.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mono_build.families.base import (
    Deployment,
    Family,
    Field,
    LaunchSpec,
    linear_cost,
    load_reference,
)
from mono_runtime.launch_key import LaunchKey

_PACKAGE = "vllm.models.minimax_m3.amd.specialized_decode.mono"
MAX_ROWS = 16

_BUILD = (
    Field("tokens", int, "Rows of the step.", minimum=1, maximum=MAX_ROWS),
    Field("tp", int, "Tensor-parallel size.", default=4, choices=(4,)),
    Field(
        "experts",
        str,
        "Which expert terms are summed; one side alone is for tests.",
        default="all",
        choices=("all", "shared", "routed"),
    ),
    Field("timeline", bool, "Stamp clocks, for profiling.", default=False),
    Field(
        "drop_mark",
        int,
        "Workgroup that never marks the barrier, or -1 (tests).",
        default=-1,
        minimum=-1,
        maximum=255,
    ),
    Field(
        "wait_ticks",
        int,
        "Longest wait in the kernel, 100 MHz ticks.",
        default=1_000_000_000,
        minimum=1,
    ),
)
# (seconds, seconds a row): builds at 1 and 16 rows took the same.
_COSTS = {("gfx950", "ffn"): (5.1, 0.0)}


class MinimaxM3(Family):
    name = "minimax_m3"
    title = "MiniMax-M3"
    source = "vllm"
    # The FFN launch shares V4.1's common modules.
    packages = (_PACKAGE, "vllm.models.deepseek_v41.amd.mono.common")
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (4,)}
    refusals: Mapping[str, str] = {
        "gfx942": "vLLM refuses it there, and CDNA3 has no v_cvt_scalef32_pk_bf16_fp4"
    }
    tp_reasons: Mapping[str, str] = {"gfx950": "vLLM refuses other sizes"}
    launches = (
        LaunchSpec(
            "ffn",
            "FFN seam and experts, with the all-reduces.",
            _BUILD,
            f"{_PACKAGE}.ffn:FfnBuild",
            f"{_PACKAGE}.ffn:build_ffn",
        ),
    )
    # vLLM builds every width up to 16 when the server starts, whatever it is started with.
    deployment_fields = ()

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or tuple(range(1, MAX_ROWS + 1))

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        return [self.key(deployment, "ffn", rows, {}) for rows in self.widths(deployment)]

    def arguments(self, key: LaunchKey) -> dict[str, object]:
        values: dict[str, object] = dict(key.values)
        values["experts"] = load_reference(f"{_PACKAGE}.ffn:Experts")(values["experts"])
        return values

    def cost(self, key: LaunchKey) -> float:
        return linear_cost(_COSTS, key)


FAMILY = MinimaxM3()
