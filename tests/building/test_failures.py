"""Launches that fail, die, hang or eat memory cost themselves alone, and say what to do."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import command, environment, manifest, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def failing(
    home: Path, tmp_path: Path, behaviour: str, *arguments: str
) -> tuple[dict[str, object], str]:
    """Build two good launches and one that behaves so; the failure's report and standard error."""
    plan = manifest(tmp_path / "m.yaml", {"behaviour": ["work", behaviour]}, rows=[1])
    result = run(
        ["build", "--store", str(tmp_path / "store"), "--manifest", plan, "--json", *arguments],
        environment(home),
    )
    assert result.code == 1, result.err
    report = result.json
    assert (report["planned"], report["compiled"], report["failed"]) == (2, 1, 1)
    listed = run(["ls", "--store", str(tmp_path / "store"), "--json"], environment(home)).json
    assert len(listed["launches"]) == 1
    return report["failures"][0], result.err


@pytest.mark.parametrize(
    ("behaviour", "arguments", "kind", "message", "attempts"),
    [
        ("fail", (), "compile", "ValueError: the kernel does not like this key", 1),
        ("abort", (), "died", "the compile died of SIGABRT: LLVM ERROR: Cannot select", 2),
        ("kill", ("--retries", "0"), "memory", "the compile was killed (out of memory?)", 1),
        ("exit", ("--retries", "2"), "died", "the compile ended its process (exit code 7)", 3),
        ("hang", ("--timeout", "2"), "timeout", "the compile took longer than 2 s", 1),
        ("eat", ("--memory", "0.75"), "memory", "the compile ran out of the memory it may use", 1),
    ],
)
def test_a_bad_launch_costs_itself_alone(
    home: Path,
    tmp_path: Path,
    behaviour: str,
    arguments: tuple[str, ...],
    kind: str,
    message: str,
    attempts: int,
) -> None:
    outcome, errors = failing(home, tmp_path, behaviour, *arguments)
    failure = outcome["failure"]
    assert isinstance(failure, dict)
    assert failure["kind"] == kind
    assert message in failure["what"]
    assert outcome["attempts"] == attempts
    assert Path(str(outcome["log"])).is_file()
    assert f"log:       {outcome['log']}" in errors
    assert "Traceback" not in errors


def test_the_printed_command_reproduces_just_that_launch(home: Path, tmp_path: Path) -> None:
    _, errors = failing(home, tmp_path, "fail")
    line = next(line for line in errors.splitlines() if "reproduce:" in line)
    words = shlex.split(line.partition("reproduce:")[2])
    assert words[:2] == ["mono-build", "build"]
    again = run([*words[1:], "--json"], environment(home))
    assert again.code == 1
    assert (again.json["planned"], again.json["failed"]) == (1, 1)


def test_fail_fast_leaves_the_rest_unstarted_and_says_so(home: Path, tmp_path: Path) -> None:
    plan = manifest(
        tmp_path / "m.yaml", {"behaviour": ["fail"]}, {"pause": [0.1]}, rows=[1, 2, 3, 4]
    )
    result = run(
        [
            "build",
            "--store",
            str(tmp_path / "s"),
            "--manifest",
            plan,
            "--json",
            "--fail-fast",
            "-j1",
        ],
        environment(home),
    )
    assert result.code == 1
    report = result.json
    assert report["failed"] == 1
    assert report["not_started"] >= 5
    assert report["planned"] == 8


def test_a_persistent_grid_that_cannot_be_resident_is_refused(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {"grid": [256, 4096]}, rows=[1], launch="resident")
    arguments = ["build", "--store", str(tmp_path / "store"), "--manifest", plan, "--json"]
    result = run(arguments, environment(home))
    assert result.code == 1
    failure = result.json["failures"][0]["failure"]
    assert failure["kind"] == "residency"
    # 24 VGPRs and 4 waves a workgroup: 8 workgroups a compute unit, 2,048 on 256 compute units.
    assert (
        "its 4096 workgroups wait for each other, and 256 compute units hold 2048"
        in failure["what"]
    )
    smaller = run([*arguments, "--device", "MI9000X"], environment(home))
    assert smaller.code == 2
    assert "unknown device 'MI9000X'" in smaller.err


