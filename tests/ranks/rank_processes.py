"""Ranks of tests as real processes, joined by a gloo group, that do one job after the other."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

# Seconds after which a test gives up on a rank; no test comes near it.
LIMIT = 60.0


@dataclass(frozen=True)
class Answer:
    """How a job ended: its result, or the class and text of its error and of that one's cause."""

    result: Any = None
    error: str = ""
    text: str = ""
    cause: str = ""
    context: str = ""
    trace: str = ""


def _forkserver() -> Any:
    context = multiprocessing.get_context("forkserver")
    # Importing torch takes longer than everything else here, so it is done once and forked.
    context.set_forkserver_preload(["__main__", "torch.distributed", "rank_jobs"])
    return context


def _serve(
    rank: int,
    size: int,
    rendezvous: str,
    environ: Mapping[str, str],
    jobs: str,
    orders: Connection,
) -> None:
    from datetime import timedelta

    import torch.distributed as dist

    os.environ.update(environ)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=LIMIT),
    )
    session = importlib.import_module(jobs).Session(rank)
    while True:
        try:
            job, arguments = orders.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = Answer(getattr(session, job)(*arguments))
        except Exception as error:
            answer = Answer(
                error=type(error).__name__,
                text=str(error),
                cause=type(error.__cause__).__name__,
                context=type(error.__context__).__name__,
                trace=traceback.format_exc(),
            )
        orders.send(answer)


class Ranks:
    """``size`` processes; a context manager that ends them all.

    Each has a ``Session(rank)`` of the module ``jobs``, whose methods are the jobs.
    """

    def __init__(
        self,
        size: int,
        directory: Path,
        environ: Mapping[str, str] | None = None,
        *,
        jobs: str = "rank_jobs",
    ) -> None:
        self.size = size
        self._directory = directory
        self._environ = dict(environ or {})
        self._jobs = jobs

    def __enter__(self) -> Ranks:
        context = _forkserver()
        self._directory.mkdir(exist_ok=True)
        rendezvous = str(self._directory / "rendezvous")
        self._processes = []
        self._orders: list[Connection] = []
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            arguments = (rank, self.size, rendezvous, self._environ, self._jobs, theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._orders.append(ours)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for orders in self._orders:
            orders.close()

    def start(self, rank: int, job: str, *arguments: Any) -> None:
        """Let ``rank`` begin a job."""
        self._orders[rank].send((job, arguments))

    def finish(self, rank: int) -> Answer:
        """How the job that ``rank`` began has ended."""
        if not self._orders[rank].poll(LIMIT):
            raise TimeoutError(f"rank {rank} was left waiting")
        answer = self._orders[rank].recv()
        assert isinstance(answer, Answer)
        return answer

    def run(self, job: str, *arguments: Any, on: Sequence[int] | None = None) -> list[Answer]:
        """Let all ranks do one job; an argument that is a `PerRank` is each one's own."""
        ranks = range(self.size) if on is None else on
        for rank in ranks:
            self.start(rank, job, *(a.of(rank) if isinstance(a, PerRank) else a for a in arguments))
        return [self.finish(rank) for rank in ranks]

    def results(self, job: str, *arguments: Any, on: Sequence[int] | None = None) -> list[Any]:
        """What all ranks' jobs return; none may fail."""
        answers = self.run(job, *arguments, on=on)
        for answer in answers:
            assert not answer.error, answer.trace
        return [answer.result for answer in answers]

    def kill(self, rank: int) -> None:
        self._processes[rank].kill()
        self._processes[rank].join()

    def stop(self, rank: int) -> None:
        pid = self._processes[rank].pid
        os.kill(pid, signal.SIGSTOP)
        # It is no child of this process, so its state is all that tells when nothing of it runs.
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            os.sched_yield()

    def resume(self, rank: int) -> None:
        os.kill(self._processes[rank].pid, signal.SIGCONT)


@dataclass(frozen=True)
class PerRank:
    """One value for each rank: ``default``, but for the ranks in ``others``."""

    default: Any
    others: Mapping[int, Any]

    def of(self, rank: int) -> Any:
        return self.others.get(rank, self.default)
