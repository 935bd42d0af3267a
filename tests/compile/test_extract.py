"""Launch plans from lowered host functions: what can be expressed, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from standin_compiler import elf as make_elf

from mono_build import elf
from mono_build.compile.extract import check_objects, launch_plan
from mono_build.compile.lowered import (
    HostFunction,
    HostLaunch,
    HostOperation,
    LoweredLaunch,
    Signature,
)
from mono_build.errors import ExtractionError, ObjectMismatch
from mono_runtime.expressions import Arg, Const, Op, evaluate
from mono_runtime.launch_plan import Argument, KernelArgument, LaunchPlan, Workspace
from mono_runtime.targets import TARGETS

# Host arguments: 0 a (i64), 1 n (i32), 2 the stream; values made by operations follow.
TYPES = ("i64", "i32", "!llvm.ptr")
SIGNATURE = Signature(("a", "n", "stream"), "stream")
CONSTANTS = (
    HostOperation("llvm.mlir.constant", (), 3, "i64", 1),
    HostOperation("llvm.mlir.constant", (), 4, "i64", 256),
)


def launch(
    grid: tuple[int, int, int] = (4, 3, 3),
    operands: tuple[int, ...] = (0, 1),
    *,
    stream: int | None = 2,
    symbol: str = "k",
    clustered: bool = False,
    asynchronous: bool = False,
) -> HostLaunch:
    return HostLaunch(
        "kernels", symbol, grid, (4, 3, 3), None, operands, stream, clustered, asynchronous
    )


def plan_of(
    *body: HostOperation | HostLaunch,
    signature: Signature = SIGNATURE,
    types: tuple[str, ...] = TYPES,
    arguments: tuple[int, ...] = (8, 4),
    most: int = 256,
    workspace: Mapping[str, int] | None = None,
) -> LaunchPlan:
    data = make_elf("k", arguments=arguments, max_workgroup=most)
    lowered = LoweredLaunch(
        signature, HostFunction(types, (*CONSTANTS, *body)), (("kernels", data),)
    )
    objects = {"kernels": elf.parse(data)}
    return launch_plan(lowered, objects, persistent=False, workspace=workspace)


def test_a_static_launch_becomes_a_plan() -> None:
    plan = plan_of(launch())
    assert plan.arguments == (Argument("a", "i64"), Argument("n", "i32"))
    assert plan.stream == "stream"
    (dispatch,) = plan.dispatches
    assert dispatch.grid == (Const(256), Const(1), Const(1))
    assert dispatch.block == (Const(256), Const(1), Const(1))
    assert dispatch.kernarg_size == 12
    assert dispatch.arguments == (
        KernelArgument("a", "i64", 0, Arg("a")),
        KernelArgument("n", "i32", 8, Arg("n")),
    )


def test_workspace_is_listed_in_the_order_of_the_arguments() -> None:
    signature, types = Signature(("a", "b", "stream"), "stream"), ("i64", "!llvm.ptr", "!llvm.ptr")
    plan = plan_of(
        launch(),
        signature=signature,
        types=types,
        arguments=(8, 8),
        workspace={"b": 4096, "a": 40},
    )
    assert plan.workspace == (Workspace("a", 40), Workspace("b", 4096))
    assert plan_of(launch()).workspace == ()


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        ({"c": 8, "a": 8, "b": 8}, "workspace for b, c, which the launcher does not take"),
        ({"stream": 8}, "workspace for stream, which the launcher does not take"),
        ({"n": 8}, "'n' with workspace is of type i32"),
        ({"a": 0}, "the workspace of a is 0 bytes"),
    ],
)
def test_workspace_that_no_argument_can_hold_is_refused(
    workspace: dict[str, int], message: str
) -> None:
    with pytest.raises(ExtractionError, match=message):
        plan_of(launch(), workspace=workspace)


def test_a_plan_survives_its_json_form() -> None:
    plan = plan_of(launch())
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_a_grid_may_be_computed_from_arguments() -> None:
    plan = plan_of(
        HostOperation("llvm.mlir.constant", (), 5, "i32", 255),
        HostOperation("llvm.add", (1, 5), 6, "i32"),
        HostOperation("llvm.mlir.constant", (), 7, "i32", 256),
        HostOperation("llvm.sdiv", (6, 7), 8, "i32"),
        HostOperation("llvm.zext", (8,), 9, "i64"),
        launch(grid=(9, 3, 3)),
    )
    grid = plan.dispatches[0].grid[0]
    inner = Op("sdiv", 32, (Op("add", 32, (Arg("n"), Const(255))), Const(256)))
    assert grid == Op("zext", 64, (inner, Const(32)))
    assert [evaluate(grid, {"n": n}) for n in (1, 256, 257)] == [1, 1, 2]


def test_comparisons_take_the_width_of_their_operands() -> None:
    plan = plan_of(
        HostOperation("llvm.icmp", (0, 3), 5, "i1", 2),
        HostOperation("llvm.select", (5, 3, 4), 6, "i64"),
        launch(grid=(6, 3, 3)),
    )
    condition = Op("slt", 64, (Arg("a"), Const(1)))
    assert plan.dispatches[0].grid[0] == Op("select", 64, (condition, Const(1), Const(256)))


def test_several_dispatches_keep_their_order() -> None:
    plan = plan_of(launch(), launch(grid=(3, 3, 3)))
    assert [d.grid[0] for d in plan.dispatches] == [Const(256), Const(1)]


def test_a_launcher_without_a_stream_leaves_flydsls_own_out() -> None:
    plan = plan_of(launch(), signature=Signature(("a", "n"), None))
    assert plan.stream is None
    assert [a.name for a in plan.arguments] == ["a", "n"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((HostOperation("llvm.call", (0,)), launch()), "uses llvm.call: it has effects"),
        ((HostOperation("llvm.load", (0,), 5, "i64"), launch()), "uses llvm.load"),
        ((HostOperation("llvm.fadd", (0, 0), 5, "f32"), launch()), "uses llvm.fadd"),
        ((HostOperation("llvm.add", (0, 0), 5, "vector<2xi32>"), launch()), "computes with vector"),
        ((HostOperation("llvm.ptrtoint", (2,), 5, "i64"), launch()), "computes with the stream"),
        ((launch(operands=(0, 2)),), "takes the stream as an argument"),
        ((launch(stream=0),), "runs on something other than the launcher's stream"),
        ((launch(clustered=True),), "uses workgroup clusters"),
        ((launch(asynchronous=True),), "uses asynchronous tokens"),
        ((), "dispatches nothing"),
    ],
)
def test_what_a_plan_cannot_express_is_refused_by_name(
    body: tuple[HostOperation | HostLaunch, ...], message: str
) -> None:
    with pytest.raises(ExtractionError, match=message):
        plan_of(*body)


def test_tensor_parameters_are_refused_with_what_to_do() -> None:
    with pytest.raises(ExtractionError, match="3 parameters and the host function 4") as caught:
        plan_of(launch(), types=("i64", "i64", "i32", "!llvm.ptr"))
    assert "device addresses" in str(caught.value)


def test_an_unknown_argument_type_is_refused() -> None:
    with pytest.raises(ExtractionError, match=r"argument a has the type vector<4xf32>"):
        plan_of(launch(), types=("vector<4xf32>", "i32", "!llvm.ptr"))


def test_the_elf_has_the_last_word_on_the_layout() -> None:
    with pytest.raises(ObjectMismatch, match="takes 3 arguments in the ELF, the host passes 2"):
        plan_of(launch(), arguments=(8, 4, 4))
    with pytest.raises(ObjectMismatch, match=r"k\(n\) has 4 bytes, 8 in the ELF"):
        plan_of(launch(), arguments=(8, 8))
    with pytest.raises(ObjectMismatch, match="no code object holds other"):
        plan_of(launch(symbol="other"))
    with pytest.raises(ObjectMismatch, match="256 work-items a workgroup, the ELF allows 128"):
        plan_of(launch(), most=128)


def test_an_object_for_another_architecture_is_refused() -> None:
    objects = {"kernels": elf.parse(make_elf("k", arch="gfx942"))}
    check_objects(objects, TARGETS["gfx942"])
    with pytest.raises(ObjectMismatch, match="machine 0x4c, gfx950 is 0x4f"):
        check_objects(objects, TARGETS["gfx950"])
