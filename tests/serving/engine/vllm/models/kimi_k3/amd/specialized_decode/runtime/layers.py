"""Compiling a build ahead of its first step: by a call with zeros that must not launch."""

from vllm.models.kimi_k3.amd.specialized_decode.mono import layer as k2
from vllm.models.kimi_k3.amd.specialized_decode.mono.attention import kda

calls_with_zeros = []


class WholeLayer:
    def _k1_key(self, qlen, state_len, delta):
        raise NotImplementedError

    def caches(self):
        raise NotImplementedError


def compile_build(key):
    launch = (kda if isinstance(key, kda.KdaPreBuild) else k2).build(key)
    calls_with_zeros.append(key)
    launch(0, 0, 0, stream=None)
