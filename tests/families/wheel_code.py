"""Single functions and classes of the vLLM wheel, run without vLLM: taken from its files by name."""

from __future__ import annotations

import ast
import copy
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vllm_wheel import wheel


def _wheel() -> Path:
    return wheel("vllm/config/vllm.py")


@cache
def tree(file: str) -> ast.Module:
    """The syntax tree of a file of the package, such as ``config/vllm.py``."""
    path = _wheel()
    if path.is_dir():
        return ast.parse((path / "vllm" / file).read_text())
    with zipfile.ZipFile(path) as files:
        return ast.parse(files.read(f"vllm/{file}"))


def class_of(file: str, name: str) -> ast.ClassDef:
    """A class of a file."""
    return next(n for n in tree(file).body if isinstance(n, ast.ClassDef) and n.name == name)


def taken(file: str, names: Mapping[str, tuple[str, ...]], given: Mapping[str, Any]) -> Any:
    """Run parts of a file in the names ``given``, and return what they define.

    Args:
        names: functions and classes to take; of a class only the named methods, all of it if none is
            named. Class bases, decorators of classes that are cut, and annotations are left out.
    """
    body: list[ast.stmt] = []
    for node in tree(file).body:
        name = getattr(node, "name", None)
        if name not in names:
            continue
        if isinstance(node, ast.ClassDef) and names[name]:
            node = copy.copy(node)
            node.body = [n for n in node.body if getattr(n, "name", None) in names[name]]
            node.bases, node.keywords, node.decorator_list = [], [], []
        body.append(node)
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    module = ast.fix_missing_locations(ast.Module([future, *body], []))
    space = dict(given)
    exec(compile(module, file, "exec"), space)
    return [space[n] for n in names]
