"""What the ranks of tests do; one `Session` lives in each process."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch.distributed as dist

from mono_runtime.errors import StoreDamaged
from mono_runtime.ranks import Statement, TorchGroup, agree, agree_or_fail


class Session:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.group: Any = dist.group.WORLD
        self.torch_group: TorchGroup | None = None

    def new_group(self) -> None:
        """From now on use a group of its own, whose connections nothing has closed."""
        self.group = dist.new_group(backend="gloo")
        self.spare = dist.new_group(backend="gloo")
        self.torch_group = None

    def use_spare_group(self) -> None:
        """From now on use a group that was made with the last one and never used."""
        self.group = self.spare
        self.torch_group = None

    def exchange(self, payload: bytes, timeout: float) -> tuple[bytes, ...]:
        if self.torch_group is None:
            self.torch_group = TorchGroup(self.group)
        return self.torch_group.exchange(payload, timeout=timeout)

    def die_in_exchange(self, payload: bytes, timeout: float) -> tuple[bytes, ...]:
        """Die in the middle of an exchange: with the headers sent, and the payloads not."""
        import torch

        receive = [torch.zeros(2, dtype=torch.int64) for _ in range(dist.get_world_size())]
        send = torch.tensor([0x6D6F6E6F72616E6B, len(payload)])
        peers = [r for r in range(dist.get_world_size()) if r != self.rank]
        works = [self.group.recv([receive[r]], r, 0x6D6F01) for r in peers]
        works += [self.group.send([send], r, 0x6D6F01) for r in peers]
        for work in works:
            work.wait()
        os.kill(os.getpid(), signal.SIGKILL)
        return ()

    def agree(self, statement: Statement, timeout: float) -> tuple[Statement, ...]:
        return agree(self.group, statement, timeout=timeout)

    def load_and_agree(
        self, statement: Statement, damaged: str | None, timeout: float
    ) -> tuple[Statement, ...]:
        """Agree on ``statement``, unless loading fails because the blob ``damaged`` is."""

        def load() -> Statement:
            if damaged is not None:
                raise StoreDamaged(
                    f"{damaged} does not match its digest", where="/store", fix="build it again"
                )
            return statement

        return agree_or_fail(self.group, load, timeout=timeout)
