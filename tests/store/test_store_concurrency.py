from __future__ import annotations

import functools
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from store_kit import add, code, fill, fork, key, kill, result_of, sha, tree

from mono_build.store import locks
from mono_build.store.closure import check_entry
from mono_build.store.errors import StoreBusy
from mono_build.store.gc import collect
from mono_build.store.locks import BuilderPresence, KeyLock, Waiting
from mono_build.store.verify import verify
from mono_build.store.writer import StoreWriter
from mono_runtime.errors import StoreMissing
from mono_runtime.index import IndexEntry
from mono_runtime.oci import StoreReader


def published(store: Path) -> int:
    """How many launches there are: always the first ones, each complete."""
    reader = StoreReader.open(store)
    for entry in reader.index.entries:
        check_entry(reader.blob, entry)
    rows = [e.key.values["rows"] for e in reader.index.entries]
    assert rows == list(range(1, len(rows) + 1))
    return len(rows)


def build_for_ever(store: Path, first: int) -> None:
    """Add one launch after the other, each by a builder of its own, until killed."""
    for rows in range(first, 10_000):
        with StoreWriter(store) as writer:
            writer.recover()
            entry = add(writer, rows)
            writer.journal.record(entry)
            writer.publish([entry])


def seconds_to_publish(store: Path) -> float:
    """How long a builder takes here and now until its first launch is published."""
    fill(store, range(1, 2))
    start = time.monotonic()
    child = fork(functools.partial(build_for_ever, store, 2))
    while published(store) == 1:
        pass
    kill(child)
    return time.monotonic() - start


def test_a_builder_killed_at_any_moment_leaves_the_old_or_the_new_store(tmp_path: Path) -> None:
    # Kills fall before and after the first publication also on a slow or busy machine.
    longest = 3 * seconds_to_publish(tmp_path / "other")
    store = tmp_path / "s"
    fill(store, range(1, 2))
    chance = random.Random(7)
    count, advanced = 1, 0
    for _ in range(60):
        child = fork(functools.partial(build_for_ever, store, count + 1))
        end = time.monotonic() + chance.uniform(0.0, longest)
        while time.monotonic() < end:
            published(store)
        kill(child)
        now = published(store)
        assert now >= count
        advanced += now > count
        count = now
        assert verify(store).faults == ()
        with StoreWriter(store) as writer:
            recovered = writer.recover()
            assert {e.key.values["rows"] for e in recovered} <= {count, count + 1}
            writer.publish([add(writer, count + 1)])
        count += 1
        assert published(store) == count
        assert {p.name for p in store.iterdir()} == {"oci-layout", "index.json", "blobs"}
    # Rounds that end before the first publication and rounds that end after it both occurred.
    assert 0 < advanced < 60


