"""Builders that are interrupted, killed, frozen or many: a store never shows half of anything."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import command, environment, manifest, run

from mono_build.elf import check_artefact
from mono_build.store.verify import verify
from mono_runtime.errors import StoreMissing
from mono_runtime.oci import StoreReader

ROUNDS = 50
SEED = 20261129


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def start(arguments: list[str], variables: dict[str, str], errors: Path) -> subprocess.Popen[bytes]:
    """A builder in the background, the leader of a process group of its own."""
    with errors.open("wb") as file:
        return subprocess.Popen(
            command("build", *arguments),
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )


def read(store: Path) -> dict[str, bytes]:
    """Every launch of the store with the bytes of its objects, all verified; empty without a store."""
    try:
        reader = StoreReader.open(store)
    except StoreMissing:
        return {}
    found = {}
    for entry in reader.index.entries:
        artefact = reader.artefact(entry.artefact)
        objects = [reader.blob(c.digest) for c in artefact.code_objects]
        assert [check_artefact(o, artefact) for o in objects] == [[]]
        found[entry.key.digest] = b"".join(objects)
    return found


def wait_for(condition: object, seconds: float = 30) -> None:
    """Wait until ``condition()`` holds."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_nothing_and_shows_nothing_half_done(
    home: Path, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    variables = environment(home)
    store = tmp_path / "store"
    whole = tmp_path / "whole"
    seen: dict[str, bytes] = {}
    killed = 0
    for round_ in range(ROUNDS):
        # Each round asks for a launch more than the last, so that there is always something to do.
        plan = manifest(tmp_path / "m.yaml", {"pause": [0.01]}, rows=range(1, round_ + 3))
        arguments = ["--store", str(store), "--manifest", plan, "-j2"]
        builder = start(arguments, variables, tmp_path / "errors")
        try:
            builder.wait(timeout=chance.uniform(0.2, 2.0))
        except subprocess.TimeoutExpired:
            os.killpg(builder.pid, signal.SIGKILL)
            builder.wait()
            killed += 1
        now = read(store)
        assert seen.items() <= now.items(), "a launch that was there is gone or changed"
        seen = now
    assert killed >= ROUNDS // 2
    final = run(["build", "--store", str(store), "--manifest", plan, "--json"], variables)
    assert (final.code, final.json["failed"], final.json["not_started"]) == (0, 0, 0)
    fresh = run(["build", "--store", str(whole), "--manifest", plan, "--json"], variables)
    assert read(store).items() >= read(whole).items()
    assert final.json["planned"] == fresh.json["planned"]
    report = verify(store, check_artefact)
    assert report.faults == ()
    assert not (store / ".builder").exists()


def test_a_killed_builder_leaves_its_finished_launches_to_the_next(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.0, 30.0]}, rows=[1, 2])
    store = tmp_path / "store"
    arguments = ["--store", str(store), "--manifest", plan, "-j4"]
    builder = start(arguments, environment(home), tmp_path / "errors")
    keys = store / ".builder" / "journal" / "keys"
    wait_for(lambda: keys.is_dir() and len(list(keys.iterdir())) == 2)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    assert read(store) == {}
    quick = manifest(tmp_path / "q.yaml", {"pause": [0.0]}, rows=[1, 2])
    result = run(["build", "--store", str(store), "--manifest", quick, "--json"], environment(home))
    assert (result.json["reused"], result.json["traced"]) == (2, 0)
    assert len(read(store)) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_publishes_what_is_done_and_the_same_command_goes_on(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.0, 1.5]}, rows=[1, 2, 3])
    store, errors = tmp_path / "store", tmp_path / "errors"
    arguments = ["--store", str(store), "--manifest", plan, "-j1"]
    builder = start(arguments, environment(home), errors)
    wait_for(lambda: b"[1/6" in errors.read_bytes())
    os.kill(builder.pid, number)
    assert builder.wait(timeout=20) == 130
    assert b"the same command goes on" in errors.read_bytes()
    assert b"Traceback" not in errors.read_bytes()
    done = len(read(store))
    assert 1 <= done < 6
    result = run(["build", "--json", *arguments], environment(home))
    assert (result.code, result.json["planned"]) == (0, 6)
    assert result.json["traced"] == 6 - done
    assert result.json["reused"] >= done
    assert len(read(store)) == 6


def test_eight_cold_builders_compile_each_key_once(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.2]}, rows=range(1, 9))
    arguments = ["build", "--store", str(tmp_path / "store"), "--manifest", plan, "--json", "-j1"]
    builders = [
        subprocess.Popen(
            command(*arguments),
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    import json

    reports = []
    for builder in builders:
        out, err = builder.communicate(timeout=120)
        assert builder.returncode == 0, err.decode()
        reports.append(json.loads(out))
    assert sum(r["compiled"] for r in reports) == 8
    assert all(r["compiled"] + r["reused"] == 8 for r in reports)
    assert {r["index_digest"] for r in reports} == {
        StoreReader.open(tmp_path / "store").index_digest
    }
    assert len(read(tmp_path / "store")) == 8
    assert not (tmp_path / "store" / ".builder").exists()


def test_a_frozen_builder_keeps_nobody_from_reading_and_is_named_to_who_waits(
    home: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = manifest(tmp_path / "first.yaml", {"pause": [0.0]}, rows=[1])
    assert run(["build", "--store", str(store), "--manifest", first], environment(home)).code == 0
    plan = manifest(tmp_path / "m.yaml", {"pause": [4.0]}, rows=[2])
    arguments = ["--store", str(store), "--manifest", plan, "-j1"]
    frozen = start(arguments, environment(home), tmp_path / "errors")
    locks = store / ".builder" / "locks"
    wait_for(lambda: locks.is_dir() and any(p.suffix == ".owner" for p in locks.iterdir()))
    owner = next(p for p in locks.iterdir() if p.suffix == ".owner")
    import json

    worker = int(json.loads(owner.read_text())["pid"])
    os.kill(worker, signal.SIGSTOP)
    try:
        assert len(read(store)) == 1
        waiting = run(["build", "--json", "--timeout", "5", *arguments], environment(home))
        assert waiting.code == 0, waiting.err
        assert f"process {worker} is building it" in waiting.err
        # After its own time limit the waiter builds the launch itself.
        assert waiting.json["compiled"] == 1
        assert len(read(store)) == 2
    finally:
        os.kill(worker, signal.SIGCONT)
        os.killpg(frozen.pid, signal.SIGKILL)
        frozen.wait()


def test_a_frozen_holder_of_equal_ir_costs_time_and_no_launch(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {}, rows=[1])
    first = tmp_path / "first"
    assert run(["build", "--store", str(first), "--manifest", plan], environment(home)).code == 0
    ir = StoreReader.open(first).index.entries[0].ir
    store = tmp_path / "store"
    hold = (
        "import sys, time; from pathlib import Path\n"
        "from mono_build.store.locks import BuilderPresence, KeyLock\n"
        "store = Path(sys.argv[1]); store.mkdir(); presence = BuilderPresence(store)\n"
        "lock = KeyLock(store, sys.argv[2]); print(lock.try_acquire(), flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(store), ir],
        env=environment(home),
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        arguments = ["build", "--store", str(store), "--manifest", plan, "--json", "--timeout", "4"]
        result = run(arguments, environment(home))
        assert result.code == 0, result.err
        assert result.json["compiled"] == 1
    finally:
        holder.kill()
        holder.communicate()
