"""The settings of the specialized decode."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeConfig:
    widths: tuple[int, ...] = tuple(range(1, 17))


def specialized_decode_config(config):
    return DecodeConfig() if config.kernel_config.monokernel else None
