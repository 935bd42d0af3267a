"""DeepSeek-V4-Pro: K1 and K2 of a whole decoder layer.

Facts are those of vLLM 0.33.0: ``vllm/models/deepseek_v4/amd/mono_decode.py`` (who runs what),
``mono/layer.py`` (the build key), ``mono/runner.py`` (which keys are asked for), ``mono/dims.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mono_runtime.families.base import Deployment, FamilyKeys, LaunchSpec
from mono_runtime.families.fields import Field
from mono_runtime.families.widths import Serving, decode_widths, graph_fields
from mono_runtime.launch_key import LaunchKey, Scalar

PACKAGE = "vllm.models.deepseek_v4.amd.mono"
MAX_ROWS = 64
# From this width on the all-reduces take two hops (TWO_HOP_ROWS).
TWO_HOP_ROWS = 42
# Compress ratios: CSA layers read a top-k of the compressed keys, HCA layers read all of them.
CSA, HCA = 4, 128
# The HCA key table's width is padded to this (_C128A_TOPK_ALIGNMENT).
_KEY_ALIGNMENT = 128
# The kernels' README: the longest context is 1 M tokens, a table of 8192.
LONGEST_CONTEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """What a decoder layer needs of the kernels.

    Attributes:
        ratio: the compress ratio of its attention keys.
        fold: whether the previous layer's output is still owed to the residual.
        hash_route: whether its experts follow from the token ids.
    """

    ratio: int
    fold: bool
    hash_route: bool


def layers_of(ratios: Sequence[int], hashed: int) -> tuple[Layer, ...]:
    """The layers that the kernels run, from each layer's compress ratio and the number that route by hash.

    The residual arrives settled at the first layer. A layer of another ratio runs the engine's own path.
    """
    return tuple(
        Layer(ratio, fold=i > 0, hash_route=i < hashed)
        for i, ratio in enumerate(ratios)
        if ratio in (CSA, HCA)
    )


# The published config of DeepSeek-V4-Pro: 61 layers, ratios 128, 128, 4, 128, 4, ...; the first
# three route by hash.
LAYERS = layers_of([CSA if i > 1 and i % 2 == 0 else HCA for i in range(61)], hashed=3)

_BUILD = (
    Field("tokens", int, "Rows of the step.", minimum=1, maximum=MAX_ROWS),
    Field("tp", int, "Tensor-parallel size.", choices=(8,)),
    Field("ratio", int, "Compress ratio of the layer's attention keys.", choices=(CSA, HCA)),
    Field("timeline", bool, "Stamp clocks, for profiling.", default=False),
    Field("fold", bool, "Fold the previous layer's output into the residual.", default=True),
    Field("hash_route", bool, "Experts follow from the token ids.", default=False),
    Field(
        "topk",
        int,
        "Width of an HCA layer's key table; 0 on a CSA layer.",
        default=0,
        minimum=0,
        maximum=LONGEST_CONTEXT // HCA,
        multiple=_KEY_ALIGNMENT,
    ),
    Field("two_hop", bool, "The all-reduces take two hops.", default=False),
    Field("global_keys", bool, "The key table holds slots, not indices.", default=False),
)


def _spec(name: str, doc: str) -> LaunchSpec:
    return LaunchSpec(
        name, doc, _BUILD, f"{PACKAGE}.layer:MonoBuild", f"{PACKAGE}.layer:build_mono_{name}"
    )


def key_table_width(max_model_len: int) -> int:
    """Keys of an HCA layer's table: every compressed row of the longest context, padded."""
    rows = -(-max_model_len // HCA)
    return -(-rows // _KEY_ALIGNMENT) * _KEY_ALIGNMENT


class DeepseekV4Keys(FamilyKeys):
    name = "deepseek_v4"
    title = "DeepSeek-V4-Pro"
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (8,)}
    refusals: Mapping[str, str] = {
        "gfx942": "vLLM refuses it there: the kernels use CDNA4's MX instructions"
    }
    tp_reasons: Mapping[str, str] = {"gfx950": "vLLM refuses other sizes"}
    launches = (
        _spec("k1", "Attention seam and attention front."),
        _spec("k2", "Attention back, FFN seam and experts, with both all-reduces."),
    )
    deployment_fields = (
        *graph_fields(drafts=6, most=63),
        Field(
            "max_model_len",
            int,
            "Longest context (--max-model-len); the HCA layers' key table is as wide.",
            default=LONGEST_CONTEXT,
            minimum=1,
            maximum=LONGEST_CONTEXT,
        ),
    )

    def __init__(self, layers: Sequence[Layer] = LAYERS) -> None:
        self.layers = tuple(layers)

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        return deployment.rows or decode_widths(Serving.of(deployment), MAX_ROWS)

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        layers = dict.fromkeys(self.layers)
        return [
            self.key(
                deployment,
                launch,
                rows,
                {"ratio": layer.ratio, "fold": layer.fold, "hash_route": layer.hash_route},
            )
            for rows in self.widths(deployment)
            for layer in layers
            for launch in ("k1", "k2")
        ]

    def derived(
        self, deployment: Deployment, launch: str, build: Mapping[str, Scalar]
    ) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {"two_hop": int(build["tokens"]) >= TWO_HOP_ROWS}
        if build.get("ratio") == HCA:
            width = key_table_width(deployment.integer("max_model_len"))
            found |= {"global_keys": True, "topk": width}
        return found

    def conflicts(self, key: LaunchKey) -> list[str]:
        v, found = key.values, []
        two_hop = int(v["tokens"]) >= TWO_HOP_ROWS
        if v["two_hop"] != two_hop:
            need = "true" if two_hop else "false"
            found.append(f"two_hop must be {need} at {v['tokens']} tokens (true from 42 on)")
        hca = v["ratio"] == HCA
        if v["global_keys"] != hca:
            found.append("global_keys must be true with ratio 128 and false with ratio 4")
        if (v["topk"] != 0) != hca:
            found.append(
                "topk must be 0 with ratio 4, and the key table's width with ratio 128"
                " (max_model_len / 128, in steps of 128)"
            )
        return found


KEYS = DeepseekV4Keys()
