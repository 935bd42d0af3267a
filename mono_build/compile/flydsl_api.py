"""The one module that touches FlyDSL's private parts; everything after it sees plain data.

FlyDSL traces a launcher when it is called and hands the traced module to `MlirCompiler`. With
``COMPILE_ONLY`` set nothing is loaded on a device. We step in between: the traced IR decides whether
lowering is needed at all, and the lowered module is read before FlyDSL would turn it into text.
Version 0.5 splits the work into ``prepare`` and ``compile``; 0.4 has ``compile`` alone.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mono_build.compile.lowered import (
    HostFunction,
    HostLaunch,
    HostOperation,
    LoweredLaunch,
    Signature,
    TracedLaunch,
)
from mono_build.errors import ExtractionError, LaunchError, ToolchainError

Decision = Callable[[TracedLaunch], bool]
# What FlyDSL 0.4.2 to 0.5 acts on (compiler/backends/rocm.py, compiler/kernel_function.py); it ignores
# every other name, so a misspelt one would change nothing unsaid. Tracing hints are left out: an
# instrumented launch has an argument more than its plan.
HINTS = ("fast_fp_math", "fastmath", "llvm_options", "unsafe_fp_math", "waves_per_eu")


class _Finished(BaseException):
    """Leaves FlyDSL from inside of it; not an `Exception`, so that no handler there swallows it."""

    def __init__(self, lowered: LoweredLaunch | None) -> None:
        super().__init__()
        self.lowered = lowered


def load_compiler() -> None:
    """Load FlyDSL and compile a kernel that does nothing, so that forked workers find it all set up.

    LLVM's one-time work (targets, passes, relocations) would else be repeated in every worker:
    measured as 4 % of the time of a small launch.
    """
    import flydsl.compiler as flyc

    @flyc.kernel(name="warm_up", known_block_size=[64, 1, 1])  # type: ignore[untyped-decorator]
    def kernel() -> None:
        return

    @flyc.jit  # type: ignore[untyped-decorator]
    def launch() -> None:
        kernel().launch(grid=(1, 1, 1), block=(64, 1, 1))

    launch()


def signature(launcher: Any) -> Signature:
    """The parameters of a ``@flyc.jit`` function; `ExtractionError` for anything else."""
    from flydsl.compiler.jit_function import JitFunction

    if not isinstance(launcher, JitFunction):
        raise ExtractionError(f"the factory returned {type(launcher).__name__}, not a launcher")
    launcher._ensure_sig()
    names, stream = [], None
    for name, parameter in launcher._sig.parameters.items():
        if getattr(parameter.annotation, "_is_stream_param", False):
            stream = name
        elif parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ExtractionError(f"the launcher takes *{name}: its arguments have no fixed layout")
        names.append(name)
    return Signature(tuple(names), stream)


def compile_launch(
    launcher: Any, arguments: dict[str, object], wanted: Decision
) -> LoweredLaunch | None:
    """Trace ``launcher``; lower it and return the result if ``wanted`` says so of the traced IR.

    Args:
        launcher: a ``@flyc.jit`` function.
        arguments: a placeholder for every parameter but the stream.
        wanted: called once with the traced IR; False ends without lowering (and returns None).
    """
    names = signature(launcher)
    _check_hints(launcher)
    with _intercepted(names, wanted):
        try:
            launcher(**arguments)
        except _Finished as finished:
            return finished.lowered
    raise ToolchainError("FlyDSL returned without compiling; is COMPILE_ONLY honoured?")


def _check_hints(launcher: Any) -> None:
    for name in launcher._effective_compile_hints():
        if name not in HINTS:
            near = difflib.get_close_matches(name, HINTS, n=1)
            raise LaunchError(
                f"the launcher has the compile hint {name!r}, which builds do not have",
                fix=f"did you mean {near[0]}?" if near else f"known: {', '.join(HINTS)}",
            )


@contextmanager
def _intercepted(names: Signature, wanted: Decision) -> Iterator[None]:
    from flydsl.compiler import jit_function

    compiler = jit_function.MlirCompiler
    saved = {n: compiler.__dict__[n] for n in ("prepare", "compile") if n in compiler.__dict__}
    original_compile = compiler.compile

    def lower(*args: Any, **kwargs: Any) -> None:
        raise _Finished(_read_module(original_compile(*args, **kwargs), names))

    if "prepare" in saved:
        original_prepare = compiler.prepare

        def prepare(module: Any, **kwargs: Any) -> Any:
            _refuse_linking(module, kwargs.get("link_libs"))
            asm, config = original_prepare(module, **kwargs)
            _decide(wanted, asm, config.fragments, config.llvm_opts)
            return asm, config

        compiler.prepare = staticmethod(prepare)
        compiler.compile = staticmethod(lower)
    else:
        compiler.compile = staticmethod(_compile_04(jit_function, wanted, lower))
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(compiler, name, value)


def _compile_04(jit_function: Any, wanted: Decision, lower: Callable[..., None]) -> Any:
    """0.4's single step: derive what 0.5's ``prepare`` gives, decide, then lower."""

    def compile_(module: Any, *, arch: str = "", **kwargs: Any) -> None:
        _refuse_linking(module, kwargs.get("link_libs"))
        hints = jit_function.CompilationContext.get_compile_hints()
        backend = jit_function.get_backend(arch=arch)
        config = jit_function._pipeline_fragments_for_mode(backend, compile_hints=hints)
        asm = module.operation.get_asm(enable_debug_info=False)
        _decide(wanted, asm, config.fragments, [config.llvm_opts, sorted(hints.items())])
        lower(module, arch=arch, **kwargs)

    return compile_


def _refuse_linking(module: Any, libraries: object) -> None:
    """Raise for launches that need more than their code object: a plan has no place for it."""
    if libraries:
        raise ExtractionError(
            "the launch links bitcode libraries, whose content no key would see",
            fix="inline what it needs from them",
        )
    for operation in module.body.operations:
        if operation.operation.name == "gpu.module" and (
            "offloadingHandler" in operation.operation.attributes
        ):
            raise ExtractionError(
                "the launch initialises its module after loading (post-load processors)",
                fix="pass what the module needs as arguments",
            )


def _decide(wanted: Decision, asm: str, fragments: list[str], options: object) -> None:
    if not wanted(TracedLaunch(asm, tuple(fragments), repr(options))):
        raise _Finished(None)


def _read_module(module: Any, names: Signature) -> LoweredLaunch:
    binaries, functions = [], []
    for operation in module.body.operations:
        kind = operation.operation.name
        if kind == "gpu.binary":
            binaries.append(_read_binary(operation))
        elif kind == "llvm.func" and len(operation.regions[0].blocks):
            functions.append(operation)
        elif kind != "llvm.func":
            raise ExtractionError(
                f"the lowered module holds {kind}, which no launch plan expresses"
            )
    if len(functions) != 1:
        raise ExtractionError(f"the lowered module has {len(functions)} host functions, not one")
    return LoweredLaunch(names, _read_function(functions[0]), tuple(binaries))


def _read_binary(operation: Any) -> tuple[str, bytes]:
    from flydsl._mlir import ir
    from flydsl._mlir.dialects import gpu

    name = ir.StringAttr(operation.attributes["sym_name"]).value
    objects = ir.ArrayAttr(operation.attributes["objects"])
    if len(objects) != 1:
        raise ExtractionError(f"binary {name} holds {len(objects)} objects, not one")
    return name, bytes(gpu.ObjectAttr(objects[0]).object)


def _read_function(function: Any) -> HostFunction:
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        branch = list(blocks[0].operations)[-1].operation.name
        raise ExtractionError(
            f"the host function branches ({branch}): a launch plan has no conditions on arguments",
            fix="decide with Python values while tracing, or split the launch",
        )
    numbers = {value: i for i, value in enumerate(blocks[0].arguments)}
    types = tuple(str(value.type) for value in blocks[0].arguments)
    body: list[HostOperation | HostLaunch] = []
    for operation in blocks[0].operations:
        for result in operation.operation.results:
            numbers[result] = len(numbers)
        name = operation.operation.name
        if name == "gpu.launch_func":
            body.append(_read_launch(operation, numbers))
        elif name != "llvm.return":
            body.append(_read_operation(operation.operation, numbers))
    return HostFunction(types, tuple(body))


def _read_operation(operation: Any, numbers: dict[Any, int]) -> HostOperation:
    results = list(operation.results)
    if len(results) > 1 or len(operation.regions):
        raise ExtractionError(f"the host function uses {operation.name}, which no plan expresses")
    return HostOperation(
        operation.name,
        tuple(numbers[o] for o in operation.operands),
        numbers[results[0]] if results else None,
        str(results[0].type) if results else "",
        _integer(operation),
    )


def _integer(operation: Any) -> int | None:
    from flydsl._mlir import ir

    for name in ("value", "predicate"):
        if name in operation.attributes:
            try:
                return int(ir.IntegerAttr(operation.attributes[name]).value)
            except ValueError:
                return None
    return None


def _read_launch(operation: Any, numbers: dict[Any, int]) -> HostLaunch:
    from flydsl._mlir import ir

    launch = getattr(operation, "opview", operation)
    binary, symbol = ir.SymbolRefAttr(launch.kernel).value
    lds, stream = launch.dynamicSharedMemorySize, launch.asyncObject
    return HostLaunch(
        binary=binary,
        symbol=symbol,
        grid=_three(numbers, launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ),
        block=_three(numbers, launch.blockSizeX, launch.blockSizeY, launch.blockSizeZ),
        dynamic_lds=None if lds is None else numbers[lds],
        operands=tuple(numbers[o] for o in launch.kernelOperands),
        stream=None if stream is None else numbers[stream],
        clustered=launch.clusterSizeX is not None,
        asynchronous=bool(len(launch.asyncDependencies)) or launch.asyncToken is not None,
    )


def _three(numbers: dict[Any, int], x: Any, y: Any, z: Any) -> tuple[int, int, int]:
    return (numbers[x], numbers[y], numbers[z])
