"""Stores that somebody else could have altered, and the ones in containers that only look like it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading_kit import Forgery, expected, opened, use
from store_kit import NOBODY, blob_file, fork, result_of

from mono_runtime.errors import StoreMissing, StoreUnsafe
from mono_runtime.layers import open_layers
from mono_runtime.safety import Trust

OTHER = 4242
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def status(mode: int, user: int, group: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, user, group, 0, 0, 0, 0))


def files(store: Path) -> dict[str, Path]:
    """Every directory and file that reading the first launch needs."""
    forgery = Forgery(store)
    digests = {
        "manifest": forgery.listing["manifests"][0]["digest"],
        "index": forgery.manifest["config"]["digest"],
        "artefact": forgery.index["entries"][0]["artefact"],
        "inputs": forgery.artefact["inputs"],
        "code": forgery.artefact["code_objects"][0]["digest"],
    }
    names = ("", "blobs", "blobs/sha256", "oci-layout", "index.json")
    return {name: store / name for name in names} | {
        name: blob_file(store, digest) for name, digest in digests.items()
    }


PARTS = (
    *("", "blobs", "blobs/sha256", "oci-layout", "index.json"),
    *("manifest", "index", "artefact", "inputs", "code"),
)


# The rule, with its own literals: who owns, who may write, who reads.
@pytest.mark.parametrize(
    ("mode", "user", "group", "accepted"),
    [
        (0o100644, 0, 0, True),
        (0o100644, 1000, 1000, True),
        (0o100644, 1000, 77, True),
        (0o100444, 1001, 1000, False),
        (0o100600, 4242, 0, False),
        (0o100664, 0, 0, True),
        (0o100664, 0, 1000, True),
        (0o102775, 0, 2000, True),
        (0o100664, 0, 77, False),
        (0o040775, 1000, 77, False),
        (0o040755, 1000, 77, True),
        (0o100646, 0, 0, False),
        (0o040777, 1000, 1000, False),
        (0o041777, 0, 0, False),
    ],
)
def test_who_is_trusted(mode: int, user: int, group: int, accepted: bool) -> None:
    trust = Trust(users=frozenset({0, 1000}), groups=frozenset({0, 1000, 2000}))
    if accepted:
        trust.check(status(mode, user, group), "/store")
        return
    with pytest.raises(StoreUnsafe) as caught:
        trust.check(status(mode, user, group), "/store")
    assert caught.value.where == "/store"
    assert caught.value.fix is not None
    assert "MONO_STORE_DIGEST" in caught.value.fix


def test_this_process_trusts_root_itself_and_its_groups() -> None:
    trust = Trust.of_this_process()
    assert trust.users == {0, os.geteuid()}
    assert trust.groups == {0, os.getegid(), *os.getgroups()}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("sticky", [0, 0o1000])
def test_what_every_user_may_write_is_refused(store: Path, name: str, sticky: int) -> None:
    path = files(store)[name]
    mode = (0o777 if path.is_dir() else 0o666) | sticky
    path.chmod(mode)
    with pytest.raises(StoreUnsafe) as caught:
        use(opened(store), 1)
    assert caught.value.where == str(path)
    assert f"every user may write to a part of the store (mode {mode:04o})" in caught.value.what
    assert caught.value.fix is not None
    assert "chmod" in caught.value.fix


def test_a_pinned_digest_makes_modes_irrelevant(store: Path) -> None:
    digest = opened(store).digest
    for path in files(store).values():
        path.chmod(0o777)
    with pytest.raises(StoreUnsafe):
        opened(store)
    layers = open_layers(store, digest=digest, environ={})
    assert [use(layers, rows) for rows in (1, 2, 3)] == [expected(rows) for rows in (1, 2, 3)]


def give(store: Path, user: int, group: int) -> None:
    for path in [store, *store.rglob("*")]:
        os.chown(path, user, group)


def as_user(user: int, groups: list[int], work: Callable[[], Any]) -> Any:
    """The result of ``work`` for a user id, its group of the same number and further groups."""

    def dropped() -> Any:
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
        return work()

    return result_of(fork(dropped))


def read_in(store: Path, **options: Any) -> Callable[[], str]:
    return lambda: use(open_layers(store, environ={}, **options), 1)


def refused(result: Any) -> bool:
    return isinstance(result, dict) and result["error"] == "StoreUnsafe"


@needs_root
def test_a_store_is_read_by_root_and_its_owner_and_refused_to_others(public: Path) -> None:
    store = public / "s"
    # Root's store, as an image has it, serves anyone.
    for user in (0, 1000, NOBODY):
        assert as_user(user, [], read_in(store)) == expected(1)
    give(store, 1000, 1000)
    assert as_user(1000, [], read_in(store)) == expected(1)
    for user in (0, NOBODY):
        result = as_user(user, [1000], read_in(store))
        assert refused(result)
        assert "belongs to uid 1000" in result["text"]
        assert f"where: {store}" in result["text"]


@needs_root
def test_a_pinned_digest_makes_owners_irrelevant(public: Path) -> None:
    digest = opened(public / "s").digest
    give(public / "s", OTHER, OTHER)
    for user in (0, 1000):
        assert refused(as_user(user, [], read_in(public / "s")))
        assert as_user(user, [], read_in(public / "s", digest=digest)) == expected(1)


@needs_root
@pytest.mark.parametrize("name", PARTS)
def test_one_foreign_file_is_enough(store: Path, name: str) -> None:
    path = files(store)[name]
    os.chown(path, OTHER, 0)
    with pytest.raises(StoreUnsafe, match=f"uid {OTHER}") as caught:
        use(opened(store), 1)
    assert caught.value.where == str(path)


@needs_root
def test_a_volume_that_a_group_of_the_reader_may_write_is_read(public: Path) -> None:
    """Kubernetes gives a volume to ``fsGroup``, sets the group's bits and adds the group to the pod."""
    store = public / "s"
    give(store, 0, OTHER)
    for path in [store, *store.rglob("*")]:
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert as_user(1000, [OTHER], read_in(store)) == expected(1)
    result = as_user(1000, [], read_in(store))
    assert refused(result)
    assert f"group {OTHER}, which is none of this process's" in result["text"]
    # The same with root's group, as images for any user id with group 0 have it.
    give(store, 0, 0)
    assert as_user(1000, [], read_in(store)) == expected(1)


