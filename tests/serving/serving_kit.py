"""Servers of tests: their configuration as an object, a store for it, and the engine's modules changed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from engine_kit import k3, m3, v4, v41
from runtime_kit import k1, publish

from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config
from mono_runtime.hooks.plugin import changes
from mono_runtime.hooks.serving import Serving
from mono_runtime.hooks.vllm_factories.families import MODULES
from mono_runtime.launch_key import LaunchKey

V41, V4 = "vllm.models.deepseek_v41.amd", "vllm.models.deepseek_v4.amd"
K3 = "vllm.models.kimi_k3.amd"
M3 = "vllm.models.minimax_m3.amd"
# Few widths each, so that a store has few launches.
CONFIGS: dict[str, dict[str, Any]] = {
    # Two requests of a sampled token and five drafts: 6 and 12 rows.
    "deepseek_v41": v41(scheduler_config={"max_num_seqs": 2}),
    "deepseek_v4": v4(scheduler_config={"max_num_seqs": 1}),
    "kimi_k3": k3(speculative_config={"num_speculative_tokens": 3}),
    "minimax_m3": m3(),
}


def config(family: str, **sections: Any) -> Any:
    """A server's configuration as vLLM has it: an object."""
    from engine_kit import merged

    return _object(merged(CONFIGS[family], sections))


def planned(family: str, **sections: Any) -> Planned:
    """What that server asks for on gfx950."""
    found = plan_deployment(read_engine_config(config(family, **sections)), "gfx950")
    if not isinstance(found, Planned):
        raise ValueError(found.reasons)
    return found


def store_of(path: Path, keys: Iterable[LaunchKey], used: Any = None) -> Path:
    """A store whose launches take ``(x, out, n, stream)``, one code object for each number of rows."""
    made = [replace(k1(int(key.values["tokens"]), key.arch), key=key) for key in keys]
    return publish(path, *made, used=used)


def serving_of(store: Path, **variables: str) -> Serving:
    """A server process with this store, in which vLLM's own runner runs V4.1."""
    return Serving(environ={"MONO_STORE": str(store), "MONO_V41_RUNNER": "vllm", **variables})


def change(serving: Serving, family: str) -> dict[str, ModuleType]:
    """The family's modules, each changed as soon as it is imported."""
    changing: Mapping[str, Callable[[ModuleType], None]] = changes(serving)
    found = {}
    for name in MODULES[family]:
        found[name] = importlib.import_module(name)
        changing[name](found[name])
    return found


def rows(count: int) -> Any:
    """A tensor, as far as its rows are looked at."""
    return SimpleNamespace(shape=(count, 5120))


def ranks_of(group: object) -> None:
    """Make ``group`` the engine's tensor-parallel ranks in this thread."""
    sys.modules["vllm.distributed"].here.group = group


# vLLM and a checkpoint's configuration keep these as dictionaries.
_DICTIONARIES = (
    "additional_config",
    "compress_rates",
    "linear_attn_config",
    "sparse_attention_config",
)


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {n: v if n in _DICTIONARIES else _object(v) for n, v in value.items()}
    fields.pop("environment", None)
    return SimpleNamespace(**fields)
