"""torch's tensors in an emulated device's memory, and a decoder layer's content there."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

import mono_runtime
from mono_build.emulator.cases.case import Address, Case
from mono_build.emulator.cases.deepseek_v41 import regions
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.inputs import Step as Inputs
from mono_build.emulator.cases.memory import CaseMemory
from mono_build.emulator.driver import EmulatedDriver
from mono_runtime.families.registry import family_keys
from mono_runtime.hooks.deepseek_v41.inputs import LayerOutputs, LayerStep
from mono_runtime.hooks.deepseek_v41.runner import LaunchSource, MonoRunner, Place
from mono_runtime.hooks.deepseek_v41.weights import (
    AttentionWeights,
    LayerWeights,
    Layout,
    Wanted,
    attention_table,
    ffn_table,
)
from mono_runtime.launch_key import Scalar
from mono_runtime.launching import Launch
from mono_runtime.loader import Loader
from mono_runtime.ranks import LocalGroup, PeerMemory, local_groups

# Seconds that a rank may take: emulated devices are slow, and share this machine.
LIMIT = 900.0

# The cases' names of weights whose argument's name occurs in both halves.
ATTENTION = {
    "hc_fn": "hc_attn_fn",
    "hc_scale": "hc_attn_scale",
    "hc_base": "hc_attn_base",
    "attn_w": "attn_norm",
}
FFN = {
    "hc_fn": "hc_ffn_fn",
    "hc_scale": "hc_ffn_scale",
    "hc_base": "hc_ffn_base",
    "ffn_w": "ffn_norm",
}


def view(address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory that somebody else keeps."""
    size = torch.Size(shape).numel() * dtype.itemsize
    held = (ctypes.c_uint8 * size).from_address(address)
    return torch.frombuffer(held, dtype=torch.uint8).view(dtype).view(*shape)


