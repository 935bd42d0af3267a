"""Names of a package whose modules are imported when one of them is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``.

    Args:
        places: name -> the module that has it, and its name there.
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        module, attribute = places[name]
        value = getattr(importlib.import_module(module), attribute)
        setattr(sys.modules[package], name, value)
        return value

    return get
