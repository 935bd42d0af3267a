"""Stand-ins for what vLLM gives the hook: its config, decoder layers, a step's metadata, its process.

They have the attributes of vLLM 0.33.0's objects that the hook reads and no others, and small tensors.
"""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace as Object
from typing import Any

import torch

from mono_runtime.counters import Counters

HC, HIDDEN, WINDOW_BLOCK = 4, 16, 32
RECORD = 584


class Mode(Enum):
    """vLLM's CUDAGraphMode, as far as steps have one."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


class Backend(Enum):
    AITER_MXFP4_BF16 = "AITER_MXFP4_BF16"
    TRITON = "TRITON"


class Fp8Indexer:
    """vLLM's DeepseekV4Indexer."""


class Mxfp4Indexer(Fp8Indexer):
    """vLLM's DeepseekV41RocmMxfp4Indexer."""


class OtherIndexer:
    """An indexer of another kind."""


def vllm_config(**changed: Any) -> Any:
    """A VllmConfig with mono kernels on; ``changed`` sets attributes by dotted path, ``__`` for a dot."""
    config = Object(
        kernel_config=Object(monokernel=True),
        parallel_config=Object(
            enable_expert_parallel=False, enable_eplb=False, data_parallel_size=1
        ),
        model_config=Object(
            hf_config=Object(
                num_hidden_layers=40,
                sliding_window=128,
                dspark_n_routed_experts=128,
                dspark_num_experts_per_tok=3,
            )
        ),
        speculative_config=Object(num_speculative_tokens=5),
    )
    return with_changes(config, changed)


def decoder_layer(number: int = 5, **changed: Any) -> Any:
    """A decoder layer of ratio 0 without an Engram, of the backbone below 40 and of the draft from 40 on."""
    experts, topk = (384, 6) if number < 40 else (128, 3)
    processed = Object(process_weights_after_loading=lambda module: None)
    prefix = f"model.layers.{number}.attn"
    layer = Object(
        attn=Object(
            layer_id=number,
            compress_ratio=0,
            kv_cache_dtype="fp8_ds_mla",
            kv_mxfp8=False,
            compressor=None,
            indexer=None,
            swa_cache_layer=Object(
                prefix=f"{prefix}.swa_cache",
                kv_cache=torch.zeros(3, WINDOW_BLOCK, RECORD, dtype=torch.uint8),
            ),
            compressed_cache_prefix=None,
            topk_indices_buffer=torch.zeros(48, 512, dtype=torch.int32),
            rotary_emb="the rotary table",
            indexer_rotary_emb="the indexer's rotary table",
            **{
                n: Object(quant_method=processed) for n in ("fused_wqa_wkv", "wq_b", "wo_a", "wo_b")
            },
        ),
        ffn=Object(
            shared_experts=Object(
                gate_up_proj=Object(quant_method=processed),
                down_proj=Object(quant_method=processed),
            ),
            gate=Object(tid2eid=None),
            experts=Object(
                routed_experts=Object(
                    quant_method=Object(
                        mxfp4_backend=Backend.AITER_MXFP4_BF16,
                        process_weights_after_loading=lambda module: None,
                    )
                )
            ),
            n_routed_experts=experts,
            n_activated_experts=topk,
            routed_scaling_factor=1.5,
            swiglu_limit=10.0,
            scoring_func="sqrtsoftplus",
            renormalize=True,
        ),
        use_sequence_parallel=False,
        fuse_seam_norm=True,
        engram=None,
        hc_mult=HC,
    )
    return with_changes(layer, changed)


