"""Kimi-K3: K1 (a KDA layer's attention) and K2 (its output projection and experts).

Facts are those of vLLM 0.33.0 under ``vllm/models/kimi_k3/amd/specialized_decode``:
``runtime/__init__.py`` (widths, refusals), ``runtime/layers.py`` (which keys are asked for),
``mono/layer.py`` and ``mono/attention/kda.py`` (the build keys).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mono_runtime.families.base import Deployment, FamilyKeys, LaunchSpec
from mono_runtime.families.fields import Field
from mono_runtime.launch_key import LaunchKey, Scalar

PACKAGE = "vllm.models.kimi_k3.amd.specialized_decode.mono"
MAX_ROWS = 8
# A row of x in LDS (hidden size and padding, bf16), and what the rows may take (kda.build).
_ROW_BYTES = (7168 + 8) * 2
_ROWS_LDS = 136 * 1024
# The short convolution keeps this many entries besides the drafts (CONV_W - 1).
_CONV_STATE = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """What a decoder layer needs of the kernels.

    Attributes:
        blocks: AttnRes block sources before it (prev_valid_blocks).
        write: the block it writes, or -1.
        kda: whether K1 runs its attention; an MLA layer takes K2 alone.
    """

    blocks: int
    write: int
    kda: bool


def layers_of(
    count: int, block: int, kda: Collection[int], *, dense: int = 1, every: int = 1
) -> tuple[Layer, ...]:
    """The layers that the kernels run.

    Args:
        count: layers of the model.
        block: layers of an AttnRes block.
        kda: numbers of those whose attention is KDA; the others are MLA layers, which do not write blocks.
        dense: the first so many have no experts.
        every: of the others only every so many has.
    """
    with_experts = [i for i in range(max(dense, 1), count) if not i % every]
    return tuple(
        Layer(-(-i // block), i // block if i % block == 0 else -1, i in kda)
        for i in with_experts
        if i in kda or i % block
    )


# The published config of Kimi-K3: 93 layers, the first one dense, AttnRes blocks of 12 layers, MLA
# at every fourth layer and at the last.
_MLA = frozenset((*range(3, 93, 4), 92))
LAYERS = layers_of(93, 12, frozenset(range(93)) - _MLA)


def _eps(name: str, doc: str) -> Field:
    return Field(name, float, doc, default=1e-5, minimum=0.0, maximum=1.0)


_K1 = (
    # 136 KB of LDS hold 9 rows of x.
    Field("tokens", int, "Rows of the step.", minimum=1, maximum=9),
    Field("qlen", int, "Rows of a request.", minimum=1, maximum=16),
    Field("nblocks", int, "AttnRes block sources.", minimum=1, maximum=8),
    Field("delta", bool, "The previous layer's output is pending.", default=True),
    Field("state_len", int, "Entries of the convolution's state.", minimum=3, maximum=18),
    _eps("eps", "Epsilon of the AttnRes norm."),
    _eps("out_eps", "Epsilon of the input norm."),
    _eps("onorm_eps", "Epsilon of the gated output norm."),
    Field("lower_bound", float, "Lower bound of the gate's logarithm.", -5.0, maximum=0.0),
    Field("write_idx", int, "The block that is written, or -1.", -1, minimum=-1, maximum=7),
    Field("kda0", int, "First workgroup of the KDA tasks.", default=0, minimum=0, maximum=255),
)
_K2 = (
    Field("tokens", int, "Rows of the step.", minimum=1, maximum=MAX_ROWS),
    Field("nblocks", int, "AttnRes block sources.", minimum=1, maximum=8),
    _eps("eps", "Epsilon of the AttnRes norm."),
    _eps("out_eps", "Epsilon of the norm after attention."),
    _eps("ln_eps", "Epsilon of the latent norm."),
    Field("reduce", bool, "Reduce the experts' output here.", default=True),
    Field("reset", bool, "A block-write layer: the prefix restarts.", default=False),
    Field("fault_rank", int, "Rank that stalls, or -1 (tests).", -1, minimum=-1, maximum=7),
    Field("fault_epoch", int, "Step of the stall (tests).", default=0, minimum=0),
    Field("fault_layer", int, "Layer of the stall (tests).", default=0, minimum=0),
    Field("fault_ticks", int, "Length of the stall, 100 MHz ticks (tests).", default=0, minimum=0),
)


class KimiK3Keys(FamilyKeys):
    name = "kimi_k3"
    title = "Kimi-K3"
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (8,)}
    refusals: Mapping[str, str] = {
        "gfx942": "vLLM refuses it there, and K2 aborts LLVM (no scaled MFMA on CDNA3)"
    }
    tp_reasons: Mapping[str, str] = {"gfx950": "vLLM refuses other sizes"}
    launches = (
        LaunchSpec(
            "k1",
            "AttnRes, projections and the KDA recurrence.",
            _K1,
            f"{PACKAGE}.attention.kda:KdaPreBuild",
            f"{PACKAGE}.attention.kda:build",
        ),
        LaunchSpec(
            "k2",
            "Output projection, AttnRes and the latent experts.",
            _K2,
            f"{PACKAGE}.layer:K2Build",
            f"{PACKAGE}.layer:build",
        ),
    )
    deployment_fields = (
        Field(
            "speculative_tokens",
            int,
            "Draft tokens a request verifies in a step (num_speculative_tokens); vLLM takes the"
            " kernels for verifying steps only.",
            default=7,
            minimum=1,
            maximum=MAX_ROWS - 1,
        ),
        _eps("rms_norm_eps", "The checkpoint's rms_norm_eps."),
        _eps("o_norm_eps", "Epsilon of the KDA output norm."),
        Field(
            "gate_lower_bound",
            float,
            "The checkpoint's gate_lower_bound.",
            default=-5.0,
            maximum=0.0,
        ),
    )

    def __init__(self, layers: Sequence[Layer] = LAYERS) -> None:
        self.layers = tuple(layers)

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        """Whole requests, as many as fit: vLLM builds all of them when the server starts."""
        query = deployment.integer("speculative_tokens") + 1
        return deployment.rows or tuple(range(query, MAX_ROWS + 1, query))

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        keys: dict[LaunchKey, None] = {}
        for rows in self.widths(deployment):
            for layer in self.layers:
                keys.update(dict.fromkeys(self._layer_keys(deployment, rows, layer)))
        return list(keys)

    def _layer_keys(self, deployment: Deployment, rows: int, layer: Layer) -> Iterator[LaunchKey]:
        writes = layer.write >= 0
        if layer.kda:
            k1: dict[str, Scalar] = {"nblocks": layer.blocks, "write_idx": layer.write}
            yield self.key(deployment, "k1", rows, k1)
        k2: dict[str, Scalar] = {"nblocks": layer.blocks + writes, "reset": writes}
        yield self.key(deployment, "k2", rows, k2)

    def derived(
        self, deployment: Deployment, launch: str, build: Mapping[str, Scalar]
    ) -> dict[str, Scalar]:
        eps = deployment.number("rms_norm_eps")
        if launch == "k2":
            return {"eps": eps, "out_eps": eps, "ln_eps": eps}
        drafts = deployment.integer("speculative_tokens")
        return {
            "eps": eps,
            "out_eps": eps,
            "onorm_eps": deployment.number("o_norm_eps"),
            "lower_bound": deployment.number("gate_lower_bound"),
            "qlen": drafts + 1,
            "state_len": _CONV_STATE + drafts,
        }

    def conflicts(self, key: LaunchKey) -> list[str]:
        v = key.values
        return _k1_conflicts(v) if key.launch == "k1" else _k2_conflicts(v)


def _k1_conflicts(v: dict[str, Scalar]) -> list[str]:
    found = []
    tokens, qlen, blocks, write = (int(v[n]) for n in ("tokens", "qlen", "nblocks", "write_idx"))
    if tokens % qlen:
        near = max(tokens // qlen, 1) * qlen
        found.append(f"tokens {tokens} is not a multiple of qlen {qlen} (nearest: {near})")
    if tokens * _ROW_BYTES > _ROWS_LDS:
        found.append(f"{tokens} rows of x exceed the {_ROWS_LDS} bytes of LDS they may take")
    if write >= 0 and write != blocks:
        found.append(f"write_idx {write} must be nblocks ({blocks}): a layer writes the next block")
    if v["state_len"] != _CONV_STATE + qlen - 1:
        found.append(f"state_len must be {_CONV_STATE + qlen - 1} with qlen {qlen} (2 + qlen)")
    return found


def _k2_conflicts(v: dict[str, Scalar]) -> list[str]:
    found = []
    if v["reset"] and v["nblocks"] == 1:
        found.append("reset needs nblocks of at least 2: the block it wrote is a source too")
    faults = ("fault_epoch", "fault_layer", "fault_ticks")
    if v["fault_rank"] == -1 and any(v[n] for n in faults):
        found.append("fault_epoch, fault_layer and fault_ticks need a fault_rank")
    return found


KEYS = KimiK3Keys()