def test_a_broken_import_fails_every_launch_with_its_reason(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml")
    broken = tmp_path / "broken" / "standin_kernels"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("")
    (broken / "launches.py").write_text("import a_module_that_is_not_there\n")
    variables = environment(home)
    variables["PYTHONPATH"] = f"{broken.parent}:{variables['PYTHONPATH']}"
    result = run(["build", "--store", str(tmp_path / "s"), "--manifest", plan, "--json"], variables)
    assert result.code == 1
    kinds = {f["failure"]["kind"] for f in result.json["failures"]}
    assert kinds == {"import"}
    assert "a_module_that_is_not_there" in result.json["failures"][0]["failure"]["what"]
    assert not (tmp_path / "s" / "index.json").exists()


def test_a_family_whose_process_cannot_start_fails_alone(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {}, rows=[1, 2, 3])
    broken = tmp_path / "broken" / "standin_kernels"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("")
    (broken / "launches.py").write_text("import os\nos._exit(3)\n")
    variables = environment(home)
    variables["PYTHONPATH"] = f"{broken.parent}:{variables['PYTHONPATH']}"
    result = run(["build", "--store", str(tmp_path / "s"), "--manifest", plan, "--json"], variables)
    assert result.code == 1
    assert (result.json["planned"], result.json["failed"]) == (3, 3)
    assert all(Path(f["log"]).is_file() for f in result.json["failures"])
    assert "Traceback" not in result.err


def killed_processes(pattern: str, directory: Path) -> list[int]:
    """SIGKILL every process whose command line has ``pattern`` and whose directory is in ``directory``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().decode(errors="replace")
                if pattern in words and str(directory) in (process / "environ").read_text(
                    errors="replace"
                ):
                    os.kill(int(process.name), signal.SIGKILL)
                    found.append(int(process.name))
    return found


def alive(directory: Path) -> list[str]:
    """Command lines of processes that were started with a home in ``directory``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"TMPDIR={directory}" in (process / "environ").read_text(errors="replace"):
                    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if words:
                        found.append(words)
    return found


@pytest.mark.parametrize("victim", ["mono_build.compile.session", "multiprocessing.forkserver"])
def test_the_death_of_a_session_or_its_fork_server_is_survived(
    home: Path, tmp_path: Path, victim: str
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [1.0]}, rows=[1, 2, 3])
    arguments = ["build", "--store", str(tmp_path / "s"), "--manifest", plan, "--json", "-j1"]
    builder = subprocess.Popen(
        command(*arguments), env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    locks = tmp_path / "s" / ".builder" / "locks"
    end = time.monotonic() + 30
    while not (locks.is_dir() and any(p.suffix == ".owner" for p in locks.iterdir())):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert killed_processes(victim, home)
    out, err = builder.communicate(timeout=60)
    report = json.loads(out)
    assert b"Traceback" not in err
    if victim.endswith("session"):
        assert builder.returncode == 1
        assert report["failed"] == 3
        assert "ended early" in report["failures"][0]["failure"]["what"]
    else:
        # A launch that lost its fork server is an abnormal death: tried again with another.
        assert builder.returncode == 0, err.decode()
        assert report["compiled"] == 3
    assert alive(home) == []


def test_sigkill_of_the_command_leaves_no_process_and_no_directory(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [30.0]}, rows=[1, 2])
    builder = subprocess.Popen(
        command("build", "--store", str(tmp_path / "s"), "--manifest", plan),
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    locks = tmp_path / "s" / ".builder" / "locks"
    end = time.monotonic() + 30
    while not (locks.is_dir() and any(p.suffix == ".owner" for p in locks.iterdir())):
        assert time.monotonic() < end
        time.sleep(0.02)
    builder.kill()
    builder.wait()
    end = time.monotonic() + 20
    while alive(home) or list(home.glob("mono-build*")) or list(home.glob("pymp-*")):
        assert time.monotonic() < end, (alive(home), list(home.iterdir()))
        time.sleep(0.1)


def test_a_machine_without_shared_memory_says_so(home: Path, tmp_path: Path) -> None:
    """Processes share locks in /dev/shm, which some sandboxes do not have."""
    plan = manifest(tmp_path / "m.yaml", {"behaviour": ["work"]}, rows=[1])
    hidden = 'mount -t tmpfs -o ro,size=4k none /dev/shm && exec "$@"'
    build = command("build", "--store", str(tmp_path / "s"), "--manifest", plan, "--json")
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", hidden, "sh", *build],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode not in (0, 1):
        pytest.skip(f"no mount namespace can be made here: {result.stderr.strip()}")
    assert result.returncode == 1
    failure = json.loads(result.stdout)["failures"][0]["failure"]
    assert "no semaphore can be made (Read-only file system)" in failure["what"]
    assert failure["what"].count("/dev/shm") == 1
    assert "do:" not in failure["what"]
