"""The text that is stored with committed offsets."""

import json
from pathlib import Path

import orjson
import pytest

from streamrt.errors import ConfigurationError
from streamrt.models import TopicPartition
from streamrt.runtime.metadata import SENT_ROOM, CommitMetadata, CommittedMetadata, claimed, without_store
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.sent import Sent

ORDERS = TopicPartition("orders", 3)


def settings(topics: dict[str, dict[str, str | None]]) -> StateSettings:
    sources = {
        topic: ScopeInfo("id", 1, {store: ChangelogSettings("log", changelog) for store, changelog in stores.items()})
        for topic, stores in topics.items()
    }
    return StateSettings("shop", Path("unused"), None, sources)


def composed(topics: dict[str, dict[str, str | None]]) -> CommitMetadata:
    return CommitMetadata.of(settings(topics), {topic: (topic,) for topic in topics})


def test_what_is_written_is_read() -> None:
    topics: dict[str, dict[str, str | None]] = {
        "orders": {"default": "x1", "other": None},
        'a "quoted" topic, ümlaut': {"default": "x2"},
    }
    for topic, stores in topics.items():
        found = CommittedMetadata.decode(composed(topics).encode(TopicPartition(topic, 0)))
        assert found.stores == {topic: stores}
        assert found == CommittedMetadata(2, {topic: stores})


def test_each_partition_is_told_of_alone() -> None:
    state = StateSettings(
        "shop",
        Path("unused"),
        None,
        {
            "a": ScopeInfo("1", 1, {"own": ChangelogSettings("log", "x1")}),
            "a--b": ScopeInfo("1,2", 1, {"both": ChangelogSettings("log", "x2")}, ("a", "b")),
        },
    )
    metadata = CommitMetadata.of(state, {"a--b": ("a", "b"), "c": ("c",)})
    texts = metadata.encode_all([TopicPartition(topic, 0) for topic in "abc"], {TopicPartition("a", 0): 5})
    notes = {place.topic: CommittedMetadata.decode(text) for place, text in texts.items()}
    assert notes["a"].stores == {"a": {"own": "x1"}, "a--b": {"both": "x2"}}
    assert notes["b"].stores == {"a--b": {"both": "x2"}}
    assert texts[TopicPartition("c", 0)] is None
    # The id of the first input moves the offsets of both.
    assert [notes[topic].owner for topic in "abc"] == [None, "a", None]
    assert [notes[topic].claim for topic in "abc"] == [5, 0, 0]


def test_times_and_what_is_held_back_travel_with_a_commit() -> None:
    sent = {
        "repartition__shop--orders--day": Sent(17),
        "open": Sent(18, pending=True),
        "first": Sent(None, pending=True),
    }
    text = composed({"orders": {"default": "x1"}}).encode(ORDERS, sent=sent)
    found = CommittedMetadata.decode(text)
    assert {topic: found.sent_into(topic) for topic in sent} == sent
    assert found.sent_into("another") is None
    assert found.names("orders", "default")


def test_when_open_windows_are_due_travels_with_a_commit_if_there_is_room() -> None:
    sent = {"first": Sent(18, True, 25), "second": Sent(None, True, 30), "third": Sent(5)}
    text = CommitMetadata().encode(ORDERS, sent=sent)
    found = CommittedMetadata.decode(text)
    assert {topic: found.sent_into(topic) for topic in sent} == sent
    # An earlier version does not say it, and reads the rest as it was.
    assert orjson.loads(text or "")["sent"] == {"first": [18], "second": [None], "third": 5}
    many = {f"{number}" * 100: Sent(1 << 42, True, 1 << 42) for number in range(10)}
    found = CommittedMetadata.decode(CommitMetadata().encode(ORDERS, sent=many))
    assert {topic: found.sent_into(topic) for topic in many} == many
    more = {f"{number}" * 50: Sent(1 << 42, True, 1 << 42) for number in range(20)}
    found = CommittedMetadata.decode(CommitMetadata().encode(ORDERS, sent=more))
    assert {topic: found.sent_into(topic) for topic in more} == {topic: Sent(1 << 42, True) for topic in more}
    assert CommittedMetadata.decode('{"streamrt":2,"sent":{"a":[1]},"due":{"x":"y"}}').due == {}


