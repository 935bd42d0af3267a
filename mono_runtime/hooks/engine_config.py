"""What a vLLM server was started with, read from its configuration object or from the JSON description of one.

Paths, names and defaults are those of vLLM 0.33.0 (``vllm/config``). Only what decides which launches a
server asks for is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mono_runtime.families.widths import FULL_AND_PIECEWISE
from mono_runtime.hooks.config_facts import (
    EngineConfigError,
    Plain,
    find,
    flag,
    graph_mode,
    integer,
    integers,
    plain,
    present,
    put,
    text,
    texts,
    wrong,
)
from mono_runtime.hooks.model_facts import NAMES, ModelFacts, read_model

__all__ = ["EngineConfig", "EngineConfigError", "describe", "read_engine_config", "unread"]

MODEL = "model_config"
SPECULATION = "speculative_config"
DRAFT = f"{SPECULATION}.draft_model_config"
ENVIRONMENT = "environment"
_REQUIRED = object()
# Variables that change what a server asks for. vLLM sets the first itself for DeepSeek-V4.1.
BREAKABLE_GRAPHS = "VLLM_USE_BREAKABLE_CUDAGRAPH"
FP4_ACTIVATIONS = "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4"
FP8_PADDING = "VLLM_ROCM_FP8_PADDING"
VARIABLES = (BREAKABLE_GRAPHS, FP4_ACTIVATIONS, FP8_PADDING)


def _fact(path: str, read: Callable[[str, object], object], default: object = _REQUIRED) -> Any:
    return field(metadata={"path": path, "read": read, "default": default})


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """A server's configuration, as far as its launches depend on it; plain values alone.

    Attributes:
        model: the checkpoint's configuration; ``draft_model`` that of a speculative draft.
        drafts: draft tokens that a request verifies in a step; 0 without speculative decoding.
        capture_sizes: graph sizes in rows as the server has computed or was given them; None where a
            description leaves them out, empty where the server has no graphs.
        graphs: name of vLLM's graph mode before the model runner resolves it (`graphs_in_use`).
        environment: the set ones of `VARIABLES`.
    """

    model_type: str = _fact(f"{MODEL}.hf_config.model_type", text)
    architectures: tuple[str, ...] = _fact(f"{MODEL}.architectures", texts, ())
    max_model_len: int | None = _fact(f"{MODEL}.max_model_len", integer, None)
    enforce_eager: bool = _fact(f"{MODEL}.enforce_eager", flag, False)
    monokernel: bool = _fact("kernel_config.monokernel", flag, False)
    moe_backend: str = _fact("kernel_config.moe_backend", text, "auto")
    decode_backend: str = _fact("additional_config.decode_backend", text, "auto")
    tensor_parallel: int = _fact("parallel_config.tensor_parallel_size", integer, 1)
    pipeline_parallel: int = _fact("parallel_config.pipeline_parallel_size", integer, 1)
    data_parallel: int = _fact("parallel_config.data_parallel_size", integer, 1)
    decode_context_parallel: int = _fact("parallel_config.decode_context_parallel_size", integer, 1)
    prefill_context_parallel: int = _fact(
        "parallel_config.prefill_context_parallel_size", integer, 1
    )
    expert_parallel: bool = _fact("parallel_config.enable_expert_parallel", flag, False)
    expert_balancing: bool = _fact("parallel_config.enable_eplb", flag, False)
    microbatching: bool = _fact("parallel_config.use_ubatching", flag, False)
    max_num_seqs: int | None = _fact("scheduler_config.max_num_seqs", integer, None)
    max_num_batched_tokens: int | None = _fact(
        "scheduler_config.max_num_batched_tokens", integer, None
    )
    drafts: int = _fact(f"{SPECULATION}.num_speculative_tokens", integer, 0)
    draft_method: str = _fact(f"{SPECULATION}.method", text, "")
    adaptive_verification: bool = _fact(f"{SPECULATION}.enable_adaptive_verification", flag, False)
    dynamic_drafts: bool = _fact(
        f"{SPECULATION}.num_speculative_tokens_per_batch_size", present, False
    )
    graphs: str = _fact("compilation_config.cudagraph_mode", graph_mode, FULL_AND_PIECEWISE)
    capture_sizes: tuple[int, ...] | None = _fact(
        "compilation_config.cudagraph_capture_sizes", integers, None
    )
    max_capture_size: int | None = _fact(
        "compilation_config.max_cudagraph_capture_size", integer, None
    )
    performance_mode: str = _fact("performance_mode", text, "balanced")
    cache_dtype: str = _fact("cache_config.cache_dtype", text, "auto")
    block_size: int | None = _fact("cache_config.block_size", integer, None)
    indexer_dtype: str = _fact("attention_config.indexer_kv_dtype", text, "auto")
    second_runner: bool = _fact("use_v2_model_runner", flag, True)
    model: ModelFacts = field(default_factory=lambda: ModelFacts(f"{MODEL}.hf_config", {}))
    draft_model: ModelFacts = field(default_factory=lambda: ModelFacts(f"{DRAFT}.hf_config", {}))
    environment: Mapping[str, str] = field(default_factory=dict)

    def switched_on(self, variable: str, default: bool) -> bool:
        """Whether a variable is set to something true, as vLLM reads it (``1`` or ``true``)."""
        value = self.environment.get(variable)
        return default if value is None else value.strip().lower() in ("1", "true")


def read_engine_config(config: object, environ: Mapping[str, str] | None = None) -> EngineConfig:
    """The facts of ``config``, a ``VllmConfig`` or the mapping of a description of one.

    Args:
        environ: the server's environment. By default this process's for an object, and what the
            description has under ``environment`` for a mapping.

    Raises:
        EngineConfigError: a fact is missing or of another type; ``where`` is its path.
    """
    if isinstance(config, (str, bytes, list, tuple, int, float, type(None))):
        raise EngineConfigError(
            f"not a vLLM configuration: {type(config).__name__}",
            fix="give the configuration object, or a JSON object with the sections that vLLM's has",
        )
    values = {f.name: _read(config, f.metadata) for f in _described()}
    if find(config, SPECULATION) is not None:
        # A draft model has launches of its own, so nothing can be said without either.
        for name, needed in (("drafts", "num_speculative_tokens"), ("draft_method", "method")):
            if not values[name]:
                raise _missing(f"{SPECULATION}.{needed}")
    values["architectures"] = values["architectures"] or _architectures(config)
    return EngineConfig(
        **values,
        model=read_model(config, MODEL),
        draft_model=read_model(config, DRAFT),
        environment=_environment(config, environ),
    )


def describe(config: object, environ: Mapping[str, str] | None = None) -> dict[str, Plain]:
    """The JSON description of ``config``: what `read_engine_config` reads of it, where it found it.

    Errors: as for `read_engine_config`.
    """
    facts = read_engine_config(config, environ)
    found: dict[str, Plain] = {}
    for entry in _described():
        path, value = entry.metadata["path"], getattr(facts, entry.name)
        if value is not None and (facts.drafts or not path.startswith(SPECULATION)):
            put(found, path, plain(value))
    for path, model in ((MODEL, facts.model), (DRAFT, facts.draft_model)):
        for name, value in model.values.items():
            put(found, f"{path}.hf_config.{name}", value)
    if facts.environment:
        found[ENVIRONMENT] = dict(facts.environment)
    return found


def unread(description: Mapping[str, object]) -> tuple[str, ...]:
    """Names of a description that are probably misspelt: not read, and near one that is read and absent."""
    known: dict[str, set[str]] = {}
    for entry in _described():
        section, _, name = str(entry.metadata["path"]).rpartition(".")
        known.setdefault(section, set()).add(name)
    known[f"{MODEL}.hf_config"] |= {n.partition(".")[0] for n in NAMES}
    known.setdefault("", set()).update(path.partition(".")[0] for path in known if path)
    found = []
    for section, names in known.items():
        given = find(description, section) if section else description
        if isinstance(given, Mapping):
            found += [f"{section}.{n}".lstrip(".") + f" ({why})" for n, why in _near(given, names)]
    return tuple(found)


def _near(given: Mapping[str, object], names: set[str]) -> list[tuple[str, str]]:
    import difflib

    absent = sorted(names - given.keys())
    found = []
    for name in given.keys() - names:
        close = difflib.get_close_matches(str(name), absent, n=1, cutoff=0.85)
        if close:
            found.append((name, f"did you mean {close[0]}?"))
    return sorted(found)


def _described() -> list[Any]:
    return [f for f in fields(EngineConfig) if "path" in f.metadata]


def _read(config: object, metadata: Mapping[str, Any]) -> Any:
    value = find(config, metadata["path"])
    if value is not None:
        return metadata["read"](metadata["path"], value)
    if metadata["default"] is _REQUIRED:
        raise _missing(metadata["path"])
    return metadata["default"]


def _architectures(config: object) -> tuple[str, ...]:
    # vLLM's object has them beside the checkpoint's configuration too, a description need not.
    path = f"{MODEL}.hf_config.architectures"
    value = find(config, path)
    return () if value is None else texts(path, value)


def _missing(path: str) -> EngineConfigError:
    return EngineConfigError(
        f"{path} is missing",
        where=path,
        fix="state it, or take the file that a server writes (MONO_CONFIG_FILE)",
    )


def _environment(config: object, environ: Mapping[str, str] | None) -> dict[str, str]:
    if environ is None and isinstance(config, Mapping):
        given = config.get(ENVIRONMENT) or {}
        if not isinstance(given, Mapping):
            raise wrong(ENVIRONMENT, "texts by name", given)
        environ = {str(n): text(f"{ENVIRONMENT}.{n}", v) for n, v in given.items()}
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in VARIABLES if name in environ}
