"""Stores of made-up launches with real code objects, and what a call of them sends to a device.

Three launches of a family, for each number of tokens:

``k1(x, out, n, stream)``
    persistent, 256 workgroups of 512. Built with ``fold`` on and off, which gives equal artefacts.
``k3(x, out, n, stream)``
    another kernel of k1's code object, 64 workgroups, not persistent.
``k2(x, count, skip)``
    two dispatches with grids that are computed, in a code object of its own; no stream parameter.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from code_objects import Kernel, code_object
from store_kit import blob_file, inputs

import mono_runtime
from mono_build.store.writer import StoreWriter
from mono_runtime.artefact import Artefact, CodeObject, KernelResources
from mono_runtime.canonical import canonical_json
from mono_runtime.expressions import Arg, Const, Expression, Op
from mono_runtime.index import IndexEntry
from mono_runtime.inputs import Inputs
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument, LaunchPlan
from mono_runtime.store import Store

FAMILY = "deepseek_v41"
ONE = Const(1)
_THREE = (("x", "i64", 0), ("out", "i64", 8), ("n", "i32", 16))


@dataclass(frozen=True)
class Made:
    """One launch of a made-up store.

    Attributes:
        code: its code object; ``figures`` are of the kernels in it.
    """

    key: LaunchKey
    plan: LaunchPlan
    code: bytes
    figures: tuple[KernelResources, ...]
    ir: str

    @property
    def digest(self) -> str:
        return sha(self.code)


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def key(
    launch: str, tokens: int, arch: str = "gfx942", family: str = FAMILY, **build: Any
) -> LaunchKey:
    fields = {"fold": False} if launch == "k1" else {}
    return LaunchKey.of(family, launch, arch, {"tokens": tokens, "tp": 4, **fields, **build})


def k1(tokens: int, arch: str = "gfx942", *, grid: int = 256, **options: Any) -> Made:
    """``options``: ``fold``; and ``xnack``, ``sramecc``, ``vgprs``, ``lds`` of the code object."""
    fold = options.pop("fold", False)
    plan = _plan_of_three(f"k1_{tokens}", True, grid, 512)
    return _made(key("k1", tokens, arch, fold=fold), plan, _both(tokens), f"ir {tokens}", **options)


def k3(tokens: int, arch: str = "gfx942", **options: Any) -> Made:
    plan = _plan_of_three(f"k3_{tokens}", False, 64, 256)
    return _made(key("k3", tokens, arch), plan, _both(tokens), f"ir k3 {tokens}", **options)


def k2(tokens: int, arch: str = "gfx942", **options: Any) -> Made:
    """``(count + 255) // 256`` workgroups, then as many for what ``skip`` leaves."""
    count, rest = Arg("count"), Op("sub", 32, (Arg("count"), Arg("skip")))
    symbols = (f"k2_{tokens}_first", f"k2_{tokens}_rest")
    dispatches = tuple(
        Dispatch(
            symbol,
            "",
            (Op("sdiv", 32, (Op("add", 32, (n, Const(255))), Const(256))), ONE, ONE),
            (Const(256), ONE, ONE),
            Const(lds),
            16,
            (KernelArgument("x", "i64", 0, Arg("x")), KernelArgument("n", "i32", 8, n)),
        )
        for symbol, n, lds in zip(symbols, (count, rest), (0, 512), strict=True)
    )
    arguments = (Argument("x", "i64"), Argument("count", "i32"), Argument("skip", "i32"))
    plan = LaunchPlan(arguments, None, False, dispatches)
    kernels = {s: Kernel(((0, 8), (8, 4)), 16, max_threads=256) for s in symbols}
    return _made(key("k2", tokens, arch), plan, kernels, f"ir k2 {tokens}", **options)


def deployment(arch: str = "gfx942", tokens: Iterable[int] = (1, 2)) -> list[Made]:
    """All launches for these numbers of tokens: four of two code objects for each."""
    return [
        made
        for n in tokens
        for made in (k1(n, arch), k1(n, arch, fold=True), k2(n, arch), k3(n, arch))
    ]


