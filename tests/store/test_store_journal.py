from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from store_kit import add, key, sha

from mono_build.store.writer import StoreWriter


def test_a_recorded_launch_is_found_by_key_and_by_ir(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        one, two = add(writer, 1), add(writer, 2)
        for entry in (two, one):
            writer.journal.record(entry)
        assert writer.journal.by_key(key(1)) == one
        assert writer.journal.by_ir(sha(b"ir 2")) == two
        assert writer.journal.by_key(key(3)) is None
        assert writer.journal.by_ir(sha(b"ir 3")) is None
        assert writer.journal.entries() == (one, two)
        assert writer.lookup(key(1)) == one
        assert writer.lookup_ir(sha(b"ir 2")) == two


def test_published_launches_leave_the_journal_and_are_still_looked_up(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        one, two = add(writer, 1), add(writer, 2)
        for entry in (one, two):
            writer.journal.record(entry)
        writer.publish([one])
        assert writer.journal.entries() == (two,)
        assert writer.journal.by_ir(one.ir) is None
        assert writer.lookup(key(1)) == one
        assert writer.lookup_ir(one.ir) == one
        writer.publish([two])


def test_a_newer_result_of_a_key_is_not_cleared_with_the_older(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        old = add(writer, 1)
        new = add(writer, 1, elf=b"\x7fELF newer")
        writer.journal.record(old)
        writer.journal.record(new)
        writer.publish([old])
        assert writer.journal.by_key(key(1)) == new
        assert [e.artefact for e in writer.recover()] == [new.artefact]
        assert writer.lookup(key(1)) == new


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"schema":2,"entry":{}}', b'{"schema":1,"entry":{"key":1}}'],
)
def test_a_corrupt_journal_file_is_ignored_and_removed(tmp_path: Path, content: bytes) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.journal.record(add(writer, 1))
        files = [p for p in (tmp_path / ".builder" / "journal").rglob("*") if p.is_file()]
        assert len(files) == 2
        for path in files:
            path.write_bytes(content)
        assert writer.journal.entries() == ()
        assert writer.journal.by_ir(sha(b"ir 1")) is None
        assert not any(path.exists() for path in files)
        assert writer.recover() == ()


def test_a_result_filed_under_another_key_is_not_believed(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.journal.record(add(writer, 1))
        keys = tmp_path / ".builder" / "journal" / "keys"
        (source,) = keys.iterdir()
        wrong = keys / key(2).digest.removeprefix("sha256:")
        shutil.move(source, wrong)
        assert writer.journal.by_key(key(2)) is None
        assert writer.journal.entries() == ()
        assert not wrong.exists()


def test_the_journal_says_nothing_about_host_user_or_place(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        entry = add(writer, 1)
        writer.journal.record(entry)
        (path,) = (tmp_path / ".builder" / "journal" / "keys").iterdir()
        assert json.loads(path.read_bytes()) == {
            "schema": 1,
            "entry": {"key": key(1).to_json(), "artefact": entry.artefact, "ir": entry.ir},
        }
