"""What the ranks of tests do; one `Session` lives in each process."""

from __future__ import annotations

import os
import signal
from typing import Any

import standin_hip
import torch.distributed as dist

from mono_runtime.errors import StoreDamaged
from mono_runtime.hip.driver import open_hip
from mono_runtime.ranks import PeerMemory, Statement, TorchGroup, agree, agree_or_fail, as_group


class Session:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.group: Any = dist.group.WORLD
        self.torch_group: TorchGroup | None = None
        self.memory: PeerMemory | None = None

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

    def exchange_with_default_device(self, payload: bytes, device: str) -> tuple[bytes, ...]:
        """An exchange where new tensors are on ``device``, as they are while an engine builds a model."""
        import torch

        with torch.device(device):
            return self.exchange(payload, 30.0)

    def type_of_group(self) -> str:
        return type(as_group(self.group)).__name__

    def use_foreign_backend(self) -> None:
        import torch.testing._internal.distributed.fake_pg  # noqa: F401 (registers the backend)

        TorchGroup(dist.new_group(backend="fake"))

    def use_group_without_cpu(self) -> None:
        """A process group with no backend for the CPU, as one of nccl alone has none."""
        TorchGroup(dist.ProcessGroup(0, 1))

    def send_foreign_header(self) -> None:
        self._meet([4, 4])

    def die_in_exchange(self, payload: bytes) -> None:
        """Die in the middle of an exchange: with the headers sent, and the payload not."""
        self._meet([0x6D6F6E6F72616E6B, len(payload)])
        os.kill(os.getpid(), signal.SIGKILL)

    def _meet(self, header: list[int]) -> None:
        """Exchange ``header`` with the others as the first half of an exchange does."""
        import torch

        peers = [r for r in range(dist.get_world_size()) if r != self.rank]
        works = [self.group.recv([torch.zeros(2, dtype=torch.int64)], r, 0x6D6F01) for r in peers]
        works += [self.group.send([torch.tensor(header)], r, 0x6D6F01) for r in peers]
        for work in works:
            work.wait()

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

    def make_memory(
        self, size: int, fail: dict[str, tuple[int, int]], timeout: float
    ) -> tuple[int, int]:
        """Peer memory over a stand-in HIP of four devices; its size and how many addresses it has."""
        self.hip = standin_hip.load()
        self.hip.reset(*[standin_hip.FakeDevice()] * 4)
        for symbol, (status, after) in fail.items():
            self.hip.fail(symbol, status, after=after)
        self.driver = open_hip(str(standin_hip.library()))
        self.memory = PeerMemory.allocate(self.driver, self.rank, size, self.group, timeout=timeout)
        return self.memory.size, len(set(self.memory.addresses))

    def flags(self) -> tuple[int, int]:
        """HIP's flags of the own buffer, and its device."""
        local = self._made.local
        return self.hip.memory_flags(local), self.hip.memory_device(local)

    def write(self, data: bytes) -> None:
        self.driver.write(self.rank, self._made.local, data)

    def read(self, size: int) -> list[bytes]:
        """The beginning of every rank's buffer."""
        return [self.driver.read(self.rank, a, size) for a in self._made.addresses]

    def close_memory(self, timeout: float) -> None:
        self._made.close(timeout)

    def alive(self) -> dict[str, int]:
        """What HIP has allocated and mapped in this process."""
        return self.hip.all_alive()

    def made_and_released(self) -> list[str]:
        return [name for name, _ in self.hip.log()]

    @property
    def _made(self) -> PeerMemory:
        if self.memory is None:
            raise RuntimeError("no memory was made")
        return self.memory
