"""A process of an engine that loads the plug-in; a script: ``python registered.py SCENE``, answers JSON."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

V41 = "vllm.models.deepseek_v41.amd"
FACTORIES = ("build_mono_k1", "build_mono_k2", "build_mono_ffn")


def main(scene: str) -> None:
    sys.path[0] = str(Path(__file__).with_name("engine"))
    print(json.dumps(globals()[scene]()))


def before_the_engine() -> Any:
    """The order of a server: plug-ins are loaded, again, and then the model is imported."""
    _plugin().register()
    _plugin().register()
    imported = sorted(n for n in sys.modules if n.partition(".")[0] in ("vllm", "torch", "flydsl"))
    return {"imported": imported, "libraries": _libraries(), **_patched()}


def after_the_engine() -> Any:
    """The plug-in comes when the model has been imported."""
    importlib.import_module(f"{V41}.mono_decode")
    _plugin().register()
    return _patched()


def nothing() -> Any:
    """What the process has after the plug-in was loaded and nothing else happened."""
    _plugin().register()
    return {
        "serving": _plugin().serving() is not None,
        "imported": sorted(n for n in sys.modules if n.startswith(("mono_runtime", "wrapt"))),
        **_patched(),
    }


def another_version() -> Any:
    """An engine of a release that the hooks do not know."""
    _log_to_stderr()
    importlib.import_module("vllm").__version__ = "0.34.1+rocm700"
    _plugin().register()
    found = _patched()
    layer = importlib.import_module(f"{V41}.mono.layer")
    layer.build_mono_k1(layer.MonoBuild(6, 4, 0))
    return {**found, "compiled": len(layer.compiled)}


def changed_engine() -> Any:
    """An engine of a known release in which a name that is needed is gone."""
    _log_to_stderr()
    del importlib.import_module(f"{V41}.mono.runner")._ensure_writable_flydsl_cache
    _plugin().register()
    layer = importlib.import_module(f"{V41}.mono.layer")
    # It was changed before the runner was looked at.
    layer.build_mono_k1(layer.MonoBuild(6, 4, 0))
    return {"compiled": len(layer.compiled)}


def own_layers() -> Any:
    """DeepSeek-V4.1's layers, whose class the engine's module has."""
    _plugin().register()
    decode = importlib.import_module(f"{V41}.mono_decode")
    kind = decode.MonoDecodeLayer
    return {"module": type(kind).__module__ if not isinstance(kind, type) else kind.__module__}


def logging_as_the_engine() -> Any:
    """The engine's logger has a handler, and the root logger has none."""
    import logging

    theirs = logging.getLogger("vllm")
    theirs.addHandler(logging.StreamHandler(sys.stderr))
    theirs.setLevel(logging.INFO)
    theirs.propagate = False
    _plugin().register()
    logging.getLogger("mono_runtime").info("as seen in the server's log")
    return {}


def bad_value() -> Any:
    from mono_runtime.errors import MonoError

    try:
        _plugin().register()
    except MonoError as error:
        return [type(error).__name__, str(error)]
    return None


def _plugin() -> Any:
    return importlib.import_module("mono_runtime.hooks.plugin")


def _patched() -> dict[str, Any]:
    """What the engine's modules have, once they are imported."""
    decode = importlib.import_module(f"{V41}.mono_decode")
    layer = importlib.import_module(f"{V41}.mono.layer")
    runner = importlib.import_module(f"{V41}.mono.runner")
    names = vars(decode.MonoDecodeLayer).values()
    return {
        "layer": [_depth(getattr(layer, name)) for name in FACTORIES],
        "runner": [_depth(getattr(runner, name)) for name in FACTORIES[:2]],
        "methods": sum(_depth(getattr(f, "__func__", f)) for f in names),
    }


def _depth(function: Any) -> int:
    """How many wrappers are around a function."""
    depth = 0
    while hasattr(function, "__wrapped__"):
        depth, function = depth + 1, function.__wrapped__
    return depth


def _libraries() -> list[str]:
    """HIP libraries that are mapped into this process."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "amdhip" in line]


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
