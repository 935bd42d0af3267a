"""A container without an engine: a command in namespaces of its own, below a root made of bind mounts.

``python -I -S container_root.py SPECIFICATION.json`` runs the command of the specification (see `Container`) and
ends with its exit code; `IMPOSSIBLE` and the reason on standard error when this machine forbids it.

Root takes mount, process, IPC and network namespaces and gives up root. Another user takes a user namespace
besides, in which the wanted id stands for his own, so that files of his are then the server's own.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

IMPOSSIBLE, BROKEN = 70, 71
# What a kernel answers that has no namespaces, has too many, or does not let this user have them.
_FORBIDDEN = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC, errno.EUSERS}
# linux/sched.h
_NEWNS, _NEWUTS, _NEWIPC = 0x00020000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
# linux/mount.h
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
# linux/prctl.h
_NO_NEW_PRIVS, _PARENT_DEATH = 38, 1
_DEVICES = ("null", "zero", "urandom")


@dataclass(frozen=True)
class Bind:
    """A directory or file of this machine and where the container sees it."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Container:
    """What an engine would be told.

    Attributes:
        root: an empty directory of this machine to build the root in.
        binds: what is in the root, parents first.
        links: from path in the container to what the link says.
        environment: all of it.
        user: user and group id; no further groups, no capabilities.
        network: the machine's network instead of none.
        writable: whether the root itself can be written, and there is shared memory.
    """

    root: str
    command: Sequence[str]
    binds: Sequence[Bind]
    links: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: int = 65534
    network: bool = False
    writable: bool = False


def run(container: Container, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run it; `Impossible` when this machine has no namespaces for this user, else `RuntimeError`."""
    specification = Path(f"{container.root}.json")
    specification.write_text(json.dumps(asdict(container)))
    done = subprocess.run(
        [sys.executable, "-I", "-S", __file__, str(specification)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode == IMPOSSIBLE:
        raise Impossible(done.stderr.strip())
    if done.returncode == BROKEN:
        raise RuntimeError(done.stderr.strip())
    return done


class Impossible(Exception):
    """This machine, or this user on it, may not make the namespaces or mounts of a container."""


# ---- what follows runs in the process of the container ----


def _checked(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class _Kernel:
    """The calls that Python has no functions for; each raises `OSError`."""

    def __init__(self) -> None:
        self._c: Any = ctypes.CDLL(None, use_errno=True)

    def unshare(self, flags: int) -> None:
        _checked(self._c.unshare(flags), "unshare")

    def mount(self, source: str, target: str, kind: str | None, flags: int) -> None:
        names = [None if n is None else os.fsencode(n) for n in (source, target, kind)]
        _checked(self._c.mount(*names, ctypes.c_ulong(flags), None), f"mount {target}")

    def pivot(self, root: str) -> None:
        """Make ``root`` the root of this mount namespace, and let go of the old one."""
        os.chdir(root)
        _checked(self._c.pivot_root(b".", b"."), "pivot_root")
        _checked(self._c.umount2(b".", _DETACH), "umount of the old root")
        os.chdir("/")

    def no_new_privileges(self) -> None:
        _checked(self._c.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")

    def die_with_parent(self) -> None:
        """End when whoever waits for this process is killed; a change of user forgets it."""
        _checked(self._c.prctl(_PARENT_DEATH, int(signal.SIGKILL), 0, 0, 0), "parent death signal")


def _flags(path: str) -> int:
    """Mount flags that a user namespace does not allow to drop."""
    found = os.statvfs(path).f_flag
    kept = ((os.ST_NOSUID, _NOSUID), (os.ST_NODEV, _NODEV), (os.ST_NOEXEC, _NOEXEC))
    return sum(flag for bit, flag in kept if found & bit)


def _bind(kernel: _Kernel, root: str, source: str, target: str, writable: bool) -> None:
    place = Path(root + target)
    if Path(source).is_dir():
        place.mkdir(parents=True, exist_ok=True)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    kernel.mount(source, str(place), None, _BIND)
    flags = _REMOUNT | _BIND | _flags(str(place)) | (0 if writable else _RDONLY)
    kernel.mount("none", str(place), None, flags)


def _make_root(kernel: _Kernel, what: dict[str, Any]) -> None:
    root = what["root"]
    os.umask(0o022)
    kernel.mount("none", "/", None, _REC | _PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", _NOSUID)
    Path(root).chmod(0o755)
    Path(root + "/proc").mkdir()
    Path(root + "/tmp").mkdir()
    Path(root + "/tmp").chmod(0o1777)
    for bind in what["binds"]:
        _bind(kernel, root, bind["source"], bind["target"], bind["writable"])
    for name in _DEVICES:
        _bind(kernel, root, f"/dev/{name}", f"/dev/{name}", False)
    for path, text in what["links"].items():
        Path(root + path).parent.mkdir(parents=True, exist_ok=True)
        Path(root + path).symlink_to(text)
    kernel.mount("proc", root + "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    if what["writable"]:
        # As engines have it; builders that start processes need it for their semaphores.
        Path(root + "/dev/shm").mkdir()
        kernel.mount("tmpfs", root + "/dev/shm", "tmpfs", _NOSUID | _NODEV | _NOEXEC)
        Path(root + "/dev/shm").chmod(0o1777)
    else:
        kernel.mount("none", root, None, _REMOUNT | _BIND | _RDONLY | _NOSUID)
    kernel.pivot(root)


def _enter(kernel: _Kernel, what: dict[str, Any]) -> None:
    user, group, privileged = os.geteuid(), os.getegid(), os.geteuid() == 0
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID
    flags |= 0 if what["network"] else _NEWNET
    kernel.unshare(flags if privileged else flags | _NEWUSER)
    if not privileged:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{what['user']} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{what['user']} {group} 1")


def _become(kernel: _Kernel, user: int) -> None:
    if os.geteuid() == 0 and os.getuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.no_new_privileges()
    kernel.die_with_parent()


def _code(error: OSError) -> int:
    return IMPOSSIBLE if error.errno in _FORBIDDEN else BROKEN


def _contained(kernel: _Kernel, what: dict[str, Any]) -> None:
    """Process 1 of the container up to its command; does not return."""
    try:
        _make_root(kernel, what)
        _become(kernel, what["user"])
        os.chdir(what["directory"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        os._exit(_code(error))
    try:
        os.execve(what["command"][0], what["command"], what["environment"])
    except OSError as error:
        os.write(2, f"{what['command'][0]}: {error}\n".encode())
        os._exit(127)


def _main(specification: str) -> int:
    what = json.loads(Path(specification).read_text())
    kernel = _Kernel()
    try:
        _enter(kernel, what)
    except OSError as error:
        print(error, file=sys.stderr)
        return _code(error)
    # The first child is process 1 of the new namespace; the mounts of /proc have to be its.
    child = os.fork()
    if not child:
        _contained(kernel, what)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
