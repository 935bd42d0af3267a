"""DeepSeek-V4.1-Flash: K1 and K2 of a whole decoder layer, the key list between them, and the FFN launch.

Facts are those of vLLM 0.33.0: ``vllm/models/deepseek_v41/amd/mono_decode.py`` (who runs what),
``mono/layer.py`` (the build key), ``mono/runner.py`` (which keys are asked for).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mono_runtime.families.base import Deployment, FamilyKeys, LaunchSpec
from mono_runtime.families.fields import Field
from mono_runtime.families.widths import Serving, decode_widths, graph_fields
from mono_runtime.launch_key import LaunchKey, Scalar

PACKAGE = "vllm.models.deepseek_v41.amd.mono"
MAX_ROWS = {"gfx950": 48, "gfx942": 42}
TARGET_ROUTING = (384, 6)
DRAFT_ROUTING = (128, 3)
WINDOW = 128
# The DSpark draft's index rows are padded to this (get_dspark_swa_index_width).
_SWA_ALIGNMENT = 64


# Columns of a routed expert, and of a rank's share of them as K2 reads it: padded to 128 with zeros
# (``mono/stages/dims.py``).
EXPERT_SIZE = 2304
EXPERT_COLUMNS = {2: 1152, 4: 640}


@dataclass(frozen=True, slots=True)
class Layer:
    """What a decoder layer needs of the kernels.

    Attributes:
        ratio: the compress ratio of its attention keys; 0 is a sliding window alone.
        fold: whether the previous layer's output is still owed to the residual.
        index: whether it selects the top-k itself (an index source).
        ffn_only: the engine runs its attention whatever the deployment.
    """

    ratio: int
    fold: bool
    index: bool
    ffn_only: bool = False


def layers_of(
    ratios: Sequence[int],
    index: Collection[int],
    engram: Collection[int],
    keys: Collection[int] = (),
) -> tuple[Layer, ...]:
    """The backbone's layers.

    Args:
        ratios: the compress ratio of each.
        index: numbers of the index sources.
        engram: numbers of the Engram layers. The residual arrives settled there, and at the first layer.
        keys: numbers of those that write compressed keys. One that does not index them too is none that
            the kernels' attention serves.
    """
    return tuple(
        Layer(
            ratio,
            fold=i > 0 and i not in engram,
            index=i in index,
            ffn_only=ratio > 0 and i in keys and i not in index,
        )
        for i, ratio in enumerate(ratios)
    )


def draft_layers_of(count: int) -> tuple[Layer, ...]:
    """The DSpark draft's layers, which run on a runner of their own."""
    return tuple(Layer(0, fold=i > 0, index=False) for i in range(count))


# The published config of DeepSeek-V4.1-Flash: 40 layers, their compress ratios, the index sources
# and the Engram layers; and its draft.
LAYERS = layers_of(
    (*(0,) * 2, *(2,) * 18, *(1,) * 20),
    index=frozenset((2, 8, 14, 20, 24, 28, 32, 36)),
    engram=frozenset((1, 14)),
)
DRAFT_LAYERS = draft_layers_of(3)

_BUILD = (
    Field("tokens", int, "Rows of the step.", minimum=1, maximum=48),
    Field("tp", int, "Tensor-parallel size.", choices=(2, 4)),
    Field("ratio", int, "Compress ratio of the layer's attention keys.", choices=(0, 1, 2)),
    Field("timeline", bool, "Stamp clocks, for profiling.", default=False),
    Field("fold", bool, "Fold the previous layer's output into the residual.", default=True),
    Field("index", bool, "The layer selects its own top-k.", default=False),
    Field("experts", int, "Routed experts: the target's or the draft's.", 384, choices=(384, 128)),
    Field("topk", int, "Experts a token takes.", default=6, choices=(6, 3)),
    Field("ug_groups", int, "FP4 groups of an up-gate task.", default=2, choices=(2, 1)),
    # With at most 48 rows a draft has at most 48 tokens, so its rows are 192 wide.
    Field("swa_width", int, "Width of the window's index rows.", WINDOW, choices=(128, 192)),
)


_KEY_LIST = "mono_build.kernels.deepseek_v41.key_list"


def _spec(name: str, doc: str) -> LaunchSpec:
    return LaunchSpec(
        name, doc, _BUILD, f"{PACKAGE}.layer:MonoBuild", f"{PACKAGE}.layer:build_mono_{name}"
    )


