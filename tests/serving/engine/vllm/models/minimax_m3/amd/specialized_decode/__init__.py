"""The settings, by name."""

from .runtime import specialized_decode_config as specialized_decode_config
