"""A small kernel of our own, through the stand-ins, the importer and a private toolkit, to an ELF."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mono_build.sources import find_helpers
from mono_build.toolchain import find_bitcode, find_linker, toolkit, worker_environment

KERNEL = """
import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import T
from aiter.ops.flydsl.kernels import buffer_ops as bo
from aiter.ops.flydsl.kernels.dpp_utils import update_dpp_i32
from aiter.ops.flydsl.kernels.kernels_common import kernel_signature
from tiny.parts import STEP


@flyc.kernel(name="tiny_" + kernel_signature(s=STEP, fold=True, k=-1))
def kernel(source: fx.Int64, target: fx.Int64, count: fx.Int32):
    lane = fx.thread_idx.x
    inside = fx.Int32(lane) < count
    data = bo.create_buffer_resource_from_addr(source, num_records_bytes=fx.Int64(count) * 4)
    word = fx.Int32(
        bo.buffer_load(data, lane, vec_width=1, dtype=T.i32, mask=inside, soffset_bytes=STEP)
    )
    word = fx.Int32(update_dpp_i32(word, word, 0x4E, 0xF, 0xF, False))
    out = bo.create_buffer_resource_from_addr(target, num_records_bytes=256)
    bo.buffer_store(word, out, fx.Int64(lane) * 4, cache_modifier=16, offset_is_bytes=True)


@flyc.jit
def launch(source: fx.Int64, target: fx.Int64, count: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    kernel(source, target, count).launch(grid=(1,), block=(64,), stream=stream)
"""

DRIVER = """
import hashlib, json, sys
from pathlib import Path
from mono_build.sources import KernelSource, find_helpers, kernel_importer
source = KernelSource("tiny", Path(sys.argv[1]), "1", "tree")
hook = kernel_importer(source, ["tiny"], find_helpers([]))
from tiny.kernel import launch
launch(0, 0, 0)
text = launch._last_compiled[1]._ir_text
binary = text.split('bin = "')[1].split('"')[0]
print(json.dumps({"binary": hashlib.sha256(binary.encode()).hexdigest(), "elf": binary[:6],
    "named": "tiny_s4_fold1_k_1" in text, "sources": hook.sources()}))
"""


def build(root: Path) -> dict[str, object]:
    (root / "tiny").mkdir(parents=True)
    (root / "tiny" / "__init__.py").write_text("")
    (root / "tiny" / "kernel.py").write_text(KERNEL)
    (root / "tiny" / "parts.py").write_text("STEP = 4\n")
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with toolkit(find_linker(environ), find_bitcode(environ)) as path:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(root)],
            env=worker_environment("gfx950", path, environ, []),
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.flydsl
def test_equal_trees_in_different_places_give_the_same_bytes(tmp_path: Path) -> None:
    assert find_helpers([]).provider == "mono-build"
    one, two = build(tmp_path / "one"), build(tmp_path / "deeper" / "two")
    assert one == two
    assert one["elf"] == "\\7FELF"
    assert one["named"] is True
    names = [name for name, _ in one["sources"]]  # type: ignore[attr-defined]
    assert names == [
        "aiter/ops/flydsl/kernels/buffer_ops.py",
        "aiter/ops/flydsl/kernels/dpp_utils.py",
        "aiter/ops/flydsl/kernels/kernels_common.py",
        "tiny/__init__.py",
        "tiny/kernel.py",
        "tiny/parts.py",
    ]