def die_at(step: int) -> None:
    """Let this process be killed just before its ``step``-th change or opening of a file."""
    left = step

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event == "open" or (event.startswith("os.") and event != "os.kill"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_a_builder_killed_before_any_single_step_leaves_the_old_or_the_new_store(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "first", range(1, 2))

    def build(step: int, store: Path) -> str:
        die_at(step)
        with StoreWriter(store) as writer:
            writer.recover()
            entry = add(writer, 2)
            writer.journal.record(entry)
            writer.publish([entry])
        return "done"

    counts, step, finished = [], 0, False
    while not finished:
        store = tmp_path / str(step)
        shutil.copytree(tmp_path / "first", store)
        pid, reading = fork(functools.partial(build, step, store))
        with open(reading, "rb") as pipe:
            finished = pipe.read() == b'"done"'
        os.waitpid(pid, 0)
        counts.append(published(store))
        assert verify(store).faults == ()
        with StoreWriter(store) as writer:
            writer.recover()
            writer.publish([add(writer, 2)])
        assert published(store) == 2
        assert {p.name for p in store.iterdir()} == {"oci-layout", "index.json", "blobs"}
        step += 1
    # Once published it stays published, and both outcomes occurred.
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts.count(1) > 20
    assert counts.count(2) > 5


def test_what_a_killed_builder_finished_is_published_by_the_next(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store, range(1, 2))
    ready, done = os.pipe()

    def build() -> None:
        writer = StoreWriter(store)
        for rows in (2, 3):
            writer.journal.record(add(writer, rows))
        (store / ".builder" / "staging" / "half").write_bytes(b"half a blob")
        os.write(done, b"x")
        time.sleep(60)

    child = fork(build)
    os.read(ready, 1)
    kill(child)
    os.close(ready)
    os.close(done)
    (store / "blobs" / "sha256" / sha(code(3)).removeprefix("sha256:")).write_bytes(b"torn")
    with StoreWriter(store) as writer:
        assert writer.lookup(key(2)) is not None
        assert [e.key.values["rows"] for e in writer.recover()] == [2]
        assert writer.journal.entries() == ()
        assert writer.lookup(key(3)) is None
    assert published(store) == 2
    assert not (store / ".builder").exists()


def test_an_unpublished_journal_outlives_the_last_builder(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with StoreWriter(store) as writer:
        entry = add(writer, 1)
        writer.journal.record(entry)
    assert {p.name for p in (store / ".builder").iterdir()} == {"active", "journal"}
    assert collect_nothing(store, entry.artefact)
    with StoreWriter(store) as writer:
        assert writer.recover() == (entry,)
    assert not (store / ".builder").exists()


def test_a_result_that_is_left_by_ir_alone_does_not_keep_the_directory(tmp_path: Path) -> None:
    # A builder killed in the middle of clearing its journal.
    with StoreWriter(tmp_path) as writer:
        writer.journal.record(add(writer, 1))
        (only,) = (tmp_path / ".builder" / "journal" / "keys").iterdir()
        only.unlink()
    assert not (tmp_path / ".builder").exists()


def collect_nothing(store: Path, artefact: str) -> bool:
    with StoreWriter(store) as writer:
        writer.publish([add(writer, 5)])
    collect(store)
    return (store / "blobs" / "sha256" / artefact.removeprefix("sha256:")).is_file()


@pytest.mark.parametrize("builders", [2, 8])
def test_builders_at_once_do_each_key_once_and_lose_nothing(tmp_path: Path, builders: int) -> None:
    store, log = tmp_path / "s", tmp_path / "log"
    keys = range(1, 9)

    def build(seed: int) -> str:
        order = list(keys)
        random.Random(seed).shuffle(order)
        with StoreWriter(store) as writer:
            entries = [build_one(writer, store, log, rows) for rows in order]
            return writer.publish(entries)

    children = [fork(lambda seed=seed: build(seed)) for seed in range(builders)]
    digests = {result_of(child) for child in children}
    assert digests == {StoreReader.open(store).index_digest}
    assert sorted(log.read_text().split()) == sorted(str(rows) for rows in keys)
    assert published(store) == 8
    assert verify(store).exit_code == 0
    assert {p.name for p in store.iterdir()} == {"oci-layout", "index.json", "blobs"}


def build_one(writer: StoreWriter, store: Path, log: Path, rows: int) -> IndexEntry:
    entry = writer.lookup(key(rows))
    if entry is not None:
        return entry
    lock = KeyLock(store, key(rows).digest)
    assert lock.acquire(timeout=30)
    try:
        entry = writer.lookup(key(rows))
        if entry is None:
            time.sleep(0.002)
            with log.open("a") as file:
                file.write(f"{rows}\n")
            entry = add(writer, rows)
            writer.journal.record(entry)
        return entry
    finally:
        lock.release()


@pytest.mark.parametrize("builders", [2, 8])
def test_updates_of_builders_at_once_are_merged(tmp_path: Path, builders: int) -> None:
    store = tmp_path / "s"

    def build(first: int) -> int:
        for rows in range(first, first + 5):
            with StoreWriter(store) as writer:
                writer.publish([add(writer, rows)])
        return first

    children = [fork(lambda n=n: build(1 + 5 * n)) for n in range(builders)]
    assert [result_of(child) for child in children] == [1 + 5 * n for n in range(builders)]
    assert published(store) == 5 * builders
    assert not (store / ".builder").exists()


def hold(store: Path, digest: str) -> tuple[tuple[int, int], int]:
    """A child that holds a key's lock until killed, and a pipe that says when it does."""
    ready, done = os.pipe()

    def work() -> None:
        presence = BuilderPresence(store)
        lock = KeyLock(store, digest)
        assert lock.try_acquire()
        os.write(done, b"x")
        time.sleep(60)
        lock.release()
        presence.close()

    child = fork(work)
    os.read(ready, 1)
    os.close(ready)
    os.close(done)
    return child, child[0]


def test_a_waiting_builder_is_told_for_whom_and_how_long_and_then_goes_on(tmp_path: Path) -> None:
    digest = key(1).digest
    before = time.time()
    child, pid = hold(tmp_path, digest)
    presence = BuilderPresence(tmp_path)
    told: list[Waiting] = []
    lock = KeyLock(tmp_path, digest)
    try:
        assert not lock.try_acquire()
        assert lock.acquire(timeout=0.5, on_wait=told.append, every=0.2) is False
    finally:
        kill(child)
    assert [w.pid for w in told] == [pid] * len(told)
    assert 2 <= len(told) <= 4
    assert all(w.since is not None and before - 1 <= w.since <= time.time() for w in told)
    waits = [w.waited for w in told]
    assert waits == sorted(waits)
    assert waits[0] < 0.1
    assert waits[-1] >= 0.2
    # The holder is dead now: its lock is free, and its presence does not stop the clean-up.
    assert lock.acquire(timeout=0) is True
    lock.release()
    assert presence.tidy() is True
    assert tree(tmp_path) == {}


def test_locks_of_different_keys_are_independent(tmp_path: Path) -> None:
    child, _ = hold(tmp_path, key(1).digest)
    with StoreWriter(tmp_path):
        other = KeyLock(tmp_path, key(2).digest)
        assert other.try_acquire()
        other.release()
    kill(child)


def test_the_last_builder_tidies_and_no_other(tmp_path: Path) -> None:
    first, second = BuilderPresence(tmp_path), BuilderPresence(tmp_path)
    (tmp_path / ".builder" / "staging" / "left").write_bytes(b"over")
    assert first.tidy() is False
    assert (tmp_path / ".builder" / "staging" / "left").exists()
    assert second.tidy() is True
    assert list(tmp_path.iterdir()) == []


def test_builders_that_come_while_the_last_one_goes_always_find_their_directory(
    tmp_path: Path,
) -> None:
    def come_and_go() -> int:
        for number in range(150):
            presence = BuilderPresence(tmp_path)
            file = tmp_path / ".builder" / "staging" / f"{os.getpid()}-{number}"
            file.write_bytes(b"x")
            file.unlink()
            presence.tidy()
        return 150

    children = [fork(come_and_go) for _ in range(4)]
    assert [result_of(child) for child in children] == [150] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_directory_that_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opened = locks._open_active, []

    def open_then_lose(directory: Path) -> int | None:
        opened.append(directory)
        descriptor = real(directory)
        if len(opened) == 1:
            # As if the last builder left between our opening the file and our locking it.
            shutil.rmtree(directory)
        return descriptor

    monkeypatch.setattr(locks, "_open_active", open_then_lose)
    presence = BuilderPresence(tmp_path)
    assert len(opened) == 2
    with pytest.raises(StoreBusy):
        BuilderPresence(tmp_path, exclusive=True, timeout=0.0)
    assert presence.tidy() is True


def test_nobody_is_named_for_a_lock_that_was_given_back(tmp_path: Path) -> None:
    with StoreWriter(tmp_path):
        lock = KeyLock(tmp_path, key(1).digest)
        assert lock.try_acquire()
        assert lock.holder().pid == os.getpid()
        lock.release()
        assert lock.holder() == Waiting(None, None, 0.0)


def test_gc_refuses_to_run_beside_a_builder(tmp_path: Path) -> None:
    store = tmp_path / "s"
    fill(store)
    with StoreWriter(store) as writer:
        blob = writer.put_blob(b"not referred to yet")
        with pytest.raises(StoreBusy, match="builder is working"):
            collect(store)
        assert collect(store, dry_run=True).removed == ((blob, 19),)
        assert writer.blob(blob) == b"not referred to yet"
    assert collect(store).removed == ((blob, 19),)
    with pytest.raises(StoreMissing):
        collect(tmp_path / "none")
    assert not (tmp_path / "none").exists()
