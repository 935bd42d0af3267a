"""Key lists on emulated devices: tables of a step in, the key table and its counts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from command import Result, environment, run

import mono_runtime
from mono_build.emulator.driver import EmulatedDriver

ARCHITECTURES = ("gfx942", "gfx950")
WIDTHS = (1, 3, 8)
# A row of the key table, of the selection and of the window: DeepSeek-V4.1-Flash's published config.
KEYS, TOPK, WINDOW = 640, 512, 128
# Numbers that must not be used: as rows, requests and lengths they lead far out of every table.
WILD = 0x5A5A5A5A
_POISON = 0xA5


def build(
    home: Path,
    store: Path,
    widths: Sequence[int],
    archs: Sequence[str] = ARCHITECTURES,
    **more: str,
) -> Result:
    """Build key lists in ``home``, which a wheel of the engine would be fetched into as well."""
    manifest = home / "key-lists.yaml"
    manifest.write_text(
        f"schema: 1\nbuilds:\n  - family: deepseek_v41\n    arch: [{', '.join(archs)}]\n    tp: 4\n"
        f"    rows: {list(widths)}\n    variants: [{{launch: keylist}}]\n"
    )
    arguments = ["build", "--store", str(store), "--manifest", str(manifest), "--json"]
    # Not where the tests are started: what lies there would be imported first.
    return run(arguments, {**environment(home), **more}, cwd=home, timeout=600)


@dataclass(frozen=True)
class Tables:
    """What a key list reads: [S] unless said otherwise, as its launcher's arguments.

    ``swa_idx`` [S, 128], ``topk`` [S, 512] and ``comp_bt`` [requests, any number] may be flat and shorter
    at their end, which makes a read of what is left out an error.
    """

    slot: torch.Tensor
    pos: torch.Tensor
    swa_idx: torch.Tensor
    swa_lens: torch.Tensor
    topk: torch.Tensor
    t2r: torch.Tensor
    comp_bt: torch.Tensor
    bt_stride: int
    comp_block: int
    ratio: int

    @property
    def tokens(self) -> int:
        return len(self.slot)


def plain(tokens: int, ratio: int, block: int = 32, requests: int = 1, blocks: int = 130) -> Tables:
    """A step whose every entry that no key needs is `WILD`; tests put in what they are about."""
    wild = torch.full((tokens, TOPK), WILD, dtype=torch.int32)
    return Tables(
        slot=torch.full((tokens,), -1),
        pos=torch.full((tokens,), WILD, dtype=torch.int64),
        swa_idx=wild[:, :WINDOW].clone(),
        swa_lens=torch.full((tokens,), WILD, dtype=torch.int32),
        topk=wild,
        t2r=torch.full((tokens,), WILD, dtype=torch.int32),
        comp_bt=torch.arange(requests * blocks, dtype=torch.int32).view(requests, blocks),
        bt_stride=blocks,
        comp_block=block,
        ratio=ratio,
    )


def without_selection(tables: Tables) -> Tables:
    """The same with a ratio of 0 and nothing behind the selection's addresses."""
    none = torch.empty(0, dtype=torch.int32)
    return replace(tables, ratio=0, topk=none, t2r=none, comp_bt=none)


def listed(store: Path, arch: str, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    """The key table [S, 640] and the counts [2, S] (all keys, selected keys) that the launch leaves."""
    driver = EmulatedDriver((arch,))
    with mono_runtime.open(str(store), driver=driver) as opened:
        launch = opened.on(0).launch("deepseek_v41", "keylist", tokens=tables.tokens)
        stream = driver.create_stream(0)
        names = ("slot", "pos", "swa_idx", "swa_lens", "topk", "t2r", "comp_bt")
        places = {name: _copied(driver, getattr(tables, name)) for name in names}
        sizes = {"kt": tables.tokens * KEYS * 4, "klen": 2 * tables.tokens * 4}
        results = {name: _poisoned(driver, size) for name, size in sizes.items()}
        numbers = {n: getattr(tables, n) for n in ("bt_stride", "comp_block", "ratio")}
        launch(**results, **places, **numbers, stream=stream)
        driver.synchronize(0)
        read = [driver.read(0, results[name], size) for name, size in sizes.items()]
    table, counts = (torch.frombuffer(bytearray(data), dtype=torch.int32) for data in read)
    return table.view(tables.tokens, KEYS), counts.view(2, tables.tokens)


def _copied(driver: EmulatedDriver, values: torch.Tensor) -> int:
    if not values.numel():
        # No allocation begins here, so a read of it stops the launch.
        return 0
    data = values.contiguous().numpy().tobytes()
    address = driver.allocate(0, len(data))
    driver.write(0, address, data)
    return address


def _poisoned(driver: EmulatedDriver, size: int) -> int:
    address = driver.allocate(0, size)
    driver.fill(0, address, _POISON, size)
    return address