LINKED = ("blobs", "blobs/sha256", "oci-layout", "index", "artefact", "code")


# A reader of a pinned index does not look at index.json.
@pytest.mark.parametrize(
    ("name", "pinned"),
    [("index.json", False), *((name, pinned) for name in LINKED for pinned in (False, True))],
)
def test_a_link_inside_a_store_is_refused_wherever_it_leads(
    store: Path, tmp_path: Path, name: str, pinned: bool
) -> None:
    digest = opened(store).digest if pinned else None
    path = files(store)[name]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnsafe, match="link") as caught:
        use(open_layers(store, digest=digest, environ={}), 1)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("name", ["blobs", "blobs/sha256"])
def test_a_file_in_the_place_of_a_directory_is_refused(store: Path, name: str) -> None:
    path = store / name
    path.rename(store / "aside")
    path.write_bytes(b"")
    with pytest.raises(StoreUnsafe, match="where the store has a directory"):
        opened(store)


def test_a_store_without_its_directories_is_missing_files(store: Path) -> None:
    (store / "blobs").rename(store / "aside")
    with pytest.raises(StoreMissing, match="no such file"):
        opened(store)


def test_builders_read_their_own_store_without_these_rules(store: Path) -> None:
    # A build has to be able to mend a store, and verify lists every fault by itself.
    from mono_runtime.oci import StoreReader

    store.chmod(0o777)
    assert len(StoreReader.open(store).index.entries) == 3
    assert StoreReader.open(store).trust is None
    store.chmod(0o755)
    assert StoreReader.open(store, safe=True).trust == Trust.of_this_process()
