"""After how long a launch that waits is reported; apart, so that a process can look at it when it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mono_runtime.errors import InvalidValue

VARIABLE = "MONO_WAIT_SECONDS"
DEFAULT_SECONDS = 10.0


def wait_seconds(environ: Mapping[str, str] | None = None) -> float:
    """Seconds after which a launch is reported: ``MONO_WAIT_SECONDS``, 10 by default; 0 is never.

    Raises:
        InvalidValue: it is no number from 0 to 86400.
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise InvalidValue(
            f"{VARIABLE} is {text!r}",
            where="the environment",
            fix="give seconds, such as 10; 0 turns the reports off",
        )
    return seconds
