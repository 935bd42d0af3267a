"""Which process a rank is, so that another one knows how to reach its memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mono_runtime.canonical import Json
from mono_runtime.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, unlike any other one on any host.

    Attributes:
        boot: the kernel's id of its present boot: the same in all containers of a host, and on no
            other host.
        host: the host's or container's name, for messages.
        pid_namespace: inode number of the PID namespace, in which ``pid`` has its meaning.
        pid: process id.
        start: when it started, in clock ticks since boot; a pid is used again, with a later start.
    """

    boot: str
    host: str
    pid_namespace: int
    pid: int
    start: int

    def is_process(self, other: ProcessIdentity) -> bool:
        """Whether both are one process."""
        return (self.boot, self.pid_namespace, self.pid, self.start) == (
            other.boot,
            other.pid_namespace,
            other.pid,
            other.start,
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def to_json(self) -> Json:
        return [self.boot, self.host, self.pid_namespace, self.pid, self.start]

    @staticmethod
    def from_json(value: Json) -> ProcessIdentity:
        """The identity that `to_json` wrote; anything else raises `InvalidValue`."""
        match value:
            case [str(boot), str(host), int(namespace), int(pid), int(start)]:
                return ProcessIdentity(boot, host, namespace, pid, start)
        raise InvalidValue("not the identity of a process")


def this_process() -> ProcessIdentity:
    """The calling process.

    Raises:
        InvalidValue: ``/proc`` does not tell. Without it two containers' processes could be taken for
            one, and an address of one used in the other.
    """
    proc = Path("/proc")
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (proc / "self/ns/pid").stat().st_ino
        # Field 22 of proc_pid_stat(5); the name in field 2 can hold spaces and parentheses.
        start = int((proc / "self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError) as error:
        raise InvalidValue(
            f"cannot find out which process this is: {error}",
            where="/proc",
            fix="mount /proc in the container",
        ) from error
    return ProcessIdentity(boot, os.uname().nodename, namespace, os.getpid(), start)
