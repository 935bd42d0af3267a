"""What a server does at start, and what its container lets it do; a script, run inside of a container.

``contained_server.py TASK.json``: opens the stores of the environment, preloads the keys of the task, calls
each once with its arguments (null: only looks whether they are there), and prints what it found as JSON.
With a ``config``, vLLM's configuration as JSON, it does so as vLLM's plug-in. A refusal ends with the error's
message and its exit code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.chmod",
    "os.link",
    "os.symlink",
    "os.truncate",
)
_STARTS = (
    "subprocess.Popen",
    "os.posix_spawn",
    "os.exec",
    "os.fork",
    "os.system",
    "socket.connect",
)
attempts: list[str] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        attempts.append(f"open {arguments[0]}")
    elif event in _CHANGES or event in _STARTS:
        attempts.append(f"{event} {arguments[0]}")


def surroundings() -> dict[str, Any]:
    """Who this is, and what of the file system and of the network is within reach."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    places = [root for root, _, _ in os.walk("/") if not root.startswith("/proc")]
    return {
        "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "no_new_privileges": status["NoNewPrivs"],
        "environment": sorted(os.environ),
        "places": len(places),
        "writable": [place for place in places if writable(place)],
        "interfaces": [name for _, name in socket.if_nameindex()],
        "reached": [address for address in ("127.0.0.1", "192.0.2.1") if reached(address)],
        "processes": [p.name for p in Path("/proc").iterdir() if p.name.isdigit()],
        "compilers": [
            name
            for name in ("flydsl", "_mlir", "mlir", "triton", "torch", "aiter", "mono_build")
            if importlib.util.find_spec(name)
        ],
    }


def writable(place: str) -> bool:
    """Whether a file can be made in the directory; one that was is removed."""
    probe = Path(place, "mono-probe")
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    probe.unlink()
    return True


def reached(address: str) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        # 9 is the discard service; refused means that there is a way.
        try:
            client.connect((address, 9))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True


def misbehave() -> None:
    """What no server of ours does, so that the watch can be seen to see it."""
    with suppress(OSError):
        Path("/tmp/written").write_text("")
    with suppress(OSError):
        Path("/tmp/made").mkdir()


def serve(task: dict[str, Any]) -> dict[str, Any]:
    import mono_runtime
    from mono_runtime.launch_key import LaunchKey

    keys = [LaunchKey.from_json(key) for key in task["keys"]]
    with mono_runtime.open() as store:
        if task["arguments"] is None:
            missing = [str(key) for key in store.missing(keys)]
            return {"store": store.digest, "policy": store.policy.value, "missing": missing}
        loader = store.on()
        summary = loader.preload(keys)
        for key in keys:
            launch = loader.load(key)
            launch(*task["arguments"])
        return {
            "store": store.digest,
            "policy": store.policy.value,
            "driver": store.driver.name,
            "summary": summary.to_json(),
            "counts": dict(store.snapshot()),
            "launched": launched(),
        }


def serve_as_plugin(task: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's processes do: they call the entry point, several times, and a model's layers prepare."""
    from mono_runtime.hooks import plugin

    for _ in range(2):
        plugin.register()
    serving = plugin.serving()
    if serving is None:
        return {"serving": None}
    prepared = serving.prepare(task["config"])
    if prepared is None:
        return {"prepared": None}
    launch = prepared.launch(task["launch"], task["rows"], **task["variant"])
    if launch is not None:
        # Addresses and numbers alike; nothing is executed.
        launch(*task["arguments"] or range(1, 1 + len(launch.plan.arguments)))
    return {
        "summary": prepared.summary.to_json(),
        "widths": sorted(prepared.widths),
        "counts": dict(prepared.store.snapshot()),
        "launched": launched(),
        "engine": [name for name in sys.modules if name.partition(".")[0] in ("vllm", "torch")],
    }


def launched() -> list[list[Any]]:
    """What reached the stand-in HIP library that this process has loaded."""
    import standin_hip

    from mono_runtime.hip.library import mapped_copies

    (copy,) = mapped_copies()
    return [
        [r.symbol, r.grid, r.kernargs.hex()]
        for r in standin_hip.StandIn(Path(copy.path)).launches()
    ]


def main(task_file: str) -> int:
    task = json.loads(Path(task_file).read_text())
    found: dict[str, Any] = {"surroundings": surroundings() if task["look"] else None}
    sys.addaudithook(watch)
    from mono_runtime.errors import MonoError

    if task.get("misbehave"):
        misbehave()
    try:
        found["served"] = serve_as_plugin(task) if task.get("config") else serve(task)
    except MonoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({**found, "attempts": attempts}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
