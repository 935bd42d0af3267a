"""Our build keys against the key dataclasses of the real kernels, read as text and never imported."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import os
from typing import Any

import pytest

from mono_build.families.base import LaunchSpec
from mono_build.families.registry import family
from mono_build.manifest import Selection, load_manifests, plan_for, ready_manifests
from mono_build.sources import resolve_kernels

pytestmark = pytest.mark.network

LAUNCHES = [
    ("deepseek_v41", "k1"),
    ("deepseek_v41", "k2"),
    ("deepseek_v41", "ffn"),
    ("deepseek_v4", "k1"),
    ("deepseek_v4", "k2"),
    ("kimi_k3", "k1"),
    ("kimi_k3", "k2"),
    ("minimax_m3", "ffn"),
]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The modules that key classes and factories live in, by dotted name."""
    kernels = resolve_kernels(os.environ.get("MONO_TEST_KERNELS", "vllm==0.33.0"), os.environ)
    specs = [spec(*launch) for launch in LAUNCHES]
    modules = {ref.partition(":")[0] for s in specs for ref in (s.key_class, s.factory)}
    return {name: (kernels.root / (name.replace(".", "/") + ".py")).read_text() for name in modules}


def spec(name: str, launch: str) -> LaunchSpec:
    found = family(name).spec(launch)
    if found is None:
        raise LookupError(launch)
    return found


def key_class(sources: dict[str, str], reference: str) -> list[ast.AnnAssign]:
    module, _, name = reference.partition(":")
    tree = ast.parse(sources[module])
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return [n for n in body if isinstance(n, ast.AnnAssign)]


@pytest.mark.parametrize(("name", "launch"), LAUNCHES)
def test_fields_are_those_of_the_key_class_in_its_order(
    sources: dict[str, str], name: str, launch: str
) -> None:
    ours = spec(name, launch)
    theirs = key_class(sources, ours.key_class)
    assert [f.name for f in ours.fields] == [ast.unparse(n.target) for n in theirs]
    # An enumeration of the kernels is text in a build key.
    kinds = [ast.unparse(n.annotation).replace("Experts", "str") for n in theirs]
    assert [f.type.__name__ for f in ours.fields] == kinds


@pytest.mark.parametrize(("name", "launch"), LAUNCHES)
def test_literal_defaults_are_those_of_the_key_class(
    sources: dict[str, str], name: str, launch: str
) -> None:
    ours = {f.name: f.default for f in spec(name, launch).fields}
    literal = {}
    for node in key_class(sources, spec(name, launch).key_class):
        try:
            literal[ast.unparse(node.target)] = ast.literal_eval(node.value) if node.value else None
        except ValueError:
            continue  # a constant of another module
    literal.pop("delta", None)  # every engine build has it, and the class leaves it open
    literal.pop("state_len", None)
    assert {n: ours[n] for n in literal if literal[n] is not None} == {
        n: v for n, v in literal.items() if v is not None
    }


@pytest.mark.parametrize(("name", "launch"), LAUNCHES)
def test_factories_exist_and_take_the_key(sources: dict[str, str], name: str, launch: str) -> None:
    module, _, factory = spec(name, launch).factory.partition(":")
    found = [
        n
        for n in ast.parse(sources[module]).body
        if isinstance(n, ast.FunctionDef) and n.name == factory
    ]
    assert [len(n.args.args) for n in found] == [1]


def key_classes(sources: dict[str, str], ours: LaunchSpec) -> tuple[Any, Any]:
    """The real key class, and the enumeration of its module if it has one."""
    module, _, name = ours.key_class.partition(":")
    wanted = (name, "Experts")
    body = [n for n in ast.parse(sources[module]).body if getattr(n, "name", None) in wanted]
    # Constants that are defaults in it; the values that matter here are given.
    names = {n.id for c in body for n in ast.walk(c) if isinstance(n, ast.Name)}
    space: dict[str, Any] = {**dict.fromkeys(names - set(dir(builtins)), 0)}
    space |= {"dataclass": dataclasses.dataclass, "enum": enum, "Enum": enum.Enum}
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    made = ast.fix_missing_locations(ast.Module([future, *body], []))
    space["__name__"] = __name__
    exec(compile(made, module, "exec"), space)
    return space[name], space.get("Experts")


def test_every_ready_key_comes_back_from_the_real_key_object(sources: dict[str, str]) -> None:
    classes = {n: key_classes(sources, spec(*n)) for n in LAUNCHES}
    planned = [plan_for(load_manifests([name]), Selection()) for name in ready_manifests()]
    keys = [k for plan in planned for k in plan.keys if (k.family, k.launch) in LAUNCHES]
    assert {(k.family, k.launch) for k in keys} == set(LAUNCHES)
    for key in keys:
        cls, experts = classes[key.family, key.launch]
        values = key.values
        if key.family == "minimax_m3":
            values["experts"] = experts(values["experts"])
        assert family(key.family).key_of(key.launch, key.arch, cls(**values)) == key


def test_row_limits_are_the_kernels(sources: dict[str, str]) -> None:
    limits = {}
    for name, launch in LAUNCHES:
        module = spec(name, launch).key_class.partition(":")[0]
        for node in ast.parse(sources[module]).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MAX_TOKENS":
                limits[name] = ast.literal_eval(node.value)
    ours = {
        name: next(f.maximum for f in spec(name, launch).fields if f.name == "tokens")
        for name, launch in LAUNCHES
        if name in limits
    }
    assert limits == ours == {"deepseek_v41": 48, "minimax_m3": 16}
