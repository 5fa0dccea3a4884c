"""Names of internal topics: no two of them are alike, and names without the separator stay as they are."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError
from streamrt.topics import changelog_topic_name, repartition_topic_name
from streamrt.topics.internal import changelog_prefix, name_part, repartition_prefix, source_changelog_name

NAMES = st.text("ab-._", min_size=1, max_size=9).filter(lambda text: text not in (".", ".."))
PLAIN = NAMES.filter(lambda text: "--" not in text and not text.startswith("-") and not text.endswith("-"))
KAFKA = re.compile(r"[A-Za-z0-9._-]{1,249}")


def splits(text: str) -> list[tuple[str, str, str]]:
    """Return all ways to cut a text into three parts at separators."""
    at = [found.start() for found in re.finditer(r"(?=--)", text)]
    ways = [(text[:i], text[i + 2 : j], text[j + 2 :]) for i in at for j in at if j >= i + 2]
    return [way for way in ways if all(way)]


def test_a9_groups_and_topics_with_the_separator_have_topics_of_their_own() -> None:
    one = changelog_topic_name("shop", "eu--orders", "default"), repartition_topic_name("shop", "eu--orders", "c")
    other = changelog_topic_name("shop--eu", "orders", "default"), repartition_topic_name("shop--eu", "orders", "c")
    assert set(one).isdisjoint(other)
    assert one == ("changelog__shop--eu--orders--default", "repartition__shop--eu--orders--c")
    assert other == ("changelog__-.shop-.-.eu--orders--default", "repartition__-.shop-.-.eu--orders--c")
    assert not other[0].startswith(changelog_prefix("shop"))
    assert not other[1].startswith(repartition_prefix("shop"))
    behind = changelog_topic_name("shop--eu", other[1], "default.c")
    assert behind == "changelog__-.shop-.-.eu--repartition.orders.c--default"
    assert source_changelog_name("shop", "source-x--default") != changelog_topic_name("shop", "source-x", "default")


@given(st.text("a-.", min_size=7, max_size=14).map(lambda text: f"a{text}a"), st.data())
@settings(max_examples=500, deadline=None)
def test_a9_no_two_changelogs_have_one_name(text: str, data: st.DataObject) -> None:
    # Parts that would be joined to the same text are those that could be mistaken. Groupings have names of their own, which
    # an application refuses if they are mistakable.
    ways = {way for way in splits(text) if "." not in way[2]}
    names = {way: changelog_topic_name(*way) for way in ways}
    assert len(set(names.values())) == len(names), names
    assert all(KAFKA.fullmatch(name) for name in names.values())
    joined = {way: repartition_topic_name(*way) for way in ways}
    assert len(set(joined.values())) == len(joined), joined


@given(NAMES, NAMES, NAMES, NAMES)
@settings(max_examples=300, deadline=None)
def test_a9_no_two_groups_share_a_prefix(group: str, other: str, topic: str, store: str) -> None:
    if group == other:
        return
    name = changelog_topic_name(group, topic, store)
    assert name.startswith(changelog_prefix(group))
    assert not name.startswith(changelog_prefix(other))
    assert (name_part(group) == name_part(other)) is False


@given(PLAIN, PLAIN, PLAIN)
@settings(max_examples=200, deadline=None)
def test_a9_names_without_the_separator_stay_as_they_are(group: str, topic: str, store: str) -> None:
    assert changelog_topic_name(group, topic, store) == f"changelog__{group}--{topic}--{store}"
    assert repartition_topic_name(group, topic, store) == f"repartition__{group}--{topic}--{store}"
    # Merged topics and groupings, which StreamRT joins itself.
    assert changelog_topic_name(group, f"{topic}--b", "default.a--b") == f"changelog__{group}--{topic}--b--default.a--b"


def test_a9_a_name_that_gets_too_long_is_refused() -> None:
    group = "a--" * 60
    with pytest.raises(ConfigurationError, match="Kafka allows 249"):
        changelog_topic_name(group, "orders", "default")
