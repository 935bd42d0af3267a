"""A server with nothing but the standard library and a copy of mono_runtime; a script, never imported.

``python -I -S -B isolated_server.py COPY STORE TASK``. The process ends with `FORBIDDEN` at the first
import of a compiler or of a way to other processes, and when anything is started or written. TASK is
``serve``, or Python text that must not get away with what it does.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys

FORBIDDEN = 66
NO_IMPORTS = (
    "_mlir",
    "_posixsubprocess",
    "_pickle",
    "distutils",
    "flydsl",
    "marshal",
    "mlir",
    "mono_build",
    "multiprocessing",
    "pickle",
    "setuptools",
    "subprocess",
    "torch",
)
NO_EVENTS = ("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
NO_CHANGES = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.chmod",
    "os.link",
    "os.symlink",
    "socket.connect",
)


def end(what: str) -> None:
    os.write(2, f"forbidden: {what}\n".encode())
    os._exit(FORBIDDEN)


class NoImports:
    """The first finder of all: it ends the process instead of finding what is forbidden."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in NO_IMPORTS:
            end(f"import of {name}")


def watch(event: str, args: tuple[object, ...]) -> None:
    if event in NO_EVENTS or event in NO_CHANGES:
        end(event)
    if (
        event == "open"
        and isinstance(args[2], int)
        and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        end(f"{args[0]!r} opened for writing")


def serve(store_path: str) -> dict[str, object]:
    """Preload everything, launch in each form, count, close; then import whatever is left."""
    import mono_runtime

    with mono_runtime.open(store_path) as store:
        loader = store.on()
        steps: list[int] = []
        summary = loader.preload(
            loader.keys(), progress=lambda done, total, key: steps.append(done)
        )
        launch = loader.launch("deepseek_v41", "k1", tokens=1, tp=4, fold=False)
        launch(1, 2, 3)
        launch(n=6, x=4, out=5)
        launch.bind(x=7, out=8)(9)
        loader.agree(None)
        counts = dict(store.snapshot())
        driver = store.driver.name
    names = [m.name for m in pkgutil.walk_packages(mono_runtime.__path__, "mono_runtime.")]
    for name in names:
        importlib.import_module(name)
    return {
        "steps": steps,
        "summary": summary.to_json(),
        "counts": counts,
        "driver": driver,
        "modules": names,
        "home": mono_runtime.__file__,
        "imported": sorted(sys.modules),
    }


def main(copy: str, store: str, task: str) -> None:
    sys.path.insert(0, copy)
    sys.meta_path.insert(0, NoImports())  # type: ignore[arg-type]
    sys.addaudithook(watch)
    if task == "serve":
        print(json.dumps(serve(store)))
    else:
        exec(task, {})


if __name__ == "__main__":
    main(*sys.argv[1:])
