"""A process that runs one launch on the emulator and times each phase; run as a script, never imported.

``python emulator_worker.py TASK.json ANSWER.json``. Times are (wall, CPU) seconds of this process and of the
compilers that it starts; making the inputs and checking the outputs are phases of their own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

Times = dict[str, list[dict[str, float]]]


def main(task_file: str, answer_file: str) -> None:
    # The script's own directory must not offer its neighbours to anybody's imports.
    del sys.path[0]
    task = json.loads(Path(task_file).read_text())
    times: Times = {}
    with timed(times, "import"):
        sys.path.insert(0, task["project"])
        import mono_runtime
        from mono_build.emulator.cases.memory import CaseMemory
        from mono_build.emulator.cases.run import CaseRunner
        from mono_build.emulator.counts import stages_of, total_of
        from mono_build.emulator.driver import EmulatedDriver
        from mono_build.emulator.execute import maker_for
        from mono_runtime.launch_key import LaunchKey

    key = LaunchKey.from_json(task["key"])
    with timed(times, "case"):
        case = maker_for(key.family, key.launch)(key, task["seed"])
    (step,) = case.steps

    def check(memory: Any) -> Any:
        # Launches have ended when their step is checked.
        times.setdefault("run", []).append(since(begin))
        with timed(times, "check"):
            return step.check(memory)

    case = replace(case, steps=(replace(step, check=check),))
    driver = EmulatedDriver((key.arch,) * case.ranks, wait=0.0)
    store = mono_runtime.open(task["store"], driver=driver, policy="strict", check=True)
    with timed(times, "inputs"):
        memory = CaseMemory(driver, case)
        memory.remember()
    with timed(times, "load"):
        runner = CaseRunner(case, store)
    counts = []
    passed = True
    for number in range(task["runs"]):
        if number:
            memory.restore()
        begin = now()
        passed &= all(result.passed for result in runner.run(memory))
        total = total_of(stages_of(driver.take_records()))
        counts.append(
            {"instructions": total.instructions, "matrix": total.classes.get("matrix", 0)}
        )
    Path(answer_file).write_text(
        json.dumps({"times": times, "counts": counts, "passed": passed, "ranks": case.ranks})
    )


def now() -> tuple[float, float]:
    """Wall and CPU seconds up to now."""
    usage = os.times()
    return time.perf_counter(), sum(usage[:4])


def since(start: tuple[float, float]) -> dict[str, float]:
    """What has passed since `now` gave ``start``."""
    wall, cpu = now()
    return {"wall": wall - start[0], "cpu": cpu - start[1]}


@contextmanager
def timed(times: Times, phase: str) -> Iterator[None]:
    start = now()
    yield
    times.setdefault(phase, []).append(since(start))


if __name__ == "__main__":
    main(*sys.argv[1:])
