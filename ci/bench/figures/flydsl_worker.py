"""A process that serves launches with FlyDSL itself over a HIP library; run as a script, never imported.

``python flydsl_worker.py TASK.json ANSWER.json``. It uses FlyDSL and the kernels as an engine does. With
a ``call`` in the task it also times one call of a launch, beside mono_runtime's for the same launch
from a store, in turns.
"""

from __future__ import annotations

import importlib
import inspect
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Addresses of device memory as HIP gives them: large, and different for each argument.
_BASE = 0x7F12_0000_0000


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours to FlyDSL's imports.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    _bare_parents(task["roots"])
    import flydsl
    import flydsl.compiler
    import flydsl.expr

    for module in task["modules"]:
        importlib.import_module(module)
    answer: dict[str, Any] = {"flydsl": flydsl.__version__}
    answer["launches"] = [_first_call(launch) for launch in task["launches"]]
    if task.get("call"):
        answer["call"] = _calls(**task["call"])
    Path(answer_file).write_text(json.dumps(answer))


def _bare_parents(roots: dict[str, str]) -> None:
    """Give each package in ``roots`` a body without code, so that no engine is started."""
    for name, directory in roots.items():
        module = types.ModuleType(name)
        module.__path__ = [directory]
        sys.modules[name] = module


def _first_call(launch: dict[str, Any]) -> dict[str, Any]:
    """Seconds until a launcher's first call has returned: what a server waits for."""
    cpu, wall = time.process_time(), time.perf_counter()
    launcher = _launcher(launch)
    launcher(*[0] * _arguments(launcher), stream=0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"number": launch["number"], "cpu": cpu, "wall": wall}


def _launcher(launch: dict[str, Any]) -> Any:
    build = _object(launch["key_class"])(**launch["arguments"])
    return _object(launch["factory"])(build)


def _arguments(launcher: Any) -> int:
    """How many arguments the launcher takes besides the stream."""
    parameters = inspect.signature(launcher.func).parameters.values()
    return sum(p.default is inspect.Parameter.empty for p in parameters)


def _object(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _calls(
    launch: dict[str, Any], project: str, store: str, key: dict[str, Any], rounds: int, calls: int
) -> dict[str, Any]:
    """Seconds of a call, FlyDSL's compiled function and ours in turns, medians of ``rounds``."""
    import flydsl.compiler as flyc

    launcher = _launcher(launch)
    compiled = flyc.compile(launcher, *[0] * _arguments(launcher), 0)
    sys.path.insert(0, project)
    import mono_runtime
    from mono_runtime.launch_key import LaunchKey

    opened = mono_runtime.open(store)
    ours = opened.on().load(LaunchKey.from_json(key))
    # A stream of its own, as an engine has; both sides get its address.
    stream = opened.driver.create_stream(ours.device)
    types_ = [a.type for a in ours.plan.arguments]
    values = [_BASE + 4096 * i if t == "i64" else i for i, t in enumerate(types_)]
    names = [a.name for a in ours.plan.arguments]
    moving = [i for i, t in enumerate(types_) if t == "i64"][::12][:4]
    # What stays is bound, and so is the stream: a step writes four values.
    fixed = {names[i]: v for i, v in enumerate(values) if i not in moving}
    bound = ours.bind(stream=stream, **fixed)
    # The compiled function takes its stream as the last argument.
    theirs, four = (*values, stream), [values[i] for i in moving]
    timed: dict[str, Callable[[], Any]] = {
        "flydsl": lambda: compiled(*theirs),
        "unbound": lambda: ours(*values, stream=stream),
        "bound": lambda: bound(*four),
    }
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, call in timed.items():
            samples[name].append(_seconds(call, calls))
    medians = {name: statistics.median(s) for name, s in samples.items()}
    return {"arguments": len(values), "moving": len(moving), "samples": samples, "medians": medians}


def _seconds(call: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main(*sys.argv[1:])