def test_a_store_without_changelog_is_named() -> None:
    state = StateSettings("shop", Path("unused"), None, {"orders": ScopeInfo("id", 1, {"default": None})})
    found = CommittedMetadata.decode(CommitMetadata.of(state, {"orders": ("orders",)}).encode(ORDERS))
    assert found.stores == {"orders": {"default": None}}
    assert found.names("orders", "default")
    assert not found.contradicts("orders", "default", "x1")


def test_without_state_there_is_nothing() -> None:
    assert CommitMetadata().encode(ORDERS) is None
    assert CommitMetadata.of(None, {"orders": ("orders",)}).encode(ORDERS) is None
    assert composed({"other": {"default": "x"}}).encode(ORDERS) is None


def test_the_text_does_not_depend_on_the_order() -> None:
    first, second = composed({"orders": {"b": "1", "a": "2"}}), composed({"orders": {"a": "2", "b": "1"}})
    assert first.encode(ORDERS) == second.encode(ORDERS)


@pytest.mark.parametrize("number", [80, 380])
def test_fault_19_no_store_is_left_out(number: int) -> None:
    # Ids have 22 characters; names may be as long as a name may be.
    stores: dict[str, str | None] = {f"{'s' * 40}-{each}": f"{each:022}" for each in range(number)}
    metadata = composed({"orders": stores, "other": {"default": "x"}})
    text = metadata.encode(ORDERS, claim=1 << 42, sent={"r" * 249: Sent(1 << 42), "q" * 249: Sent(1 << 42, True)})
    assert text is not None
    assert len(text.encode()) <= 4_096
    found = CommittedMetadata.decode(text)
    for store, changelog in stores.items():
        assert found.names("orders", store)
        assert not found.contradicts("orders", store, changelog)
        assert found.contradicts("orders", store, f"new-{store}")
    assert not found.names("orders", "another")
    assert not found.names("other", "default")
    assert found.names_any("orders")
    assert found.claim == 1 << 42
    assert found.sent_into("r" * 249) == Sent(1 << 42)


def test_more_stores_than_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"topic 'orders' has 500 stores, but .* split the application"):
        composed({"orders": {str(number): str(number) for number in range(500)}})


def test_more_times_than_fit_are_told_by_digests_or_refused() -> None:
    metadata = composed({"orders": {"default": "x"}})
    sent = {f"repartition__shop--orders--{'g' * 100}{number}": Sent(1_700_000_000_000, True) for number in range(20)}
    text = metadata.encode(ORDERS, sent=sent)
    assert text is not None
    assert len(text) < 100 + SENT_ROOM
    assert all(CommittedMetadata.decode(text).sent_into(topic) == at for topic, at in sent.items())
    many = [str(number) * 50 for number in range(100)]
    with pytest.raises(ConfigurationError, match="feeds 100 repartition topics"):
        CommitMetadata.of(None, {"orders": ["orders"]}, {"orders": many})


def test_a_claim_leaves_state_as_it_was() -> None:
    text = composed({"orders": {"default": "x1"}}).encode(ORDERS, claim=4)
    found = CommittedMetadata.decode(claimed(text, owner="a", claim=5))
    assert (found.owner, found.claim) == ("a", 5)
    assert found.stores == {"orders": {"default": "x1"}}
    assert CommittedMetadata.decode(claimed(claimed(text, owner="a"))).owner is None
    assert CommittedMetadata.decode(claimed("by hand", claim=1)) == CommittedMetadata(2, claim=1)
    assert CommittedMetadata.decode(claimed(None, owner="a")) == CommittedMetadata(2, owner="a")


