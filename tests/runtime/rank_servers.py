"""What a rank of a server does in tests; one `Session` lives in each process, or in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import standin_hip
from runtime_kit import FAMILY, opened
from standin_hip import FakeDevice

from mono_runtime.launch_key import LaunchKey
from mono_runtime.store import Store


class Server:
    """One rank's store and its loader on the device of the rank's number."""

    def __init__(self, rank: int, group: object, store: Path, policy: str = "strict") -> None:
        self.group = group
        self.store: Store = opened(store, policy=policy)
        self.loader = self.store.on(rank)

    def preload(
        self, keys: Sequence[LaunchKey], timeout: float, progress_fails: bool = False
    ) -> tuple[int, int, int]:
        """Collective: launches that were loaded, that shared, and that failed."""

        def progress(done: int, total: int, key: LaunchKey) -> None:
            if progress_fails:
                raise OSError("the terminal is gone")

        summary = self.loader.preload(keys, group=self.group, timeout=timeout, progress=progress)
        return summary.loaded, summary.shared, len(summary.failed)


class Session:
    """A rank that is a process; the jobs of `rank_processes.Ranks`."""

    def __init__(self, rank: int) -> None:
        import torch.distributed as dist

        self.rank = rank
        self.group = dist.group.WORLD
        self.server: Server | None = None

    def open(self, store: Path, policy: str, compute_units: int = 304) -> None:
        """Over a stand-in HIP of four devices, of which this rank uses its own."""
        self.hip = standin_hip.load()
        self.hip.reset(*[FakeDevice(compute_units=compute_units)] * 4)
        self.server = Server(self.rank, self.group, store, policy)

    def preload(
        self, keys: Sequence[LaunchKey], timeout: float, progress_fails: bool = False
    ) -> tuple[int, int, int]:
        return self._opened.preload(keys, timeout, progress_fails)

    def fail(self, symbol: str, status: int) -> None:
        self.hip.fail(symbol, status)

    def step(self) -> list[tuple[int, str, bytes]]:
        """Launch on the rank's own device; device, kernel and kernargs of what was sent."""
        server = self._opened
        launch = server.loader.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        stream = server.store.driver.create_stream(self.rank)
        launch(self.rank, 2, 3, stream=stream)
        server.store.driver.destroy_stream(self.rank, stream)
        return [(r.device, r.symbol, r.kernargs) for r in self.hip.launches()]

    def close(self) -> dict[str, int]:
        """What is left in HIP after the store was closed."""
        self._opened.store.close()
        return self.hip.all_alive()

    @property
    def _opened(self) -> Server:
        if self.server is None:
            raise RuntimeError("no store was opened")
        return self.server
