"""How MiniMax-M3's launch is compiled."""

from __future__ import annotations

from mono_build.families.base import Family, linear_cost, load_reference
from mono_runtime.families.minimax_m3 import PACKAGE, MinimaxM3Keys
from mono_runtime.launch_key import LaunchKey

# (seconds, seconds a row): builds at 1 and 16 rows took the same.
_COSTS = {("gfx950", "ffn"): (5.1, 0.0)}


class MinimaxM3(MinimaxM3Keys, Family):
    source = "vllm"
    # The FFN launch shares V4.1's common modules.
    packages = (PACKAGE, "vllm.models.deepseek_v41.amd.mono.common")

    def arguments(self, key: LaunchKey) -> dict[str, object]:
        values: dict[str, object] = dict(key.values)
        values["experts"] = load_reference(f"{PACKAGE}.ffn:Experts")(values["experts"])
        return values

    def cost(self, key: LaunchKey) -> float:
        return linear_cost(_COSTS, key)


FAMILY = MinimaxM3()
