"""How Kimi-K3's launches are compiled."""

from __future__ import annotations

from mono_build.families.base import Family, linear_cost
from mono_runtime.families.kimi_k3 import PACKAGE, KimiK3Keys
from mono_runtime.launch_key import LaunchKey

# (seconds, seconds a row) through measured builds at 1 and 8 rows.
_COSTS = {("gfx950", "k1"): (3.6, 0.06), ("gfx950", "k2"): (12.0, 0.08)}


class KimiK3(KimiK3Keys, Family):
    source = "vllm"
    packages = (PACKAGE,)

    def cost(self, key: LaunchKey) -> float:
        return linear_cost(_COSTS, key)


FAMILY = KimiK3()
