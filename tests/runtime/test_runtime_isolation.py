"""mono_runtime alone: no compiler, no FlyDSL, no torch, no other process, nothing but the standard library."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import standin_hip
from isolated_server import FORBIDDEN, NO_IMPORTS
from runtime_kit import FAMILY, three
from standin_hip import records_of

PACKAGE = Path(__file__).parents[2] / "mono_runtime"
SOURCES = sorted(PACKAGE.rglob("*.py"))
SERVER = Path(__file__).with_name("isolated_server.py")
# Packages that may be there and are asked only by who has them already, or inside of a function.
OPTIONAL = {"torch", "prometheus_client"}
# What the hooks may import in functions: they run in the engine's processes alone.
ENGINES = {"vllm", "wrapt"}
PROCESSES = {"multiprocessing", "pty", "subprocess"}
UNPICKLING = {"copyreg", "dbm", "marshal", "pickle", "shelve"}
BY_TEXT = {"__import__", "exec_module", "import_module"}
OF_OS = ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An otherwise empty directory with a copy of mono_runtime."""
    directory = tmp_path_factory.mktemp("alone")
    shutil.copytree(
        PACKAGE, directory / "mono_runtime", ignore=shutil.ignore_patterns("__pycache__")
    )
    return directory


def server(copy: Path, store: Path, task: str, records: Path) -> subprocess.CompletedProcess[str]:
    given = standin_hip.environment(record_file=records)
    kept = {n: v for n, v in given.items() if n.startswith("STANDIN_") or n == "MONO_HIP_LIBRARY"}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(SERVER), str(copy), str(store), task],
        env={**kept, "PATH": ""},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_server_with_nothing_else_serves(copy: Path, place: Path, tmp_path: Path) -> None:
    done = server(copy, place, "serve", tmp_path / "records")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["home"] == str(copy / "mono_runtime" / "__init__.py")
    assert found["driver"].startswith("HIP 7.")
    assert found["steps"] == list(range(1, 9))
    assert (found["summary"]["loaded"], found["summary"]["shared"]) == (4, 4)
    assert found["summary"]["failed"] == []
    assert (found["counts"]["hits"], found["counts"]["loads"]) == (8, 4)
    assert found["counts"]["launches"] == {FAMILY: {"k1": 3, "k2": 0, "k3": 0}}
    assert [r.kernargs for r in records_of(tmp_path / "records")] == [
        three(*n) for n in ((1, 2, 3), (4, 5, 6), (7, 8, 9))
    ]
    # Every module there is was imported, by the launches or afterwards.
    files = {f.relative_to(PACKAGE.parent).with_suffix("") for f in SOURCES}
    modules = {".".join(f.parts).removesuffix(".__init__") for f in files}
    assert {*found["modules"], "mono_runtime"} == modules
    assert modules <= set(found["imported"])
    assert not {m.partition(".")[0] for m in found["imported"]} & {*NO_IMPORTS} - {"marshal"}


@pytest.mark.parametrize(
    "forbidden",
    [
        *(f"import {name}" for name in NO_IMPORTS if name != "marshal"),
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.execv('/bin/true', ['true'])",
        "open('/tmp/mono-runtime-was-here', 'w')",
        "import os; os.mkdir('/tmp/mono-runtime-was-here')",
    ],
)
def test_the_guard_of_that_server_works(
    copy: Path, place: Path, tmp_path: Path, forbidden: str
) -> None:
    done = server(copy, place, forbidden, tmp_path / "records")
    assert (done.returncode, done.stdout) == (FORBIDDEN, "")
    assert done.stderr.startswith("forbidden: ")


# ---- the text of the modules ----


def where(file: Path, node: ast.AST) -> str:
    return f"{file}:{getattr(node, 'lineno', 0)}"


def imports(node: ast.AST) -> list[str]:
    """The top-level packages that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]] if node.level == 0 else ["."]
    return []


def running(node: ast.AST, *, later: bool) -> Iterator[ast.AST]:
    """What of a module runs when it is imported, and ``later`` in functions; not what is for checkers."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, functions) and not later:
            continue
        yield child
        yield from running(child, later=later)


