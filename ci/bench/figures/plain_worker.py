"""A plain process that compiles launches as an engine would; run as a script, never imported.

It uses FlyDSL and the kernels alone, and nothing of this project but what it is told in a file:
``python plain_worker.py TASK.json ANSWER.json``. Each launcher is called once with zeros for its
arguments under ``COMPILE_ONLY``, on its default stream.
"""

from __future__ import annotations

import importlib
import inspect
import json
import resource
import sys
import time
import types
from pathlib import Path
from typing import Any


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours to FlyDSL's imports.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    start = _now()
    _bare_parents(task["roots"])
    import flydsl.compiler
    import flydsl.expr  # noqa: F401

    for module in task["modules"]:
        importlib.import_module(module)
    imports = _since(start)
    launches = [_compile(launch) for launch in task["launches"]]
    answer = {"imports": imports, "launches": launches}
    Path(answer_file).write_text(json.dumps(answer))


def _bare_parents(roots: dict[str, str]) -> None:
    """Give each package in ``roots`` a body without code, so that no engine is started."""
    for name, directory in roots.items():
        module = types.ModuleType(name)
        module.__path__ = [directory]
        sys.modules[name] = module


def _compile(launch: dict[str, Any]) -> dict[str, Any]:
    start = _now()
    build = _object(launch["key_class"])(**launch["arguments"])
    launcher = _object(launch["factory"])(build)
    parameters = inspect.signature(launcher.func).parameters.values()
    needed = [p for p in parameters if p.default is inspect.Parameter.empty]
    launcher(*[0] * len(needed))
    return {"number": launch["number"], **_since(start)}


def _object(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _now() -> tuple[float, float]:
    # The linker is a child process, and its time is part of a compile.
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages), time.monotonic()


def _since(start: tuple[float, float]) -> dict[str, float]:
    cpu, wall = _now()
    return {"cpu": cpu - start[0], "wall": wall - start[1]}


if __name__ == "__main__":
    main(*sys.argv[1:])
