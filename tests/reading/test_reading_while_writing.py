"""Builders that publish, clean up, freeze or die while stores are opened."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest
from reading_kit import expected, opened, use
from store_kit import add, code, fill, fork, key, kill, result_of, sha

from mono_build.store.gc import collect
from mono_build.store.locks import KeyLock, PublishLock
from mono_build.store.writer import StoreWriter
from mono_runtime import oci
from mono_runtime.errors import StoreMissing
from mono_runtime.layers import Layers, open_layers
from mono_runtime.oci import StoreReader

READERS = 8
LAST = 20


def check_complete(layers: Layers) -> int:
    """How many launches there are: always the first ones, every byte of each as it should be."""
    keys = layers.keys()
    rows = sorted(k.values["rows"] for k in keys)
    assert rows == list(range(1, len(rows) + 1))
    for number in range(1, len(rows) + 1):
        assert use(layers, number) == expected(number)
    return len(rows)


def publish(store: Path, rows: int) -> None:
    with StoreWriter(store) as writer:
        writer.publish([add(writer, rows)])


@pytest.mark.slow
def test_eight_readers_always_see_a_complete_store_while_one_builder_publishes(
    tmp_path: Path,
) -> None:
    """The builder also removes what earlier publications left, so readers lose files under way."""
    store = tmp_path / "s"
    fill(store, range(1, 2))
    ready_end, ready = os.pipe()
    stop, stop_end = os.pipe()

    def read() -> list[int]:
        # Otherwise the readers themselves would keep the pipe open that ends them.
        os.close(stop_end)
        seen = [check_complete(opened(store))]
        os.write(ready, b"x")
        while not select.select([stop], [], [], 0)[0]:
            seen.append(check_complete(opened(store)))
        return seen

    readers = [fork(read) for _ in range(READERS)]
    for _ in readers:
        assert os.read(ready_end, 1) == b"x"
    for rows in range(2, LAST + 1):
        publish(store, rows)
        collect(store)
    os.close(stop_end)
    results = [result_of(reader) for reader in readers]
    for descriptor in (ready_end, ready, stop):
        os.close(descriptor)
    for seen in results:
        assert isinstance(seen, list), seen
        # Never older than what was seen before.
        assert seen == sorted(seen)
    assert len({count for seen in results for count in seen}) > 3
    assert check_complete(opened(store)) == LAST


@pytest.mark.parametrize("times", [1, 3])
def test_an_index_that_is_replaced_and_removed_while_it_is_opened_is_read_anew(
    store: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    real, left = oci._open_listing, list(range(4, 4 + times))

    def late(*arguments: object) -> StoreReader:
        if left:
            publish(store, left.pop(0))
            collect(store)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(oci, "_open_listing", late)
    assert check_complete(opened(store)) == 3 + times
    assert left == []


def test_an_index_that_is_simply_not_there_is_not_waited_for(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = opened(store).digest
    (store / "blobs" / "sha256" / digest.removeprefix("sha256:")).unlink()
    calls, real = [], oci._open_listing

    def counted(*arguments: object) -> StoreReader:
        calls.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(oci, "_open_listing", counted)
    with pytest.raises(StoreMissing):
        opened(store)
    assert len(calls) == 1


def test_what_was_opened_is_read_to_its_end_beside_later_builds(store: Path) -> None:
    layers = opened(store)
    publish(store, 4)
    collect(store)
    assert check_complete(layers) == 3
    assert check_complete(opened(store)) == 4


@pytest.mark.usefixtures("no_waiting")
def test_a_frozen_builder_that_holds_every_lock_delays_no_reader(store: Path) -> None:
    def build() -> None:
        writer = StoreWriter(store)
        assert KeyLock(store, key(1).digest).try_acquire()
        lock = PublishLock(store)
        assert lock.try_acquire()
        writer.put_blob(code(9))
        os.kill(os.getpid(), signal.SIGSTOP)

    builder = fork(build)
    try:
        _, state = os.waitpid(builder[0], os.WUNTRACED)
        assert os.WIFSTOPPED(state)
        assert (store / ".builder" / "locks" / "publish").exists()
        assert check_complete(opened(store)) == 3
        assert check_complete(open_layers(store, digest=opened(store).digest, environ={})) == 3
    finally:
        kill(builder)


def test_a_blob_that_a_builder_mends_is_read_the_next_time(store: Path) -> None:
    path = store / "blobs" / "sha256" / sha(code(2)).removeprefix("sha256:")
    path.write_bytes(b"torn")
    layers = opened(store)
    with pytest.raises(oci.StoreDamaged):
        use(layers, 2)
    publish(store, 2)
    assert use(layers, 2) == expected(2)
