"""Our build keys against the key dataclasses of the real kernels, read as text and never imported."""

from __future__ import annotations

import ast
import os

import pytest

from mono_build.families.base import LaunchSpec
from mono_build.families.registry import family
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
