"""A decoder layer that asks at every step; ``skipped`` notes what happened."""

from .mono.runner import Runner

CSA, HCA = 4, 128
skipped = []
_runners = {}


class MonoDecodeLayer:
    def __init__(self, hca_width):
        self.hca_width = hca_width

    @classmethod
    def create(cls, layer, vllm_config):
        width = vllm_config.model_config.max_model_len // HCA
        return cls(width) if vllm_config.kernel_config.monokernel else None

    @staticmethod
    def _skip(why):
        skipped.append(why)

    @staticmethod
    def _decode_step(layer, rows):
        return None, None, None

    def __call__(self, layer, x, positions, input_ids, post_mix, res_mix, residual):
        rows, ratio = x.shape[0], layer.attn.compress_ratio
        hash_route = layer.ffn.gate.tid2eid is not None
        table = {"topk": self.hca_width, "global_keys": True} if ratio == HCA else {}
        k1, k2 = _runners.setdefault(8, Runner(8)).kernels(
            rows,
            ratio,
            fold=residual is not None,
            hash_route=hash_route,
            two_hop=rows >= 42,
            **table,
        )
        k1(1, 2, rows, stream=None)
        k2(1, 2, rows, stream=None)
        return "mono"