def kernels_from(path: Path, package: str = "vllm") -> Inputs:
    """Inputs that list the ``.py`` files of ``package`` below ``path`` as they are now."""
    files = sorted((path / package).rglob("*.py"))
    return replace(
        inputs(),
        sources=tuple(
            (str(f.relative_to(path)), hashlib.sha256(f.read_bytes()).hexdigest()) for f in files
        ),
        kernels=(("package", package), ("version", "0.33.0")),
    )


def publish(path: Path, *launches: Made, used: Inputs | None = None) -> Path:
    """A store with these launches; by default built from kernels that are not installed here."""
    used = used or replace(inputs(), kernels=(("package", "mono_absent"), ("version", "1")))
    with StoreWriter(path) as writer:
        read = writer.put_blob(canonical_json(used.to_json()))
        entries = []
        for made in launches:
            digest = writer.put_blob(made.code)
            size = len(made.code)
            artefact = Artefact(
                made.ir,
                made.key.arch,
                read,
                made.plan,
                (CodeObject(digest, size, sha(made.code[64:]), size - 64, made.figures),),
            )
            name = writer.put_blob(canonical_json(artefact.to_json()))
            entries.append(IndexEntry(made.key, name, made.ir))
        writer.publish(entries)
    return path


def index_of(store: Path) -> tuple[str, list[dict[str, Any]]]:
    """The digest of the published index and its entries, read without the code under test."""
    listing = json.loads((store / "index.json").read_bytes())
    manifest = json.loads(blob_file(store, listing["manifests"][0]["digest"]).read_bytes())
    digest = manifest["config"]["digest"]
    return digest, json.loads(blob_file(store, digest).read_bytes())["entries"]


def artefact_file(store: Path, made: Made) -> Path:
    """Where ``store`` keeps the artefact of a launch."""
    (name,) = [e["artefact"] for e in index_of(store)[1] if e["key"] == made.key.to_json()]
    return blob_file(store, name)


def flip(file: Path) -> None:
    """Turn one bit over in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def opened(*stores: Path, **options: Any) -> Store:
    """`mono_runtime.open` with no environment."""
    return mono_runtime.open(stores, environ={}, **options)


def three(x: int, out: int, n: int) -> bytes:
    """The kernargs of k1 and k3."""
    return struct.pack("<QQi4x", x, out, n)


def _both(tokens: int) -> dict[str, Kernel]:
    kernel = Kernel(((0, 8), (8, 8), (16, 4)), 24, lds=1024, max_threads=512)
    return {f"k1_{tokens}": kernel, f"k3_{tokens}": kernel}


def _plan_of_three(symbol: str, persistent: bool, grid: int, block: int) -> LaunchPlan:
    values: tuple[tuple[str, str, int, Expression], ...] = tuple((*a, Arg(a[0])) for a in _THREE)
    dispatch = Dispatch(
        symbol,
        "",
        (Const(grid), ONE, ONE),
        (Const(block), ONE, ONE),
        Const(0),
        24,
        tuple(KernelArgument(name, kind, offset, value) for name, kind, offset, value in values),
    )
    return LaunchPlan(
        tuple(Argument(name, kind) for name, kind, _ in _THREE), "stream", persistent, (dispatch,)
    )


def _made(
    launch_key: LaunchKey,
    plan: LaunchPlan,
    kernels: dict[str, Kernel],
    ir: str,
    *,
    xnack: bool | None = None,
    sramecc: bool | None = None,
    vgprs: int = 64,
    lds: int | None = None,
) -> Made:
    kernels = {
        name: replace(k, vgprs=vgprs, lds=k.lds if lds is None else lds)
        for name, k in kernels.items()
    }
    code = code_object(kernels, launch_key.arch, xnack=xnack, sramecc=sramecc)
    figures = tuple(
        KernelResources(s, k.vgprs, 0, 16, 0, 0, k.lds, 0, k.kernarg_size, k.max_threads, 64)
        for s, k in sorted(kernels.items())
    )
    dispatches = tuple(replace(d, code_object=sha(code)) for d in plan.dispatches)
    plan = replace(plan, dispatches=dispatches)
    return Made(launch_key, plan, code, figures, sha(f"{ir} {launch_key.arch}".encode()))