class EmulatedTensors:
    """`mono_runtime.hooks.deepseek_v41.tensors.Tensors` on an emulated device.

    Attributes:
        made: every tensor, in order.
        records_graph: what `capturing` says.
    """

    def __init__(self, driver: EmulatedDriver, device: int, stream: int) -> None:
        self._driver, self._device, self._stream = driver, device, stream
        self.made: list[torch.Tensor] = []
        self.records_graph = False

    def zeros(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return self._new(shape, getattr(torch, dtype), 0)

    def empty(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return self._new(shape, getattr(torch, dtype), 0xFF)

    def addresses(self, values: Sequence[int]) -> torch.Tensor:
        table = self._new((len(values),), torch.int64, 0)
        table.copy_(torch.tensor(list(values)))
        return table

    def capturing(self) -> bool:
        return self.records_graph

    def stream(self) -> int:
        return self._stream

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype, fill: int) -> torch.Tensor:
        size = torch.Size(shape).numel() * dtype.itemsize
        address = self._driver.allocate(self._device, size)
        ctypes.memset(address, fill, size)
        self.made.append(view(address, shape, dtype))
        return self.made[-1]


class LayerContent:
    """What a case has put into a rank's memory, as tensors that an engine would hold."""

    def __init__(self, memory: CaseMemory, case: Case, target: Target, rank: int) -> None:
        self._memory, self._buffers = memory, case.buffers[rank]
        self._target, self._rank = target, rank

    def tensor(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A whole buffer in this shape; -1 as the first size is what its bytes give."""
        size = self._buffers[name].size
        rest = torch.Size(shape[1:]).numel() * dtype.itemsize
        whole = (size // rest, *shape[1:]) if shape[0] == -1 else shape
        # Also shows that the hook's tables and the cases agree in how large the weights are.
        assert torch.Size(whole).numel() * dtype.itemsize == size, (name, whole, dtype, size)
        return view(self._memory.address(self._rank, Address(name)), whole, dtype)

    def weights(self, *, whole: bool) -> LayerWeights:
        """The layer's weights."""
        b = self._target.build
        layout = Layout(self._target.arch, b.tp, b.experts, whole)
        attention = None
        if whole:
            table = attention_table(layout)
            attention = AttentionWeights(**self._named(table, AttentionWeights, ATTENTION))
        halves: dict[str, Any] = self._named(ffn_table(layout), LayerWeights, FFN)
        return LayerWeights(layer=1, ratio=b.ratio, attention=attention, **halves)

    def activations(self, *names: str) -> list[torch.Tensor]:
        """A seam's inputs by the case's names: output, streams, post, comb and pre."""
        rows = self._target.build.tokens
        shapes = ((5120,), (4, 5120), (4, 1), (4, 4), (4,))
        types = (torch.bfloat16,) * 2 + (torch.float32,) * 3
        given = zip(names, types, shapes, strict=True)
        return [self.tensor(name, dtype, rows, *shape) for name, dtype, shape in given]

    def step(self, inputs: Inputs) -> LayerStep:
        """The step's tensors; caches as records with a gap between blocks."""
        rows = self._target.build.tokens
        i32, i64 = torch.int32, torch.int64
        far = bool(self._target.build.ratio)
        return LayerStep(
            self.tensor("pos", i64, rows),
            self.tensor("slot", i64, rows),
            self._records("swa", inputs.window_cache.data, inputs.window_cache.rows),
            self.tensor("swa_idx", i32, rows, 1, self._target.build.swa_width),
            self.tensor("swa_lens", i32, rows),
            self.tensor("t2r", i32, rows),
            *(
                (
                    self.tensor("topk", i32, rows, 512),
                    self._records(
                        "comp", inputs.compressed_cache.data, inputs.compressed_cache.rows
                    ),
                    self.tensor("comp_bt", i32, *inputs.blocks.shape),
                )
                if far
                else ()
            ),
        )

    def _records(self, name: str, data: torch.Tensor, rows: int) -> torch.Tensor:
        blocks, stride = data.shape
        flat = self.tensor(name, torch.uint8, blocks, stride)
        return torch.as_strided(flat, (blocks, rows, 584), (stride, 584, 1))

    def _named(
        self, table: dict[str, Wanted], owner: type, names: dict[str, str]
    ) -> dict[str, torch.Tensor]:
        found = {}
        for name in (f.name for f in fields(owner)):
            if name in table:
                wanted = table[name]
                shape = (-1, *wanted.shape[1:]) if wanted.more else wanted.shape
                dtype = getattr(torch, wanted.dtype)
                found[name] = self.tensor(names.get(name, name), dtype, *shape)
        return found


class LayerMemory:
    """A case's memory, where a runner keeps some of it: what the case's checks read."""

    def __init__(self, case: CaseMemory) -> None:
        self.case = case
        self._kept: dict[tuple[int, str], int] = {}

    def keep(self, rank: int, name: str, where: torch.Tensor | int) -> None:
        """``name`` of ``rank`` is here."""
        address = where if isinstance(where, int) else where.data_ptr()
        self._kept[rank, name] = address

    def read(self, rank: int, buffer: str, offset: int, size: int) -> torch.Tensor:
        """``size`` bytes of a rank's buffer, as the checks ask for them."""
        kept = self._kept.get((rank, buffer))
        if kept is None:
            return self.case.read(rank, buffer, offset, size)
        return view(kept + offset, (size,), torch.uint8).clone()


class Launches:
    """A `LaunchSource`: the store's launches, loaded."""

    def __init__(self, loader: Loader, tp: int, rows: int) -> None:
        self._loader = loader
        self._family = family_keys("deepseek_v41")
        arch = loader.device.architecture.name
        self._deployment = self._family.deployment(arch, tp, {}, [rows])

    def launch(self, name: str, rows: int, /, **variant: Scalar) -> Launch:
        key = self._family.key(self._deployment, name, rows, variant)
        return self._loader.load(key)


class EmulatedRank:
    """A rank's device, stream and runner; used by one thread at a time."""

    def __init__(self, devices: Devices, group: LocalGroup) -> None:
        self.number, self.group, self._devices = group.rank, group, devices
        self.stream = devices.driver.create_stream(self.number)
        self.tensors = EmulatedTensors(devices.driver, self.number, self.stream)
        self.peer: PeerMemory | None = None
        self._runner: MonoRunner | None = None

    def launches(self) -> Launches:
        """The store's launches, loaded and agreed on by all ranks. Collective."""
        loader = self._devices.store.on(self.number)
        loader.preload(loader.keys(), group=self.group, timeout=LIMIT)
        return Launches(loader, self.group.size, self._devices.rows)

    def make_runner(self, source: LaunchSource, **options: Any) -> MonoRunner:
        """The rank's one runner."""
        assert self._runner is None
        place = Place(self._devices.arch, self.group.size, self.number)
        self._runner = MonoRunner(place, source, self.tensors, self._make_peer, **options)
        return self._runner

    def synchronize(self) -> None:
        """Wait for what the rank has launched."""
        self._devices.driver.synchronize(self.number, self.stream)

    def remember(
        self, memory: LayerMemory, outputs: LayerOutputs | None = None, *, seam: bool = True
    ) -> None:
        """Tell ``memory`` where this rank's runner keeps things."""
        assert self._runner is not None
        buffers = self._runner.buffers
        target = Target(Build(self._devices.rows, self.group.size), self._devices.arch)
        size = regions.scratch_bytes(target)
        (scratch,) = [t for t in self.tensors.made if t.shape == (size,)]
        kept: dict[str, torch.Tensor | int] = {"scratch": scratch}
        if buffers.epoch is not None:
            assert buffers.epoch.shape == (regions.EPOCH_WORDS,)
            kept["epoch"] = buffers.epoch
        if self.peer is not None:
            kept["peer"] = self.peer.local
        for name in ("q", "kt", "klen", *(_MIDDLE if seam else ())):
            kept[name] = getattr(buffers, name)
        if outputs is not None:
            kept |= dict(zip(_OUTPUTS, outputs, strict=True))
        for name, where in kept.items():
            memory.keep(self.number, name, where)

    def close(self) -> None:
        """Collective."""
        if self._runner is not None:
            self._runner.close()

    def _make_peer(self, size: int) -> PeerMemory:
        self.peer = PeerMemory.allocate(
            self._devices.driver, self.number, size, self.group, timeout=LIMIT
        )
        return self.peer


_MIDDLE = ("res_mid", "post_mid", "comb_mid", "pre_mid")
_OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")


class Devices:
    """A store's launches on an emulated device for each rank; the ranks are threads."""

    def __init__(self, path: Path, target: Target) -> None:
        tp, self.arch, self.rows = target.build.tp, target.arch, target.build.tokens
        self.path = path
        self.driver = EmulatedDriver((target.arch,) * tp, wait=LIMIT)
        self.store = mono_runtime.open(path, driver=self.driver, policy="strict")
        self.ranks = [EmulatedRank(self, member) for member in local_groups(tp)]
        self._meeting = threading.Barrier(tp)

    def __enter__(self) -> Devices:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.on_each(EmulatedRank.close)
        finally:
            self.store.close()
            self.driver.close()

    @contextmanager
    def holding(self, case: Case) -> Iterator[LayerMemory]:
        """What ``case`` puts into memory."""
        memory = CaseMemory(self.driver, case)
        try:
            yield LayerMemory(memory)
        finally:
            memory.close()

    def on_each(self, work: Callable[[EmulatedRank], None]) -> None:
        """Do ``work`` on every rank at once; the first error is raised here."""
        errors: list[BaseException] = []

        def run(rank: EmulatedRank) -> None:
            try:
                work(rank)
            except BaseException as error:
                errors.append(error)
                self._meeting.abort()

        threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in self.ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), "a rank was left waiting"
        if errors:
            raise errors[0]

    def meet(self) -> None:
        """Wait, on a rank, for all the others."""
        self._meeting.wait(LIMIT)

    def launched(self) -> dict[str, int]:
        """Kernels that ended since the last call, on all ranks: how many of each launch."""
        return dict(Counter(_launch_of(r.symbol) for r in self.driver.take_records()))


def _launch_of(symbol: str) -> str:
    """The launch of a kernel, by the part of its symbol that all builds of the launch have."""
    parts = {"mono_k1": "k1", "mono_k2": "k2", "mono_ffn": "ffn", "key_list": "keylist"}
    return next((name for part, name in parts.items() if part in symbol), symbol)
