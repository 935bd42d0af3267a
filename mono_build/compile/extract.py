"""From a lowered launch to a launch plan: pure, fail closed, and every refusal names the operation."""

from __future__ import annotations

from collections.abc import Mapping

from mono_build import elf
from mono_build.compile.lowered import HostFunction, HostLaunch, HostOperation, LoweredLaunch
from mono_build.errors import ExtractionError, ObjectMismatch
from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import Arg, Const, Expression, Op
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument, LaunchPlan, Workspace
from mono_runtime.targets import Target

# MLIR's LLVM dialect, "ICmpPredicate": the enumeration's numbers in order.
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_BINARY = {
    f"llvm.{n}": n
    for n in ("add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and", "or", "xor")
} | {f"llvm.{n}": n for n in ("shl", "lshr", "ashr")}
_BINARY |= {f"llvm.intr.{n}": n for n in ("smax", "smin", "umax", "umin")}
_CASTS = {"llvm.sext": "sext", "llvm.zext": "zext", "llvm.trunc": "trunc"}
_TYPES = {t: t for t in ("i8", "i16", "i32", "i64", "f32", "f64")} | {
    "!llvm.ptr": "ptr",
    "!llvm.ptr<1>": "ptr",
}


def launch_plan(
    lowered: LoweredLaunch,
    objects: dict[str, elf.ParsedObject],
    *,
    persistent: bool,
    workspace: Mapping[str, int] | None = None,
) -> LaunchPlan:
    """The plan of a lowered launch.

    Args:
        lowered: what the adapter read.
        objects: the parsed ELF of each binary, by the binary's name.
        persistent: whether the launch's workgroups wait for each other.
        workspace: bytes that the kernels need behind arguments, by name (`Family.workspace`).

    Raises:
        ExtractionError: the host side does something a plan cannot express.
        ObjectMismatch: the ELF and the host side disagree.
    """
    names = _argument_names(lowered)
    values, stream = _values(lowered.host, names), lowered.signature.stream
    stream_number = len(names) if stream is None else lowered.signature.parameters.index(stream)
    dispatches = tuple(
        _dispatch(item, values, objects, stream_number)
        for item in lowered.host.body
        if isinstance(item, HostLaunch)
    )
    if not dispatches:
        raise ExtractionError("the launch dispatches nothing")
    arguments = tuple(
        Argument(name, _type(lowered.host.argument_types[number], name))
        for number, name in names.items()
    )
    needed = _workspace(workspace or {}, arguments)
    plan = LaunchPlan(arguments, stream, persistent, dispatches, needed)
    try:
        plan.check()
    except InvalidValue as error:
        raise ExtractionError(error.what) from error
    return plan


def check_objects(objects: dict[str, elf.ParsedObject], target: Target) -> None:
    """Raise `ObjectMismatch` when an ELF is not for ``target``."""
    for name, parsed in objects.items():
        faults = elf.check_target(parsed, target)
        if faults:
            raise ObjectMismatch("; ".join(faults), where=f"GPU module {name}")


def _argument_names(lowered: LoweredLaunch) -> dict[int, str]:
    """Host argument number -> parameter name, the stream left out (FlyDSL appends it when absent)."""
    parameters, stream = lowered.signature.parameters, lowered.signature.stream
    expected = len(parameters) + (stream is None)
    if len(lowered.host.argument_types) != expected:
        raise ExtractionError(
            f"the launcher has {len(parameters)} parameters and the host function"
            f" {len(lowered.host.argument_types)} arguments: only scalar parameters have a layout",
            fix="pass tensors as device addresses (Int64) and sizes as integers",
        )
    return {i: name for i, name in enumerate(parameters) if name != stream}


def _workspace(sizes: Mapping[str, int], arguments: tuple[Argument, ...]) -> tuple[Workspace, ...]:
    unknown = sorted(sizes.keys() - {a.name for a in arguments})
    if unknown:
        raise ExtractionError(
            f"the family states workspace for {', '.join(unknown)}, which the launcher does not take"
        )
    return tuple(Workspace(a.name, sizes[a.name]) for a in arguments if a.name in sizes)


def _type(text: str, what: str) -> str:
    if text not in _TYPES:
        raise ExtractionError(f"argument {what} has the type {text}, which has no kernarg layout")
    return _TYPES[text]


def _width(text: str, operation: str) -> int:
    if not text.startswith("i") or not text[1:].isdigit() or int(text[1:]) > 64:
        raise ExtractionError(f"{operation} computes with {text}: plans compute with integers only")
    return int(text[1:])


