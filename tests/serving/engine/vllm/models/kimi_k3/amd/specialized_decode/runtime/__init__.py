"""The settings of the specialized decode."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeConfig:
    q: int

    @property
    def widths(self):
        return tuple(range(self.q, 9, self.q))


def specialized_decode_config(vllm_config):
    if vllm_config.additional_config.get("decode_backend") != "latency_specialized":
        return None
    return DecodeConfig(vllm_config.speculative_config.num_speculative_tokens + 1)
