"""MiniMax-M3: the FFN launch.

Facts are those of vLLM 0.33.0 under ``vllm/models/minimax_m3/amd/specialized_decode``:
``runtime/spec.py`` (widths, refusals), ``mono/ffn.py`` (the build key), ``mono/runner.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mono_runtime.families.base import Deployment, FamilyKeys, LaunchSpec
from mono_runtime.families.fields import Field
from mono_runtime.launch_key import LaunchKey

PACKAGE = "vllm.models.minimax_m3.amd.specialized_decode.mono"
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


class MinimaxM3Keys(FamilyKeys):
    name = "minimax_m3"
    title = "MiniMax-M3"
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
            f"{PACKAGE}.ffn:FfnBuild",
            f"{PACKAGE}.ffn:build_ffn",
        ),
    )
    # vLLM builds every width up to 16 when the server starts, whatever it is started with.
    deployment_fields = ()

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or tuple(range(1, MAX_ROWS + 1))

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        return [self.key(deployment, "ffn", rows, {}) for rows in self.widths(deployment)]


KEYS = MinimaxM3Keys()
