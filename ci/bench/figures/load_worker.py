"""A process that loads a deployment through mono_runtime; run as a script, never imported.

``python load_worker.py PROJECT STORE KEYS.json ANSWER.json ROUNDS``. It imports no torch. The first round
is the cold one; what it adds to the resident memory is counted from before the runtime's import.
"""

import json
import os
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def main(project: str, store: str, keys_file: str, answer_file: str, rounds: str) -> None:
    del sys.path[0]
    sys.path.insert(0, project)
    with open(keys_file) as file:
        wanted = json.load(file)
    before, start = resident(), time.perf_counter()
    import mono_runtime

    # The package imports a server's part when it is first named.
    mono_runtime.open  # noqa: B018
    imported = time.perf_counter() - start
    import mono_runtime.hip.driver
    import mono_runtime.loader
    import mono_runtime.ranks.agreement

    everything = time.perf_counter() - start
    from mono_runtime.launch_key import LaunchKey

    keys = [LaunchKey.from_json(key) for key in wanted]
    start = time.perf_counter()
    opened = mono_runtime.open(store)
    summary = opened.on().preload(keys)
    loaded, added = time.perf_counter() - start, resident() - before
    opened.close()
    each = [_one_by_one(store, keys) for _ in range(int(rounds))]
    answer = {
        "import": imported,
        "import_everything": everything,
        "preload": loaded,
        "resident": added,
        "loaded": summary.loaded + summary.shared,
        "torch": "torch" in sys.modules,
        "rounds": each,
    }
    with open(answer_file, "w") as file:
        json.dump(answer, file)


def _one_by_one(store: str, keys: list) -> dict:
    import mono_runtime

    start = time.perf_counter()
    opened = mono_runtime.open(store)
    loader = opened.on()
    opening = time.perf_counter() - start
    seconds = []
    for key in keys:
        start = time.perf_counter()
        loader.load(key)
        seconds.append(time.perf_counter() - start)
    opened.close()
    return {"open": opening, "launches": seconds}


if __name__ == "__main__":
    main(*sys.argv[1:])