class DeepseekV41Keys(FamilyKeys):
    name = "deepseek_v41"
    title = "DeepSeek-V4.1-Flash"
    targets: Mapping[str, tuple[int, ...]] = {"gfx950": (2, 4), "gfx942": (4,)}
    tp_reasons: Mapping[str, str] = {
        "gfx950": "vLLM refuses other sizes",
        "gfx942": "vLLM prepares the gfx942 weight copies for TP 4 only",
    }
    launches = (
        _spec("k1", "Attention seam and attention front."),
        _spec("k2", "Attention back, FFN seam and experts, with both all-reduces."),
        _spec("ffn", "K2's FFN half, for a layer whose attention the engine runs."),
        # This project's own, in place of a kernel that vLLM compiles while it serves.
        LaunchSpec(
            "keylist",
            "An index source's keys, between the engine's indexer and K2; asked for on gfx942.",
            _BUILD[:1],
            f"{_KEY_LIST}:KeyListBuild",
            f"{_KEY_LIST}:build_key_list",
            persistent=False,
        ),
    )
    deployment_fields = (
        *graph_fields(drafts=5, most=47),
        Field("draft", bool, "Build the DSpark draft's launches too.", default=False),
        Field(
            "kv_cache_dtype",
            str,
            "The KV cache's format; with any but fp8_ds_mla the target takes the FFN launch alone.",
            default="fp8_ds_mla",
            choices=("fp8_ds_mla", "mxfp8"),
        ),
        Field(
            "indexer_kv_dtype",
            str,
            "The index cache's format (attention_config.indexer_kv_dtype). On gfx950 index sources take the"
            " FFN launch alone with any but mxfp4; gfx942 has no MXFP4 and runs them whole.",
            default="mxfp4",
            choices=("mxfp4", "fp8"),
        ),
    )

    def __init__(
        self, layers: Sequence[Layer] = LAYERS, draft_layers: Sequence[Layer] = DRAFT_LAYERS
    ) -> None:
        self.layers = tuple(layers)
        self.draft_layers = tuple(draft_layers)

    def widths(self, deployment: Deployment) -> tuple[int, ...]:
        if deployment.rows:
            return deployment.rows
        both = {*self._target_widths(deployment)}
        if deployment.settings["draft"]:
            both |= {*self._draft_widths(deployment)}
        return tuple(sorted(both))

    def deployment_keys(self, deployment: Deployment) -> list[LaunchKey]:
        keys = [*self._target_keys(deployment)]
        if deployment.settings["draft"]:
            keys += self._draft_keys(deployment)
        return list(dict.fromkeys(keys))

    def _target_widths(self, deployment: Deployment) -> tuple[int, ...]:
        limit = MAX_ROWS[deployment.arch]
        return deployment.rows or decode_widths(Serving.of(deployment), limit)

    def _draft_widths(self, deployment: Deployment) -> tuple[int, ...]:
        # DSpark samples from its anchor, so a request has one row for each draft token
        # (v1/worker/gpu/spec_decode/dspark/speculator.py), one less than the target.
        serving = Serving.of(deployment)
        limit = MAX_ROWS[deployment.arch]
        return deployment.rows or decode_widths(serving, limit, query=serving.drafts)

    def _target_keys(self, deployment: Deployment) -> Iterator[LaunchKey]:
        whole = deployment.settings["kv_cache_dtype"] == "fp8_ds_mla"
        for rows in self._target_widths(deployment):
            for layer in dict.fromkeys(self.layers):
                if not whole or self._ffn_only(deployment, layer):
                    yield self.key(deployment, "ffn", rows, {})
                    continue
                yield from self._pair(deployment, rows, layer, {})
                # Elsewhere an index source's K2 lists its keys itself.
                if layer.index and deployment.arch == "gfx942":
                    yield self.key(deployment, "keylist", rows, {})

    def _draft_keys(self, deployment: Deployment) -> Iterator[LaunchKey]:
        routing: dict[str, Scalar] = {"experts": DRAFT_ROUTING[0]}
        for rows in self._draft_widths(deployment):
            if deployment.arch == "gfx942":
                yield self.key(deployment, "ffn", rows, routing)
            elif deployment.settings["kv_cache_dtype"] == "fp8_ds_mla":
                for layer in dict.fromkeys(self.draft_layers):
                    yield from self._pair(deployment, rows, layer, routing)

    @staticmethod
    def _ffn_only(deployment: Deployment, layer: Layer) -> bool:
        # The selection between K1 and K2 is written for the MXFP4 indexer, where there is one.
        indexer = deployment.settings["indexer_kv_dtype"]
        foreign = layer.index and deployment.arch != "gfx942" and indexer != "mxfp4"
        return layer.ffn_only or foreign

    def _pair(
        self, deployment: Deployment, rows: int, layer: Layer, routing: dict[str, Scalar]
    ) -> Iterator[LaunchKey]:
        # On gfx942 the key list writes an index source's keys, so its K2 is the plain one.
        index = layer.index and deployment.arch != "gfx942"
        variant = {"ratio": layer.ratio, "fold": layer.fold, **routing}
        yield self.key(deployment, "k1", rows, {**variant, "index": layer.index})
        yield self.key(deployment, "k2", rows, {**variant, "index": index})

    def derived(
        self, deployment: Deployment, launch: str, build: Mapping[str, Scalar]
    ) -> dict[str, Scalar]:
        draft = build.get("experts") == DRAFT_ROUTING[0]
        found: dict[str, Scalar] = {"topk": DRAFT_ROUTING[1]} if draft else {}
        if draft or launch == "ffn":
            found["ratio"] = 0
        if draft and launch != "ffn":
            # A variant asked for without drafts still needs the draft's wider rows.
            drafts = max(deployment.integer("speculative_tokens"), 1)
            width = -(-(WINDOW + drafts) // _SWA_ALIGNMENT) * _SWA_ALIGNMENT
            found |= {"ug_groups": 1, "swa_width": width}
        return found

    def deployment_conflicts(self, deployment: Deployment) -> list[str]:
        if deployment.settings["draft"] and not deployment.integer("speculative_tokens"):
            return ["draft needs speculative_tokens of at least 1"]
        return []

    def conflicts(self, key: LaunchKey) -> list[str]:
        v, found = key.values, []
        limit = MAX_ROWS[key.arch]
        if int(v["tokens"]) > limit:
            found.append(f"tokens {v['tokens']} is too large for {key.arch} (nearest: {limit})")
        if key.launch == "keylist":
            return found
        routing = (v["experts"], v["topk"])
        if routing not in (TARGET_ROUTING, DRAFT_ROUTING):
            found.append(
                f"experts {routing[0]} with topk {routing[1]} is no routing of this model (384 with 6,"
                " or 128 with 3 for the draft)"
            )
        if v["index"] and v["ratio"] == 0:
            found.append("index needs a ratio of 1 or 2: an uncompressed layer selects no keys")
        rules = _ffn_conflicts if key.launch == "ffn" else _layer_conflicts
        return [*found, *rules(key, v)]


def _ffn_conflicts(key: LaunchKey, v: dict[str, Scalar]) -> list[str]:
    found = []
    if v["ratio"] or v["index"] or not v["fold"]:
        found.append("the ffn launch has no attention: ratio 0, index false and fold true only")
    if v["ug_groups"] != 2 or v["swa_width"] != WINDOW:
        found.append("the ffn launch is built with ug_groups 2 and swa_width 128 only")
    if v["experts"] == DRAFT_ROUTING[0] and key.arch != "gfx942":
        found.append("the draft takes the ffn launch on gfx942 only; elsewhere it takes k1 and k2")
    return found


def _layer_conflicts(key: LaunchKey, v: dict[str, Scalar]) -> list[str]:
    draft = v["experts"] == DRAFT_ROUTING[0]
    if key.arch == "gfx942":
        found = ["on gfx942 the draft takes the ffn launch only"] if draft else []
        if key.launch == "k2" and v["index"]:
            found.append(
                "on gfx942 k2 is built with index false only: the launch keylist lists the keys"
            )
    else:
        found = []
    if draft and (v["ratio"] or v["index"]):
        found.append("a draft layer has ratio 0 and no index")
    groups, width = (1, 192) if draft else (2, WINDOW)
    if v["ug_groups"] != groups or v["swa_width"] != width:
        whose = "the draft's" if draft else "the target's"
        found.append(f"{whose} layers are built with ug_groups {groups} and swa_width {width} only")
    return found


KEYS = DeepseekV41Keys()
