"""vLLM's entry point (``vllm.general_plugins``): a server with a store launches what is in it.

vLLM calls `register` in every process, several times in some. It imports nothing of vLLM and touches
no device: it leaves word which modules are to be changed once the engine has imported them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from mono_runtime.hooks.serving import Serving
    from mono_runtime.hooks.vllm_factories.family_hook import FamilyHook

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
        from mono_runtime.hooks.deepseek_v41.wait_limit import wait_seconds
        from mono_runtime.hooks.runner_choice import wanted_runner
        from mono_runtime.hooks.serving import Serving
        from mono_runtime.policy import policy_from

        # Now, and not in the middle of the engine's imports.
        wanted_runner()
        wait_seconds()
        policy_from(os.environ)
        made = Serving()
        install(made)
        _serving = made


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
    """The engine's modules, each with what changes it when it has been imported; that never raises."""
    from mono_runtime.hooks.vllm_factories.families import MODULES

    found: dict[str, Callable[[ModuleType], None]] = {}
    for family, names in MODULES.items():
        found |= dict.fromkeys(names, _Family(family, serving).change)
    return found


class _Family:
    """The changes for one family in one process.

    An engine that the family's hook does not know stays as it is, and so does one of whose modules a
    change has failed: what was changed before then passes everything on.
    """

    def __init__(self, family: str, serving: Serving) -> None:
        self._family = family
        self._serving = serving
        self._hook: FamilyHook | None = None

    def change(self, module: ModuleType) -> None:
        """Change one of the engine's modules."""
        from mono_runtime.errors import MonoError
        from mono_runtime.hooks.versions import engine_version, version_refusal
        from mono_runtime.log import logger

        if self._serving.leaves_alone(self._family):
            return
        # In case the engine had not set up its logger when the plug-in was loaded.
        _log_as_the_engine()
        why = version_refusal(self._family, engine_version())
        if why is None:
            try:
                self._change(module)
            except MonoError as error:
                why = str(error)
            except Exception as error:
                # An import of the engine must not fail because of us.
                logger().exception("%s could not be changed", module.__name__)
                why = f"{module.__name__}: {type(error).__name__}: {error}"
        if why is not None:
            self._serving.turn_off(self._family, why)

    def _change(self, module: ModuleType) -> None:
        from mono_runtime.hooks.vllm_factories.families import family_hook

        if module.__name__ == _V41_DECODE and self._own_layers():
            from mono_runtime.hooks.deepseek_v41.install import install as install_own

            install_own(module, self._serving)
            return
        if self._hook is None:
            self._hook = family_hook(self._family, self._serving)
        self._hook.modules()[module.__name__](module)

    def _own_layers(self) -> bool:
        """Whether this project's own layers run DeepSeek-V4.1: where vLLM's could not, or if so asked."""
        from mono_runtime.hooks.runner_choice import OWN, v41_runner

        return v41_runner(self._serving.environ) == OWN


def _log_as_the_engine() -> None:
    """Show our messages where vLLM's go: it sets up its own logger alone, so they would be lost."""
    import logging

    from mono_runtime.log import NAME

    ours, theirs = logging.getLogger(NAME), logging.getLogger("vllm")
    if not theirs.handlers:
        return
    if not ours.hasHandlers():
        for handler in theirs.handlers:
            ours.addHandler(handler)
    # Also where somebody gave the root logger a handler: its level would hide what a start loaded.
    if ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