def test_a_claim_of_metadata_of_format_1_that_fill_all_the_room_fits() -> None:
    stores = {f"topic-{number}": {"default": "x" * 20} for number in range(90)}
    text = json.dumps({"streamrt": 1, "stores": stores}, separators=(",", ":"))
    longer = claimed(text, claim=1 << 42, owner="a" * 249)
    assert len(longer.encode()) <= 4_096
    assert all(CommittedMetadata.decode(longer).names(topic, "default") for topic in stores)


@pytest.mark.parametrize("number", [2, 80])
def test_a_store_can_be_taken_out(number: int) -> None:
    stores: dict[str, str | None] = {f"{'s' * 40}-{each}": f"{each:022}" for each in range(number)}
    text = composed({"orders": stores}).encode(ORDERS, claim=3)
    assert text is not None
    gone, *kept = stores
    found = CommittedMetadata.decode(without_store(text, "orders", gone))
    assert not found.names("orders", gone)
    assert all(found.names("orders", store) for store in kept)
    assert found.claim == 3
    assert without_store("by hand", "orders", gone) == "by hand"


NOT_OURS = [
    "",
    "by hand",
    "\x00\xff",
    "null",
    "7",
    "[]",
    '"streamrt"',
    "{}",
    '{"stores":{"orders":{"default":"x"}}}',
    "[" * 100_000,
    '{"streamrt":' * 50_000,
    "9" * 10_000,
    '{"streamrt":"1","stores":{"orders":{"default":"x"}}}',
]
STRANGE = [
    '{"streamrt":1}',
    '{"streamrt":1,"stores":null}',
    '{"streamrt":1,"stores":[["orders"]]}',
    '{"streamrt":1,"stores":{"orders":null,"b":7,"c":["default"],"d":"x"}}',
    json.dumps({"streamrt": 1, "stores": "x" * 10_000}),
    '{"streamrt":1,"digests":7,"owner":[],"claim":"1","sent":[]}',
    '{"streamrt":1,"digests":"abc","claim":-1,"sent":{"a":"b","c":[null,1],"d":null}}',
    '{"streamrt":1,"claim":true}',
]


@pytest.mark.parametrize("text", NOT_OURS, ids=lambda text: ascii(text[:40]))
def test_what_is_not_ours_tells_of_nothing(text: str) -> None:
    assert CommittedMetadata.decode(text) == CommittedMetadata()


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: ascii(text[:40]))
def test_what_makes_no_sense_tells_of_nothing(text: str) -> None:
    assert CommittedMetadata.decode(text) == CommittedMetadata(1)


def test_of_stores_only_what_makes_sense_counts() -> None:
    text = '{"streamrt":1,"stores":{"orders":{"a":"x","b":null,"c":7,"d":{}}}}'
    assert CommittedMetadata.decode(text).stores == {"orders": {"a": "x", "b": None}}


def test_a3_an_offset_names_the_topic_that_it_is_a_position_in() -> None:
    metadata = CommitMetadata(first_counts={"orders": 4}, topic_ids={"orders": "x1", "other": None})
    for text in (metadata.encode(ORDERS), metadata.first(ORDERS)):
        found = CommittedMetadata.decode(text)
        assert (found.topic, found.partitions) == ("x1", 4)
        # A claim of another task, or a store that is forgotten, does not change it.
        for later in (claimed(text, claim=7, owner="a"), without_store(text or "", "orders", "default")):
            assert CommittedMetadata.decode(later).topic == "x1"
        assert metadata.describes(ORDERS, text)
        assert CommitMetadata(topic_ids={"orders": "x2"}).describes(ORDERS, text), "it is no other version"
    assert metadata.encode(TopicPartition("other", 0)) is None


@pytest.mark.parametrize("topic", ["7", "null", "[]", "{}"])
def test_a3_an_id_that_is_none_is_unknown(topic: str) -> None:
    assert CommittedMetadata.decode(f'{{"streamrt":2,"topic":{topic}}}').topic is None