def _values(host: HostFunction, names: dict[int, str]) -> dict[int, tuple[Expression, str]]:
    """Value number -> (expression, type) for everything the host function computes."""
    values: dict[int, tuple[Expression, str]] = {
        n: (Arg(name), host.argument_types[n]) for n, name in names.items()
    }
    for item in host.body:
        if isinstance(item, HostOperation):
            if item.result is None:
                raise ExtractionError(f"the host function uses {item.name}: it has effects")
            values[item.result] = (_expression(item, values), item.result_type)
    return values


def _expression(item: HostOperation, values: dict[int, tuple[Expression, str]]) -> Expression:
    if item.name == "llvm.mlir.constant" and item.value is not None:
        return Const(item.value)
    missing = [o for o in item.operands if o not in values]
    if missing:
        raise ExtractionError(f"{item.name} computes with the stream")
    operands = tuple(values[o][0] for o in item.operands)
    if item.name in _BINARY:
        return Op(_BINARY[item.name], _width(item.result_type, item.name), operands)
    if item.name == "llvm.icmp" and item.value is not None:
        width = _width(values[item.operands[0]][1], item.name)
        return Op(_PREDICATES[item.value], width, operands)
    if item.name == "llvm.select":
        return Op("select", _width(item.result_type, item.name), operands)
    if item.name in _CASTS:
        name, width = _CASTS[item.name], _width(item.result_type, item.name)
        if name == "zext":
            operands += (Const(_width(values[item.operands[0]][1], item.name)),)
        return Op(name, width, operands)
    raise ExtractionError(f"the host function uses {item.name}, which no launch plan expresses")


def _dispatch(
    launch: HostLaunch,
    values: dict[int, tuple[Expression, str]],
    objects: dict[str, elf.ParsedObject],
    stream: int,
) -> Dispatch:
    if launch.clustered or launch.asynchronous:
        what = "workgroup clusters" if launch.clustered else "asynchronous tokens"
        raise ExtractionError(f"gpu.launch_func of {launch.symbol} uses {what}")
    if launch.stream is not None and launch.stream != stream:
        raise ExtractionError(f"{launch.symbol} runs on something other than the launcher's stream")
    parsed = objects.get(launch.binary)
    kernel = parsed.kernels.get(launch.symbol) if parsed else None
    if parsed is None or kernel is None:
        raise ObjectMismatch(f"no code object holds {launch.symbol}")
    x, y, z = (values[n][0] for n in launch.grid)
    bx, by, bz = (values[n][0] for n in launch.block)
    dispatch = Dispatch(
        symbol=launch.symbol,
        code_object=parsed.code_object.digest,
        grid=(x, y, z),
        block=(bx, by, bz),
        dynamic_lds=Const(0) if launch.dynamic_lds is None else values[launch.dynamic_lds][0],
        kernarg_size=kernel.resources.kernarg,
        arguments=_kernel_arguments(launch, values, kernel),
    )
    _check_block(dispatch, kernel)
    return dispatch


def _kernel_arguments(
    launch: HostLaunch, values: dict[int, tuple[Expression, str]], kernel: elf.KernelNote
) -> tuple[KernelArgument, ...]:
    hidden = [kind for _, _, kind in kernel.arguments if kind.startswith("hidden_")]
    if hidden:
        raise ExtractionError(f"{launch.symbol} wants the hidden argument {hidden[0]}")
    if len(kernel.arguments) != len(launch.operands):
        raise ObjectMismatch(
            f"{launch.symbol} takes {len(kernel.arguments)} arguments in the ELF,"
            f" the host passes {len(launch.operands)}"
        )
    arguments = []
    for position, (number, note) in enumerate(zip(launch.operands, kernel.arguments, strict=True)):
        if number not in values:
            raise ExtractionError(f"{launch.symbol} takes the stream as an argument")
        expression, type_ = values[number]
        name = expression.name if isinstance(expression, Arg) else f"arg{position}"
        argument = KernelArgument(name, _type(type_, name), note[0], expression)
        if argument.size != note[1]:
            raise ObjectMismatch(
                f"{launch.symbol}({name}) has {argument.size} bytes, {note[1]} in the ELF"
            )
        arguments.append(argument)
    return tuple(arguments)


def _check_block(dispatch: Dispatch, kernel: elf.KernelNote) -> None:
    threads = 1
    for size in dispatch.block:
        if not isinstance(size, Const):
            return
        threads *= size.value
    if threads > kernel.resources.max_workgroup:
        raise ObjectMismatch(
            f"{dispatch.symbol} launches {threads} work-items a workgroup,"
            f" the ELF allows {kernel.resources.max_workgroup}"
        )
