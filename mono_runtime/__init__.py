"""What a server and a builder share: the words, formats and reading rules of a mono-build store.

A server opens a store and launches what is in it; nothing here compiles::

    store = mono_runtime.open()
    loader = store.on()
    loader.preload(store.keys(), group=tp_cpu_group)
    k1 = loader.launch("deepseek_v41", "k1", tokens=6, tp=4, ...)
    k1(*args, stream=stream)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mono_runtime.launching.launch import Launch
    from mono_runtime.loader import Loader
    from mono_runtime.policy import Policy
    from mono_runtime.ranks.peer_memory import PeerMemory
    from mono_runtime.store import Store
    from mono_runtime.store import open_store as open

__version__ = "0.1.0"
__all__ = ["Launch", "Loader", "PeerMemory", "Policy", "Store", "open"]

_PLACES = {
    "Launch": ("mono_runtime.launching.launch", "Launch"),
    "Loader": ("mono_runtime.loader", "Loader"),
    "PeerMemory": ("mono_runtime.ranks.peer_memory", "PeerMemory"),
    "Policy": ("mono_runtime.policy", "Policy"),
    "Store": ("mono_runtime.store", "Store"),
    "open": ("mono_runtime.store", "open_store"),
}


def __getattr__(name: str) -> Any:
    # The builder imports the formats alone; a server's part is imported when it is first named.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