Modules = Sequence[tuple[Path, ast.Module]]


def foreign_imports(modules: Modules) -> list[str]:
    """Imports of what is not the standard library; functions may import `OPTIONAL`, of hooks `ENGINES` too."""
    own = {"mono_runtime", *sys.stdlib_module_names} - PROCESSES - UNPICKLING
    return [
        f"{where(file, node)}: {name}"
        for file, tree in modules
        for later, allowed in ((False, own), (True, own | OPTIONAL | _engines(file)))
        for node in running(tree, later=later)
        for name in imports(node)
        if name not in allowed
    ]


def _engines(file: Path) -> set[str]:
    return ENGINES if file.parts[0] == "hooks" else set()


def imports_by_text(modules: Modules) -> list[str]:
    """Files that import what a text names."""
    return [
        str(file)
        for file, tree in modules
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in BY_TEXT)
        or (isinstance(node, (ast.Name, ast.alias)) and _name(node) in BY_TEXT)
    ]


def process_calls(modules: Modules) -> list[str]:
    """Uses of functions of ``os`` that start or replace a process."""
    found = []
    for file, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "posix"):
                names = [node.attr]
            elif isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
                names = [alias.name for alias in node.names]
            else:
                continue
            found += [f"{where(file, node)}: {n}" for n in names if n.startswith(OF_OS)]
    return found


def code_from_text(modules: Modules) -> list[tuple[str, str]]:
    """Files that call a builtin that runs or compiles a text, and which."""
    return [
        (str(file), node.func.id)
        for file, tree in modules
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("eval", "exec", "compile")
    ]


def _name(node: ast.Name | ast.alias) -> str:
    return node.id if isinstance(node, ast.Name) else node.name


@pytest.fixture(scope="module")
def modules() -> Modules:
    return [(f.relative_to(PACKAGE), ast.parse(f.read_text())) for f in SOURCES]


def test_imports_are_of_the_standard_library_or_of_what_a_caller_has(modules: Modules) -> None:
    assert foreign_imports(modules) == []


def test_modules_are_imported_by_name_in_few_places(modules: Modules) -> None:
    """All take the names from fixed tables: of the package itself, of the built-in families, or of the
    engine's modules that these describe."""
    assert imports_by_text(modules) == [
        "hooks/vllm_factories/family_hook.py",
        "lazy.py",
    ]


def test_no_other_process_is_started(modules: Modules) -> None:
    assert process_calls(modules) == []


def test_text_is_run_as_code_in_one_place(modules: Modules) -> None:
    """launching/generated.py writes a function's text of small integers alone."""
    assert sorted(code_from_text(modules)) == [
        ("launching/generated.py", "compile"),
        ("launching/generated.py", "exec"),
        # The caller's own function, an argument of `Loader.resolve`.
        ("loader.py", "compile"),
    ]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (foreign_imports, "import torch"),
        (foreign_imports, "class A:\n    import numpy.linalg"),
        (foreign_imports, "try:\n    from flydsl import compiler\nexcept ImportError:\n    pass"),
        (foreign_imports, "def f():\n    import numpy"),
        (foreign_imports, "def f():\n    import vllm"),
        (foreign_imports, "def f():\n    import subprocess"),
        (foreign_imports, "from . import store"),
        (foreign_imports, "import pickle"),
        (imports_by_text, "import importlib\nimportlib.import_module('flydsl')"),
        (imports_by_text, "from importlib import import_module"),
        (imports_by_text, "__import__('flydsl')"),
        (process_calls, "import os\nos.system('true')"),
        (process_calls, "import os\ncall = os.execv"),
        (process_calls, "from os import posix_spawn"),
        (code_from_text, "def f(text):\n    return eval(text)"),
    ],
)
def test_the_checks_above_find_what_they_look_for(
    check: Callable[[Modules], list[object]], text: str
) -> None:
    assert check([(Path("bad.py"), ast.parse(text))])
