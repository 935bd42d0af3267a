"""The model, which takes the settings by name."""

from .specialized_decode.runtime import specialized_decode_config


def build_model(vllm_config):
    return specialized_decode_config(vllm_config)
