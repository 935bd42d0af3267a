"""Loading all launches of a deployment side by side, before the server is ready."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mono_runtime.canonical import Json
from mono_runtime.errors import MonoError
from mono_runtime.launch_key import LaunchKey

# (done, total, key), always by the thread that called `preload`.
Progress = Callable[[int, int, LaunchKey], None]
# More threads wait for the driver's own lock.
_MOST_WORKERS = 8
_REASONS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading one launch took.

    Attributes:
        objects: code objects that were loaded for it; 0 when all of them were loaded already.
        size: bytes of these.
    """

    objects: int
    size: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that could not be loaded, and why."""

    key: LaunchKey
    error: Exception


@dataclass(frozen=True, slots=True)
class Summary:
    """How a preload went; ``loaded + shared + len(failed)`` launches were asked for.

    Attributes:
        loaded: launches for which at least one code object was loaded.
        shared: launches whose code objects were all there already.
        failed: those that could not be loaded, in the order they were asked for.
        code_objects: how many were loaded.
        bytes: of these.
        seconds: from the call to the last launch.
    """

    loaded: int
    shared: int
    failed: tuple[Failure, ...]
    code_objects: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.loaded + self.shared + len(self.failed)} launches in {self.seconds:.2f} s:"
            f" {self.loaded} loaded, {self.shared} shared, {len(self.failed)} failed"
            f" ({self.code_objects} code objects, {self.bytes / 1e6:.1f} MB)"
        )

    def to_json(self) -> Json:
        return {
            "loaded": self.loaded,
            "shared": self.shared,
            "failed": [
                {"key": str(f.key), "kind": type(f.error).__name__, "error": _what(f.error)}
                for f in self.failed
            ],
            "code_objects": self.code_objects,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }

    def raise_if_failed(self, refuses: Callable[[Exception], bool] = lambda error: True) -> None:
        """Raise one error for all launches that failed, if any did.

        Its class is the nearest that all failures have in common, so a caller who handles
        `WrongDevice` still does when every launch met it; at the most general `MonoError`.

        Args:
            refuses: whether a failure counts; by default each does.
        """
        failed = [f for f in self.failed if refuses(f.error)]
        if not failed:
            return
        count, total = len(failed), self.loaded + self.shared + len(self.failed)
        lines = [f"{f.key}: {_what(f.error)}" for f in failed[:_REASONS_SHOWN]]
        if count > _REASONS_SHOWN:
            lines.append(f"and {count - _REASONS_SHOWN} more")
        errors = [f.error for f in failed]
        shown = [e for e in errors[:_REASONS_SHOWN] if isinstance(e, MonoError)]
        raise _common_class(errors)(
            "\n    ".join([f"{count} of {total} launches could not be loaded", *lines]),
            where=_joined(e.where for e in shown),
            fix=_joined(e.fix for e in shown),
        ) from errors[0]


def preload(
    keys: Iterable[LaunchKey],
    load: Callable[[LaunchKey], Loaded],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Call ``load`` for each of ``keys`` in threads; what it raises is collected.

    An interrupt, in this thread or raised by ``load``, stops: what has begun is finished, nothing
    else is started, and the interrupt is raised. So it is with what ``progress`` raises.

    Args:
        load: loads one launch, in any thread.
        workers: threads; by default one for each core this process may use, 8 at most.
        progress: told of each launch when it is done, in the order in which they are.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    start = time.perf_counter()
    wanted = list(keys)
    results: list[Loaded | Exception | None] = [None] * len(wanted)
    pool = ThreadPoolExecutor(_worker_count(workers, len(wanted)), "mono-preload")
    try:
        futures = {pool.submit(load, key): place for place, key in enumerate(wanted)}
        for done, future in enumerate(as_completed(futures), 1):
            place = futures[future]
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            results[place] = future.result() if error is None else error
            if progress is not None:
                progress(done, len(wanted), wanted[place])
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return _summary(wanted, results, time.perf_counter() - start)


def _summary(
    keys: Sequence[LaunchKey], results: Sequence[Loaded | Exception | None], seconds: float
) -> Summary:
    done = [r for r in results if isinstance(r, Loaded)]
    return Summary(
        loaded=sum(1 for r in done if r.objects),
        shared=sum(1 for r in done if not r.objects),
        failed=tuple(
            Failure(k, r) for k, r in zip(keys, results, strict=True) if isinstance(r, Exception)
        ),
        code_objects=sum(r.objects for r in done),
        bytes=sum(r.size for r in done),
        seconds=seconds,
    )


def _worker_count(workers: int | None, items: int) -> int:
    if workers is None:
        workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
    return max(1, min(workers, items))


def _what(error: Exception) -> str:
    return error.what if isinstance(error, MonoError) else f"{type(error).__name__}: {error}"


def _common_class(errors: Sequence[Exception]) -> type[MonoError]:
    for kind in type(errors[0]).__mro__:
        if issubclass(kind, MonoError) and all(isinstance(e, kind) for e in errors):
            return kind
    return MonoError


def _joined(texts: Iterable[str | None]) -> str | None:
    # Each once, in order: most launches fail for the same reason.
    return "; ".join(dict.fromkeys(t for t in texts if t)) or None
