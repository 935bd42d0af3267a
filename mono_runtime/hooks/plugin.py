"""vLLM's entry point (``vllm.general_plugins``): a server with a store launches what is in it.

vLLM calls `register` in every process, several times in some. It imports nothing of vLLM and touches
no device: it leaves word which modules are to be changed once the engine has imported them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from mono_runtime.log import NAME, logger

if TYPE_CHECKING:
    from mono_runtime.hooks.serving import Serving
    from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook, Patch

# As in mono_runtime.layers, which a process without a store need not import.
_STORE = "MONO_STORE"
_V41_DECODE = "vllm.models.deepseek_v41.amd.mono_decode"
_lock = threading.Lock()
_serving: Serving | None = None


def register() -> None:
    """Have vLLM's modules changed when they are imported, or now if they are; only with ``MONO_STORE``.

    A second call does nothing.

    Raises:
        InvalidValue: a variable of this project has a value that is none of its own.
    """
    global _serving
    if not os.environ.get(_STORE):
        return
    with _lock:
        if _serving is not None:
            return
        from mono_runtime.hooks.runner_choice import wanted_runner
        from mono_runtime.hooks.serving import Serving
        from mono_runtime.policy import policy_from

        # Now, and not in the middle of the engine's imports.
        wanted_runner()
        policy_from(os.environ)
        _serving = Serving()
        install(_serving)


def serving() -> Serving | None:
    """The launches of this process; None without `register`, or without a store."""
    return _serving


def install(serving: Serving) -> None:
    """Have vLLM's modules changed so that they launch what ``serving`` has."""
    from wrapt import register_post_import_hook

    _log_as_the_engine()
    for name, change in changes(serving).items():
        register_post_import_hook(change, name)


def changes(serving: Serving) -> dict[str, Callable[[ModuleType], None]]:
    """The engine's modules, each with what changes it; that never raises."""
    from mono_runtime.hooks.vllm_factories.families import family_hooks

    found: dict[str, Callable[[ModuleType], None]] = {}
    for hook in family_hooks(serving):
        for name, patch in hook.modules().items():
            chosen = _v41_layers(serving, patch) if name == _V41_DECODE else patch
            found[name] = _guarded(serving, hook, chosen)
    return found


def _guarded(serving: Serving, hook: FamilyHook, patch: Patch) -> Callable[[ModuleType], None]:
    """``patch``, unless the engine is one that the family's hook does not know: then it stays as it is."""

    def change(module: ModuleType) -> None:
        from mono_runtime.errors import MonoError
        from mono_runtime.hooks.versions import engine_version, version_refusal

        if serving.leaves_alone(hook.family):
            return
        why = version_refusal(hook.family, engine_version())
        if why is None:
            try:
                patch(module)
            except MonoError as error:
                why = str(error)
            except Exception as error:
                # An import of the engine must not fail because of us.
                logger().exception("%s could not be changed", module.__name__)
                why = f"{module.__name__}: {type(error).__name__}: {error}"
        if why is not None:
            serving.turn_off(hook.family, why)

    return change


def _v41_layers(serving: Serving, patch: Patch) -> Patch:
    """For DeepSeek-V4.1: this project's own layers where vLLM's could not run, else vLLM's, changed."""

    def choose(module: ModuleType) -> None:
        from mono_runtime.hooks.runner_choice import OWN, v41_runner

        if v41_runner() != OWN:
            patch(module)
            return
        from mono_runtime.hooks.deepseek_v41.install import install as install_own

        install_own(module, serving)

    return choose


def _log_as_the_engine() -> None:
    """Show our messages where vLLM's go: it sets up its own logger alone, so they would be lost."""
    ours, theirs = logging.getLogger(NAME), logging.getLogger("vllm")
    if ours.hasHandlers() or not theirs.handlers:
        return
    for handler in theirs.handlers:
        ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
