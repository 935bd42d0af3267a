"""A decoder layer that asks at every step; ``created`` and ``skipped`` note what happened."""

from .mono.runner import Runner

DRAFT_UG_GROUPS = 1
created = []
skipped = []
# Why a step takes the original path for the engine's own reasons, or None.
own_reason = None
_runners = {}


class MonoDecodeLayer:
    def __init__(self, ffn_only=False, draft=False, experts=384, topk=6, swa_width=128):
        self.ffn_only, self.draft = ffn_only, draft
        self.experts, self.topk, self.swa_width = experts, topk, swa_width

    @staticmethod
    def create(layer, vllm_config):
        created.append(layer)
        return MonoDecodeLayer() if vllm_config.kernel_config.monokernel else None

    @staticmethod
    def _skip(why):
        skipped.append(why)

    @staticmethod
    def _decode_step(layer, rows):
        return own_reason, None, None

    def __call__(
        self,
        layer,
        x,
        positions,
        residual,
        post_mix,
        res_mix,
        pre_mix,
        engram_hashes=None,
        engram_mask=None,
    ):
        rows = x.shape[0]
        if self.ffn_only:
            return None
        why, _, _ = self._decode_step(layer, rows)
        if why is not None:
            return self._skip(why)
        fold = not (residual is None or (layer.engram is not None and engram_hashes is not None))
        runner = _runners.setdefault(layer.tp, Runner(layer.tp))
        index = layer.attn.indexer is not None
        k1, k2 = runner.kernels(rows, layer.attn.compress_ratio, fold=fold, index=index)
        k1(1, 2, rows, stream=None)
        k2(1, 2, rows, stream=None)
        return "mono"

    def ffn(self, layer, part, residual, post_mix, res_mix, pre_mix):
        why, _, _ = self._decode_step(layer, part.shape[0])
        return self._skip(why) if why is not None else "mono"
