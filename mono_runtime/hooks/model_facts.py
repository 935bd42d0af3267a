"""What a checkpoint's configuration says of its model, as far as a family's launches depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mono_runtime.hooks.config_facts import (
    Plain,
    counts,
    find,
    flag,
    integer,
    integers,
    number,
    put,
    text,
    texts,
)

T = TypeVar("T")

# Names in vLLM 0.33.0's model configurations (transformers_utils/configs, and transformers' own of
# DeepSeek-V4). vLLM lifts a nested text model's in some and not in others.
NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "scoring_func",
    "swiglu_limit",
    "norm_topk_prob",
    "sliding_window",
    # DeepSeek-V4.1
    "compress_ratios",
    "kv_source_layer_ids",
    "index_source_layer_ids",
    "engram_layer_ids",
    "dspark_n_routed_experts",
    "dspark_num_experts_per_tok",
    "n_mtp_layers",
    "num_nextn_predict_layers",
    "sample_from_anchor",
    # DeepSeek-V4
    "layer_types",
    "compress_rates",
    "mlp_layer_types",
    "vision_n_layers",
    # Kimi-K3
    "num_experts",
    "rms_norm_eps",
    "attn_res_block_size",
    "first_k_dense_replace",
    "moe_layer_freq",
    "linear_attn_config.num_heads",
    "linear_attn_config.head_dim",
    "linear_attn_config.short_conv_kernel_size",
    "linear_attn_config.gate_lower_bound",
    "linear_attn_config.kda_layers",
    # MiniMax-M3
    "num_local_experts",
    "intermediate_size",
    "sparse_attention_config.sparse_attention_freq",
    "use_index_cache",
    "index_topk_freq",
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model configuration's values of `NAMES`; asking for one checks its type.

    Attributes:
        path: where the configuration was found, for messages.
        values: what it has.
    """

    path: str
    values: Mapping[str, Plain]

    def __bool__(self) -> bool:
        return bool(self.values)

    def integer(self, name: str) -> int | None:
        """An integer, or None where the configuration does not say."""
        return self._read(name, integer)

    def number(self, name: str) -> float | None:
        """A number, or None where the configuration does not say."""
        return self._read(name, number)

    def flag(self, name: str) -> bool | None:
        """True or false, or None where the configuration does not say."""
        return self._read(name, flag)

    def text(self, name: str) -> str | None:
        """Text, or None where the configuration does not say."""
        return self._read(name, text)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or None where the configuration does not say."""
        return self._read(name, integers)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, or None where the configuration does not say."""
        return self._read(name, texts)

    def counts(self, name: str) -> dict[str, int] | None:
        """Integers by name, or None where the configuration does not say."""
        return self._read(name, counts)

    def _read(self, name: str, read: Callable[[str, object], T]) -> T | None:
        value = self.values.get(name)
        return None if value is None else read(f"{self.path}.{name}", value)

    def to_json(self) -> dict[str, Plain]:
        """The values as a model configuration has them."""
        nested: dict[str, Plain] = {}
        for name, value in self.values.items():
            put(nested, name, value)
        return nested


def read_model(root: object, path: str) -> ModelFacts:
    """The facts of the model configuration below ``path`` (``hf_config``, and its text model's before it)."""
    values: dict[str, Plain] = {}
    for name in NAMES:
        found = next(_everywhere(root, path, name), None)
        if found is not None:
            values[name] = _plain(found)
    return ModelFacts(f"{path}.hf_config", values)


def _everywhere(root: object, path: str, name: str) -> Iterator[object]:
    for place in ("hf_text_config", "hf_config.text_config", "hf_config"):
        value = find(root, f"{path}.{place}.{name}")
        if value is not None:
            yield value


def _plain(value: object) -> Plain:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(n): _plain(v) for n, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [
            _plain(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)
        ]
    # Whoever asks for this one is told what it is.
    return {"unknown": repr(value)}
