"""What one rank's runner owns on its device: what launches hand to each other, and what they keep.

Nothing here is allocated while a stream records a graph: such memory would belong to the graph. A width's
scratch is made at the width's first step, which engines run eagerly before they capture it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from mono_runtime.errors import ArgumentMismatch, CaptureActive, Released
from mono_runtime.hooks.deepseek_v41.tensors import BF16, F32, I32, U8, Tensors
from mono_runtime.hooks.deepseek_v41.weights import HEAD_DIM, HEADS, HIDDEN, Q_RANK, STREAMS

if TYPE_CHECKING:
    import torch

# Of vLLM 0.33.0's kernels (deepseek_v41/amd/mono): a step's rows at most (layer.py), a token's keys at
# most, 512 selected and a window of 128 (attention/plan.py), and bytes of a record that is all zero,
# which stands for keys that are not there (runner.py).
MAX_ROWS = 48
KEYS = 640
ZERO_RECORD = 1024

# What launches may state under ``workspace``: a width's scratch, the epoch words, and peer memory.
SCRATCH, EPOCH, PEER = "scratch", "epoch", "sym"


class PeerBuffer(Protocol):
    """A buffer on each rank that every rank can address: `mono_runtime.PeerMemory`."""

    @property
    def size(self) -> int:
        """Bytes of each rank's."""

    @property
    def local(self) -> int:
        """The address of this rank's own."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """By rank, where its buffer is for this one."""

    def close(self) -> None:
        """Release it; collective."""


# Makes peer memory of so many bytes, zeroed. Collective: every rank calls it at the same launch.
MakePeer = Callable[[int], PeerBuffer]


class RunnerBuffers:
    """Device memory of a runner. ``tp`` ranks share a layer; ``where`` names this one in messages.

    Attributes:
        q: K1's queries [48, heads, 512] bfloat16, which K2 takes.
        kt: the key table [48 * 640] int32, and ``klen`` its lengths [96] int32.
        dummy: what stands for a tensor that a layer does not have, and that its launches do not read.
        zero_record: a KV record of zeros.
        normed: an index source's input after the attention's norm [48, 5120] bfloat16, for its indexer.
        qr: the query's low rank [48, 1280] bfloat16, likewise.
        res_mid, post_mid, comb_mid, pre_mid: the attention seam's streams and mixes, from K1 to K2.
    """

    def __init__(self, tensors: Tensors, tp: int, where: str) -> None:
        self._tensors = tensors
        self._where = where
        self._require_eager("the runner's buffers")
        zeros = tensors.zeros
        self.q = zeros((MAX_ROWS, HEADS // tp, HEAD_DIM), BF16)
        self.kt = zeros((MAX_ROWS * KEYS,), I32)
        self.klen = zeros((2 * MAX_ROWS,), I32)
        self.dummy = zeros((4,), I32)
        self.zero_record = zeros((ZERO_RECORD,), U8)
        self.normed = zeros((MAX_ROWS, HIDDEN), BF16)
        self.qr = zeros((MAX_ROWS, Q_RANK), BF16)
        self.res_mid = zeros((MAX_ROWS, STREAMS, HIDDEN), BF16)
        self.post_mid = zeros((MAX_ROWS, STREAMS), F32)
        self.comb_mid = zeros((MAX_ROWS, STREAMS, STREAMS), F32)
        self.pre_mid = zeros((MAX_ROWS, STREAMS), F32)
        self._first_pre = zeros((MAX_ROWS, STREAMS), F32)
        # The embedding is the same in all streams, so the first layer's input is that of stream 0.
        self._first_pre[:, 0] = 1.0
        self._views: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._scratch: dict[tuple[int, int], torch.Tensor] = {}
        self._epoch: torch.Tensor | None = None
        self._peer: PeerBuffer | None = None
        self._peers: torch.Tensor | None = None
        self._shared: tuple[int, int] | None = None
        self._closed = False

    @property
    def epoch(self) -> torch.Tensor | None:
        """The epoch words (int32) that all launches of this runner share; None before the first one."""
        return self._epoch

    @property
    def scratch(self) -> Mapping[tuple[int, int], torch.Tensor]:
        """Each scratch by its step's rows and its bytes. Never changed, only replaced: threads may read it."""
        return self._scratch

    @property
    def peer(self) -> tuple[int, int] | None:
        """Address and bytes of what this rank's launches share with the others'; None before the first one."""
        return self._shared

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        """The pre-mix [rows, 4] float32 of a model's first layer."""
        return self._first_pre[:rows]

    def for_indexer(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What K1 leaves an index source: ``normed`` and ``qr`` of a step's rows."""
        found = self._views.get(rows)
        if found is None:
            found = self._views[rows] = (self.normed[:rows], self.qr[:rows])
        return found

    def provide(
        self, rows: int, workspace: Mapping[str, int], make_peer: MakePeer
    ) -> dict[str, object]:
        """Values of the arguments behind which a launch of ``rows`` rows keeps something.

        A width's scratch is shared by the launches that state the same size of it, as these have the
        same layout; under another one a flag of the one could be plain data of the other. Epoch words and
        peer memory are the runner's: made for the first launch that states them.

        Args:
            workspace: bytes by argument, as the launch plan states them.
            make_peer: makes peer memory, on all ranks together.

        Raises:
            CaptureActive: something would have to be allocated while the stream records a graph.
            ArgumentMismatch: an argument that nothing is known of, or more bytes than were made before.
            RanksDisagree, RankLost: peer memory could not be made.
            Released: after `close`.
        """
        if self._closed:
            raise Released(
                "a launch was asked of a runner after it had been closed", where=self._where
            )
        found: dict[str, object] = {}
        for name, size in workspace.items():
            if name == SCRATCH:
                found[name] = self._scratch_of(rows, size)
            elif name == EPOCH:
                found[name] = self._epoch_of(size)
            elif name == PEER:
                peer, found["peers"] = self._peer_of(size, make_peer)
                found[name] = peer.local
            else:
                raise ArgumentMismatch(
                    f"a launch states {size} bytes behind {name!r}, which this runner does not know",
                    where=self._where,
                    fix="use the mono-build release that the store was built with",
                )
        return found

    def close(self) -> None:
        """Release peer memory; collective. The rest is torch's."""
        self._closed = True
        peer, self._peer, self._peers, self._shared = self._peer, None, None, None
        if peer is not None:
            peer.close()

    def _scratch_of(self, rows: int, size: int) -> torch.Tensor:
        found = self._scratch.get((rows, size))
        if found is None:
            self._require_eager(f"the scratch of step width {rows}")
            found = self._tensors.zeros((size,), U8)
            self._scratch = {**self._scratch, (rows, size): found}
        return found

    def _epoch_of(self, size: int) -> torch.Tensor:
        if self._epoch is None:
            self._require_eager("the epoch words")
            self._epoch = self._tensors.zeros((-(-size // 4),), I32)
        self._require_room("epoch words", size, 4 * self._epoch.numel())
        return self._epoch

    def _peer_of(self, size: int, make_peer: MakePeer) -> tuple[PeerBuffer, torch.Tensor]:
        if self._peer is None or self._peers is None:
            self._require_eager("peer memory")
            # Another try after a failure must not make it again: the other ranks have theirs.
            self._peer = self._peer or make_peer(size)
            self._peers = self._tensors.addresses(self._peer.addresses)
            # Peer memory comes in whole pages; the launches divide what they stated.
            self._shared = (self._peer.local, size)
        self._require_room("peer memory", size, self._peer.size)
        return self._peer, self._peers

    def _require_eager(self, what: str) -> None:
        if self._tensors.capturing():
            raise CaptureActive(
                f"{what} would be allocated while the current stream records a graph",
                where=self._where,
                fix="run one step of this width eagerly first, on all ranks, as engines do when they warm up",
            )

    def _require_room(self, what: str, size: int, there: int) -> None:
        if size > there:
            raise ArgumentMismatch(
                f"a launch needs {size} bytes of {what}, and the first one stated {there}",
                where=self._where,
                fix="build the store's launches from one vLLM release",
            )
