"""Launch keys and artefacts of made-up launches."""

from __future__ import annotations

from mono_runtime.artefact import Artefact, CodeObject, KernelResources
from mono_runtime.expressions import Const, Expression
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Dispatch, LaunchPlan

CODE = "sha256:" + "c" * 64
ONE = Const(1)


def key(tokens: int) -> LaunchKey:
    return LaunchKey.of("deepseek_v41", "k1", "gfx950", {"tokens": tokens})


def kernel(
    vgpr: int = 128, lds: int = 0, *, symbol: str = "k", wavefront: int = 64
) -> KernelResources:
    return KernelResources(symbol, vgpr, 0, 100, 0, 0, lds, 0, 320, 512, wavefront)


def dispatch(
    grid: Expression, threads: int = 512, lds: int = 0, *, symbol: str = "k", code: str = CODE
) -> Dispatch:
    return Dispatch(symbol, code, (grid, ONE, ONE), (Const(threads), ONE, ONE), Const(lds), 320, ())


def artefact(
    *dispatches: Dispatch,
    kernels: tuple[KernelResources, ...] = (kernel(),),
    arch: str = "gfx950",
    persistent: bool = True,
) -> Artefact:
    zero = "sha256:" + "0" * 64
    return Artefact(
        zero,
        arch,
        zero,
        LaunchPlan((), "stream", persistent, dispatches),
        (CodeObject(CODE, 1000, zero, 900, kernels),),
    )
