"""Which of this project's own modules are part of every key."""

from __future__ import annotations

import ast
from pathlib import Path

from mono_build.toolbox import DECIDING

ROOT = Path(__file__).resolve().parents[2]
# Used while compiling, but to read a store and to say what is wrong.
READING = ("errors", "index", "nearest", "oci")
READING_ONLY = {f"mono_runtime/{name}.py" for name in READING}


def runtime_imports(file: Path) -> set[str]:
    """The modules of `mono_runtime` that ``file`` imports, by path."""
    nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ImportFrom)]
    names = {n.module for n in nodes if n.module and n.module.startswith("mono_runtime.")}
    # What is imported from a package may be a module of it.
    names |= {f"{n.module}.{alias.name}" for n in nodes if n.module in names for alias in n.names}
    places = [name.replace(".", "/") for name in names]
    files = [*(f"{place}.py" for place in places), *(f"{place}/__init__.py" for place in places)]
    return {file for file in files if (ROOT / file).is_file()}


def reached(files: list[Path]) -> set[str]:
    """The modules of `mono_runtime` that ``files`` import, directly or not, beyond those for reading."""
    found: set[str] = set()
    waiting = set().union(*map(runtime_imports, files)) - READING_ONLY
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= runtime_imports(ROOT / name) - found - READING_ONLY
    return found


def test_every_shared_module_that_a_compile_uses_is_in_the_builder_digest_and_no_other() -> None:
    patterns = [p for p in DECIDING if p.startswith("mono_build/")]
    files = [f for p in [*patterns, "mono_build/residency.py"] for f in ROOT.glob(p)]
    shared = [f for p in DECIDING if p.startswith("mono_runtime/") for f in ROOT.glob(p)]
    assert {f.relative_to(ROOT).as_posix() for f in shared} == reached(files)


def test_every_pattern_of_the_builder_digest_finds_a_file() -> None:
    assert [p for p in DECIDING if not list(ROOT.glob(p))] == []
