"""Imported once by the fork server of a session: the kernels are loaded here, launches fork from here.

This module does its work when it is imported, because that is the only moment a fork server offers.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

from mono_build.compile.job import Job, Outcome, SessionContext
from mono_build.compile.loaded import LoadedFamily, load
from mono_runtime.canonical import Json

# The directory that a session shares with its fork server: the context goes in, the pid comes out.
SESSION_VARIABLE = "MONO_BUILD_SESSION"
CONTEXT_FILE = "context.json"
PID_FILE = "fork-server.pid"
_WORKER = "mono_build.compile.worker"


def _load() -> LoadedFamily | None:
    directory = os.environ.get(SESSION_VARIABLE)
    if directory is None:
        return None
    Path(directory, PID_FILE).write_text(str(os.getpid()))
    context = SessionContext.from_json(json.loads(Path(directory, CONTEXT_FILE).read_text()))
    # Here, not in every worker; the session imports this module too and needs none of it.
    importlib.import_module(_WORKER)
    return load(context)


_loaded = _load()


def run(job: Json) -> Json:
    """Build one job in a forked worker; both sides are JSON, so nothing but data crosses the pipe."""
    if _loaded is None:
        raise RuntimeError("not forked from a session's fork server")
    worker = importlib.import_module(_WORKER)
    outcome: Outcome = worker.build(_loaded, Job.from_json(job))
    return outcome.to_json()
