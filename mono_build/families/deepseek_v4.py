"""How DeepSeek-V4-Pro's launches are compiled."""

from __future__ import annotations

from mono_build.families.base import Family, linear_cost
from mono_runtime.families.deepseek_v4 import PACKAGE, DeepseekV4Keys
from mono_runtime.launch_key import LaunchKey

# (seconds, seconds a row) through measured builds at 8 and 64 rows.
_COSTS = {("gfx950", "k1"): (2.9, 0.09), ("gfx950", "k2"): (11.3, 0.264)}


class DeepseekV4(DeepseekV4Keys, Family):
    source = "vllm"
    packages = (PACKAGE,)

    def cost(self, key: LaunchKey) -> float:
        return linear_cost(_COSTS, key)


FAMILY = DeepseekV4()
