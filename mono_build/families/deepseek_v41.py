"""How DeepSeek-V4.1-Flash's launches are compiled."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from mono_build.families.base import Family, linear_cost
from mono_runtime.families.deepseek_v41 import PACKAGE, DeepseekV41Keys
from mono_runtime.launch_key import LaunchKey

# (seconds, seconds a row) through measured builds at 8 and 48 rows (gfx950), 6 and 42 (gfx942).
_COSTS = {
    ("gfx950", "k1"): (2.8, 0.076),
    ("gfx950", "k2"): (11.5, 0.24),
    ("gfx950", "ffn"): (9.6, 0.15),
    ("gfx942", "k1"): (2.8, 0.08),
    ("gfx942", "k2"): (14.4, 0.66),
    ("gfx942", "ffn"): (10.0, 0.33),
    **{(arch, "keylist"): (0.2, 0.0) for arch in ("gfx942", "gfx950")},
}


class DeepseekV41(DeepseekV41Keys, Family):
    source = "vllm"
    packages = (PACKAGE,)
    cases = "mono_build.emulator.cases.deepseek_v41.generate:case"

    def cost(self, key: LaunchKey) -> float:
        return linear_cost(_COSTS, key)

    def twin(self, key: LaunchKey) -> str:
        # K2 never reads fold, so two keys that differ in nothing else trace to equal IR.
        if key.launch != "k2":
            return key.digest
        build = {name: value for name, value in key.build if name != "fold"}
        return LaunchKey.of(key.family, key.launch, key.arch, build).digest

    def workspace(self, key: LaunchKey) -> Mapping[str, int]:
        """Scratch and the epoch, and where a launch ends in an all-reduce ``sym``, the rank's peer memory.

        Peer memory has a half for even epochs and one for odd, as large as the widest step's, because all
        launches of a rank share it. Each width has a scratch of its own.
        """
        if key.launch == "keylist":
            return {}
        layer, build = importlib.import_module(f"{PACKAGE}.layer"), key.values
        sizes = {
            "scratch": layer.scratch_bytes(
                build["tokens"], build["tp"], build["experts"], build["topk"], build["ug_groups"]
            ),
            "epoch": 4 * layer.EPOCH_WORDS,
        }
        if key.launch != "k1":
            sizes["sym"] = 2 * layer.peer_half_bytes(build["tp"])
        return sizes


FAMILY = DeepseekV41()
