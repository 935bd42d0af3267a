"""The settings, by name."""

from .spec import specialized_decode_config as specialized_decode_config
