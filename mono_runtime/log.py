"""Logging a fact once: what is true for every call of a launch need not be said at every call."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

NAME = "mono_runtime"


def logger() -> Logger:
    """This package's logger. No handler is installed and no level is set: that is the server's."""
    import logging

    return logging.getLogger(NAME)


class Once:
    """Remembers which facts were logged. Keep one for as long as a fact should not be repeated.

    Args:
        limit: how many facts are remembered. Beyond it the one that was not met for the longest time
            is forgotten, and logged again when it is met.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._seen: dict[Hashable, None] = {}
        self._lock = threading.Lock()

    def __call__(
        self, logger: Logger, level: int, fact: Hashable, message: str, *args: object
    ) -> bool:
        """Log ``message % args`` unless ``fact`` was logged before; whether it was logged now.

        One thread of several that meet a fact at once logs it. A fact whose level is not enabled
        counts as not logged.
        """
        if not logger.isEnabledFor(level):
            return False
        with self._lock:
            known = fact in self._seen
            # To the end, so that the first is always the one not met for longest.
            self._seen.pop(fact, None)
            self._seen[fact] = None
            if len(self._seen) > self._limit:
                del self._seen[next(iter(self._seen))]
        if not known:
            logger.log(level, message, *args)
        return not known
