"""Putting wrappers around an engine's functions: by name, once, and only where everything is as expected."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MethodType, ModuleType
from typing import Any

from mono_runtime.errors import MonoError

# Called with the wrapped function (bound, for a method), the instance or None, and the call's arguments.
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], Mapping[str, Any]], Any]
_MARK = "_mono_runtime"


class EngineDiffers(MonoError):
    """The engine's code is not what a hook was written for."""

    exit_code = 4


def only(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The one argument of a call, given by position or by name."""
    (argument,) = (*args, *kwargs.values())
    return argument


def require_names(module: ModuleType, names: Iterable[str]) -> None:
    """Raise `EngineDiffers` unless ``module`` has all of ``names``; a dot leads into a class."""
    missing = [name for name in names if _find(module, name) is None]
    if missing:
        raise EngineDiffers(
            f"{module.__name__} has no {', '.join(missing)}",
            where=getattr(module, "__file__", None),
            fix="use a release of mono-build that knows this release of the engine",
        )


def wrap(module: ModuleType, name: str, wrapper: Wrapper) -> None:
    """Replace ``module``'s function ``name`` (``function`` or ``Class.method``) by a wrapped one.

    A function that is wrapped already, perhaps because it was imported from a module where it is, stays
    as it is. Static and class methods keep their kind.
    """
    owner, attribute = _owner(module, name)
    raw = inspect.getattr_static(owner, attribute)
    kind = type(raw) if isinstance(raw, (classmethod, staticmethod)) else None
    function = raw if kind is None else raw.__func__
    if hasattr(function, _MARK):
        return
    method = isinstance(owner, type) and kind is not staticmethod
    patched = _method(function, wrapper) if method else _function(function, wrapper)
    setattr(functools.update_wrapper(patched, function), _MARK, True)
    setattr(owner, attribute, patched if kind is None else kind(patched))


def wrap_where_imported(module: ModuleType, name: str, wrapper: Wrapper) -> None:
    """`wrap`, if ``module`` has the name: it was imported there before the other module was patched."""
    if _find(module, name) is not None:
        wrap(module, name, wrapper)


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """What ``function`` was before it was wrapped here."""
    before: Callable[..., Any] = getattr(function, "__wrapped__", function)
    return before if hasattr(function, _MARK) else function


def _function(function: Callable[..., Any], wrapper: Wrapper) -> Callable[..., Any]:
    def patched(*args: Any, **kwargs: Any) -> Any:
        return wrapper(function, None, args, kwargs)

    return patched


def _method(function: Callable[..., Any], wrapper: Wrapper) -> Callable[..., Any]:
    def patched(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return wrapper(MethodType(function, self), self, args, kwargs)

    return patched


def _find(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
        if found is None:
            return None
    return found


def _owner(module: ModuleType, name: str) -> tuple[Any, str]:
    *path, attribute = name.split(".")
    owner: Any = module
    for part in path:
        owner = getattr(owner, part)
    return owner, attribute
