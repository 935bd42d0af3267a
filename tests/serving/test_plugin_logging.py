"""Where the plug-in's messages go in a server: to vLLM's handlers, at vLLM's level, unless somebody chose otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from mono_runtime.hooks import plugin

OURS, THEIRS = logging.getLogger("mono_runtime"), logging.getLogger("vllm")


class Kept(logging.Handler):
    """Keeps the messages it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def _as_at_start() -> Iterator[None]:
    """Nobody has configured either logger."""
    before = [(one, one.handlers, one.level) for one in (OURS, THEIRS)]
    for one in (OURS, THEIRS):
        one.handlers = []
    OURS.setLevel(logging.NOTSET)
    yield
    for one, handlers, level in before:
        one.handlers = handlers
        one.setLevel(level)


@pytest.fixture
def engines() -> Kept:
    """The handler that vLLM has set up for its own logger."""
    kept = Kept()
    THEIRS.handlers = [kept]
    THEIRS.setLevel(logging.INFO)
    return kept


def start(monkeypatch: pytest.MonkeyPatch, *root: logging.Handler) -> None:
    """What `register` and an imported module of the engine do, and then two messages.

    The root logger has the handlers ``root``, and not those of the tests' runner.
    """
    with monkeypatch.context() as patched:
        patched.setattr(logging.root, "handlers", [*root])
        plugin._log_as_the_engine()
        plugin._log_as_the_engine()
        OURS.info("loaded")
        OURS.debug("detail")


def test_messages_go_where_the_engines_go_once(
    engines: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch)
    assert engines.texts == ["loaded"]


def test_a_root_handler_does_not_hide_what_was_loaded(
    engines: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that configures the root logger leaves it at WARNING."""
    root = Kept()
    start(monkeypatch, root)
    assert (root.texts, engines.texts) == (["loaded"], [])


def test_handlers_and_a_level_of_ones_own_stay(
    engines: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Kept()
    OURS.handlers = [own]
    OURS.setLevel(logging.DEBUG)
    start(monkeypatch)
    assert (own.texts, engines.texts) == (["loaded", "detail"], [])


def test_without_the_engines_handlers_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch)
    assert (OURS.handlers, OURS.level) == ([], logging.NOTSET)