def compressed_layer(number: int = 5, ratio: int = 2, *, rows: int = 64, **changed: Any) -> Any:
    """A backbone layer that reads compressed keys; blocks of ``rows`` tokens."""
    cache = torch.zeros(4, rows // ratio, RECORD, dtype=torch.uint8)
    return decoder_layer(
        number,
        attn__compress_ratio=ratio,
        attn__compressed_cache_prefix=f"model.layers.{number}.attn",
        attn___compressed_kv_cache=lambda: cache,
        **changed,
    )


def window(rows: int = 12, **changed: Any) -> Any:
    """Window metadata of a decode step."""
    found = Object(
        num_prefills=0,
        num_decodes=2,
        num_decode_tokens=rows,
        decode_swa_width=128,
        decode_swa_indices=torch.zeros(rows, 1, 128, dtype=torch.int32),
        decode_swa_lens=torch.zeros(rows, dtype=torch.int32),
        token_to_req_indices=torch.zeros(rows, dtype=torch.int32),
        slot_mapping=torch.zeros(rows, dtype=torch.int64),
        block_size=WINDOW_BLOCK,
    )
    return with_changes(found, changed)


def compressed(rows: int = 64) -> Any:
    """Metadata of a compressed cache with blocks of ``rows`` tokens."""
    return Object(block_size=rows, block_table=torch.zeros(2, 4, dtype=torch.int32))


def context(layer: Any, swa: Any = None, far: Any = None, **changed: Any) -> Any:
    """A forward pass's context with one layer's metadata."""
    metadata = {layer.attn.swa_cache_layer.prefix: swa}
    if layer.attn.compressed_cache_prefix is not None:
        metadata[layer.attn.compressed_cache_prefix] = far
    found = Object(
        attn_metadata={name: value for name, value in metadata.items() if value is not None},
        cudagraph_runtime_mode=Mode.FULL,
    )
    return with_changes(found, changed)


def with_changes(owner: Any, changed: dict[str, Any]) -> Any:
    """``owner`` with attributes set by path, ``__`` between names."""
    for path, value in changed.items():
        *names, last = path.replace("___", "__\0").split("__")
        found = owner
        for name in names:
            found = getattr(found, name)
        setattr(found, last.replace("\0", "_"), value)
    return owner


class FakeEngine:
    """A worker whose answers are attributes; it notes what it was told."""

    def __init__(self, arch: str = "gfx950", tp: int = 4, **changed: Any) -> None:
        self.values = {"arch": arch, "compute_units": 256, "tp": tp, "rank": 1, "a4w4": False}
        self.values |= {"group": "the ranks", "device": 3, "capturing": False, **changed}
        self.current: Any = None
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self.values:
            raise AttributeError(name)
        return lambda: self.values[name]

    def indexer_class(self, arch: str) -> type:
        return {"gfx942": Fp8Indexer, "gfx950": Mxfp4Indexer}[arch]

    def draft_width(self, window: int, drafts: int) -> int:
        return -(-(window + drafts) // 64) * 64

    def forward_context(self) -> Any:
        return self.current

    def record_switch(self, vllm_config: Any) -> None:
        self.told.append(f"monokernel {vllm_config.kernel_config.monokernel}")

    def build_topk(self) -> None:
        self.told.append("topk")


class FakeRunner:
    """Notes its calls, and answers with tensors that tell them apart."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.calls: list[Object] = []
        self.forgotten: list[Any] = []
        self.closed = False

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        pre = torch.zeros(rows, HC)
        pre[:, 0] = 1
        return pre

    def forward(
        self,
        weights: Any,
        step: Any,
        x: Any,
        residual: Any,
        post_mix: Any,
        res_mix: Any,
        pre_mix: Any,
        *,
        fold: bool,
        select: Any,
    ) -> str:
        self.calls.append(
            Object(
                weights=weights,
                step=step,
                x=x,
                residual=residual,
                mixes=(post_mix, res_mix, pre_mix),
                fold=fold,
                select=select,
            )
        )
        return f"outputs of call {len(self.calls)}"

    def ffn(self, weights: Any, *tensors: Any, topk: int) -> str:
        self.calls.append(Object(weights=weights, tensors=tensors, topk=topk))
        return f"outputs of call {len(self.calls)}"

    def forget(self, weights: Any) -> None:
        self.forgotten.append(weights)

    def close(self) -> None:
        self.closed = True


class FakePrepared:
    """Launches of these widths and of all variants, except those that ``lacks`` says are not there."""

    def __init__(self, widths: set[int], lacks: Any = lambda name, rows, variant: False) -> None:
        self.widths = frozenset(widths)
        self.lacks = lacks
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.declined: list[str] = []
        self.loads = 0
        self.alike = True
        self.store = Object(counters=Counters())
        self.miss: Exception | None = None

    def key(self, name: str, rows: int, **variant: Any) -> tuple[str, int, dict[str, Any]]:
        return name, rows, variant

    def has(self, key: tuple[str, int, dict[str, Any]]) -> bool:
        return not self.lacks(*key)

    def load(self, keys: Any) -> bool:
        self.asked += keys
        self.loads += 1
        if self.miss is not None:
            raise self.miss
        return self.alike

    def decline(self, fact: str) -> str:
        self.declined.append(fact)
        return fact


class FakeServing:
    """Gives what it was made with, and notes how it was asked."""

    def __init__(self, prepared: Any) -> None:
        self.prepared = prepared
        self.asked: list[dict[str, Any]] = []

    def prepare(self, vllm_config: Any, **how: Any) -> Any:
        self.asked.append(how)
        return self.prepared


class FakeMaker:
    """Makes runners that note their calls."""

    def __init__(self) -> None:
        self.made: list[FakeRunner] = []
        self.closed = False

    def make(self, prepared: Any, engine: Any, kind: Any) -> Any:
        self.made.append(FakeRunner(kind))
        return self.made[-1]

    def close(self) -> None:
        self.closed = True
