"""The text that is stored with committed offsets."""

import json
from pathlib import Path

import pytest

from streamrt.runtime import ChangelogSettings, SourceState, StateSettings
from streamrt.runtime.metadata import commit_metadata, stores_in


def settings(topics: dict[str, dict[str, str | None]]) -> StateSettings:
    sources = {
        topic: SourceState("id", 1, {store: ChangelogSettings("log", changelog) for store, changelog in stores.items()})
        for topic, stores in topics.items()
    }
    return StateSettings("shop", Path("unused"), None, sources)


def test_what_is_written_is_read() -> None:
    topics: dict[str, dict[str, str | None]] = {
        "orders": {"default": "x1", "other": None},
        'a "quoted" topic, ümlaut': {"default": "x2"},
    }
    text = commit_metadata(settings(topics))
    assert text is not None
    assert stores_in(text) == topics


def test_a_store_without_changelog_is_named() -> None:
    state = StateSettings("shop", Path("unused"), None, {"orders": SourceState("id", 1, {"default": None})})
    text = commit_metadata(state)
    assert text is not None
    assert stores_in(text) == {"orders": {"default": None}}


def test_without_state_there_is_nothing() -> None:
    assert commit_metadata(None) is None
    assert commit_metadata(settings({})) is None


def test_the_text_does_not_depend_on_the_order() -> None:
    assert commit_metadata(settings({"b": {"s": "1"}, "a": {"s": "2"}})) == commit_metadata(
        settings({"a": {"s": "2"}, "b": {"s": "1"}})
    )


def test_what_is_too_long_tells_of_the_topics_alone() -> None:
    topics: dict[str, dict[str, str | None]] = {f"topic-{number}": {"default": "x" * 50} for number in range(60)}
    text = commit_metadata(settings(topics))
    assert text is not None
    assert len(text.encode()) <= 4_096
    assert stores_in(text) == {topic: {} for topic in topics}
    assert commit_metadata(settings({"t" * 240 + str(number): {} for number in range(40)})) is None


def test_characters_that_take_several_bytes_count() -> None:
    text = commit_metadata(settings({f"ü{number}": {"default": "é" * 20} for number in range(40)}))
    assert text is None or len(text.encode()) <= 4_096


@pytest.mark.parametrize(
    "text",
    [
        "",
        "by hand",
        "\x00\xff",
        "null",
        "7",
        "[]",
        '"streamrt"',
        "{}",
        '{"stores":{"orders":{"default":"x"}}}',
        '{"streamrt":1}',
        '{"streamrt":1,"stores":null}',
        '{"streamrt":1,"stores":[["orders"]]}',
        '{"streamrt":1,"stores":{"orders":null,"b":7,"c":["default"],"d":"x"}}',
        "[" * 100_000,
        '{"streamrt":' * 50_000,
        "9" * 10_000,
        json.dumps({"streamrt": 1, "stores": "x" * 10_000}),
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_what_is_not_ours_tells_of_nothing(text: str) -> None:
    assert stores_in(text) == {}


def test_of_stores_only_what_makes_sense_counts() -> None:
    text = '{"streamrt":1,"stores":{"orders":{"a":"x","b":null,"c":7,"d":{}}}}'
    assert stores_in(text) == {"orders": {"a": "x", "b": None}}
