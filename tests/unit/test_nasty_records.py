"""Topics carry bytes: one partition behaves as several do, and the test driver as Kafka does."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, DeadLetters
from streamrt.errors import ArgumentValueError, ProducerError
from streamrt.kafka import TopicConfig
from streamrt.kafka.wire import client_headers, client_timestamp, record_size
from streamrt.runtime.tasks.chain.passage import passes_as_read
from streamrt.serializers import Deserializer, JSONDeserializer
from streamrt.testing import TopologyTestDriver
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topology import InMemoryExchange
from tests import nasty
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

both_guarantees = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
LATEST = 9_223_372_036_854_775


class Noted:
    """Callbacks that skip everything, and note what they were asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def note(self, name: str) -> Callable[..., bool]:
        def skip(error: Exception, record: Any, logger: logging.Logger) -> bool:
            # The topics of two applications have different names.
            text = str(error).replace("three", "one")
            self.asked[f"{name}: {type(error).__name__}: {text[:150]}"] += 1
            return True

        return skip

    def settings(self) -> dict[str, Any]:
        return {f"on_{name}_error": self.note(name) for name in ("consumer", "processing", "producer")}


def corpus(partitions: int, guarantee: str) -> tuple[list[tuple[Any, Any]], Counter[str], list[tuple[Any, ...]]]:
    """Return what comes out of the corpus, what callbacks were asked, and what is in the topic aside."""
    noted = Noted()
    app = application(processing_guarantee=guarantee, **noted.settings())
    out = app.topic("out", key_serializer="str", key_deserializer="str")
    source = nasty.build(app, "in", partitions, out)
    with TopologyTestDriver(app) as driver:
        for number, name in enumerate(nasty.records()):
            driver.pipe_bytes(source, name, key=b"k", timestamp=1_000 + number)
        found = [(record.key, record.value["seen"]) for record in driver.read(out)]
        # Their values differ only by the names of the topics.
        written = [(each.raw_key, each.raw_value, each.timestamp, each.headers) for each in driver.read("in-aside")]
    return found, noted.asked, written


@both_guarantees
def test_a12_one_partition_gives_what_three_give(guarantee: str) -> None:
    (one, asked, written), (three, asked_three, written_three) = corpus(1, guarantee), corpus(3, guarantee)
    assert one == three
    assert asked == asked_three
    assert written == written_three
    assert {key for key, _ in one} == {"in group_by", "in twice"}


def test_a12_what_comes_out_is_what_json_keeps() -> None:
    found, _, _ = corpus(1, "at-least-once")
    seen = {seen[1]: seen[0] for key, seen in found if key == "in group_by"}
    assert seen["'value:tuple'"] == "{'x': [1, [2]]}"
    assert seen["'value:nan'"] == "{'x': None}"
    assert seen["'value:minus zero'"] == "{'x': -0.0}"
    assert seen["'value:none'"] == "None"
    assert "'value:largest'" in seen
    refused = ("bytes", "datetime", "decimal", "int keys", "65 bits", "lone surrogate", "too large", "one byte more")
    assert seen.keys().isdisjoint(f"'value:{name}'" for name in refused)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a12_a_broadcast_passes_the_serializers_of_its_topic(partitions: int) -> None:
    app, found = application(), list[Any]()
    config = TopicConfig(partitions, 1)
    rules = app.dataframe(app.topic("rules", config=TopicConfig(1, 1))).apply(lambda _: {"x": (1, 2)}).broadcast()
    orders = app.dataframe(app.topic("orders", config=config))

    from streamrt import BroadcastContext, BroadcastProcessFunction

    class Note(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None: ...

        def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
            found.append((value, ctx.headers))

    orders.connect(rules).process(Note())
    with TopologyTestDriver(app) as driver:
        driver.pipe("rules", 1, key=b"k", headers=[("a", "text")])
    assert found == [({"x": [1, 2]}, [("a", b"text")])] * partitions


@pytest.mark.parametrize("partitions", [1, 3])
def test_a12_a_rebalance_passes_the_serializers_of_its_topic(partitions: int) -> None:
    app, found = application(), list[Any]()
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1))).apply(lambda _: {"x": (1,)}).rebalance()
    frame.update(lambda value: found.append(value))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", 1, key=b"k")
    assert found == [{"x": [1]}]


class Failing(Deserializer):
    def __call__(self, value: bytes, ctx: Any) -> Any:
        if b"bad" in value:
            raise ValueError("bad bytes")
        return json.loads(value)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a12_what_cannot_be_read_behind_a_group_by_goes_to_the_callback_of_consumers(partitions: int) -> None:
    asked, found = list[Any](), list[Any]()

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        asked.append((type(error).__name__, record.topic(), record.key(), record.value(), record.timestamp()[1]))
        return True

    app = application(on_consumer_error=skip)
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    frame.group_by(lambda value: "k", name="g", value_deserializer=Failing()).update(found.append)
    frame.update(lambda value: found.append(("beside", value)))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", "bad", timestamp=7)
        driver.pipe("in", "good", timestamp=8)
    assert sorted(map(str, found)) == ["('beside', 'bad')", "('beside', 'good')", "good"]
    assert asked == [("ValueDeserializationError", "repartition__group--in--g", b'"k"', b'"bad"', 7)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a12_a_record_that_fails_behind_a_group_by_is_one_of_its_own(partitions: int) -> None:
    found = list[Any]()
    app = application(on_processing_error=lambda *_: True)
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    frame.group_by(lambda value: "k", name="g").apply(lambda value: 1 / value)
    frame.update(lambda value: found.append(value))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", 0)
    assert found == [0]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a12_changes_behind_a_group_by_are_not_seen_above_it(partitions: int) -> None:
    kept = list[Any]()
    app = application()
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    frame = frame.update(kept.append)
    frame.group_by("g").update(lambda value: value.update(changed=True))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", {"g": 1})
    assert kept == [{"g": 1}]


# -- Headers, timestamps and sizes -----------------------------------------------------------------------------------


def test_a14_headers_are_bytes_behind_every_topic() -> None:
    found = list[Any]()
    stage = Stage()
    stage.sdf.set_headers(lambda *_: [("a", "\u00e9"), ("a", None), ("b", b"\0")]).to_topic(stage.out)
    stage.sdf.update(lambda value, key, timestamp, headers: found.append(headers), metadata=True)
    with stage.drive() as driver:
        driver.pipe("in", 1, headers=[("sent", "text"), ("sent", None)])
        assert driver.read("out")[0].headers == [("a", b"\xc3\xa9"), ("a", None), ("b", b"\0")]
    assert found == [[("sent", b"text"), ("sent", None)]]
    links = MemoryLinks(auto_create=True)
    links.sender().produce("t", b"v", None, headers=[("a", "text")])
    feed = links.feed()
    from streamrt.records import TopicPartition

    feed.add({TopicPartition("t", 0): 0})
    feed.resume([TopicPartition("t", 0)])
    [(_, batch)] = feed.poll(1, 10)
    assert batch.headers == [[("a", b"text")]]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("a", "\ud800")], "lone surrogate"),
        ([("\ud800", b"")], "lone surrogate"),
        ([("a\0", b"")], r"U\+0000"),
    ],
)
@both_guarantees
def test_a14_headers_that_the_client_would_change_or_die_of_are_refused(
    headers: Any, reason: str, guarantee: str
) -> None:
    stage = Stage(processing_guarantee=guarantee)
    stage.sdf.set_headers(lambda *_: headers).to_topic(stage.out)
    with stage.drive() as driver, pytest.raises(ProducerError, match=reason):
        driver.pipe("in", 1)
    with pytest.raises(ProducerError, match=reason):
        client_headers(headers, "out")


def test_a14_compared_headers_of_a_mapping() -> None:
    assert client_headers({"a": "1", "b": None}, "out") == [("a", b"1"), ("b", None)]
    assert client_headers((), "out") is None
    with pytest.raises(TypeError, match="must be bytes, str or None, got int"):
        client_headers([("a", 1)], "out")


@pytest.mark.parametrize("timestamp", [LATEST + 1, 2**63 - 1, 2**63, 2**70])
@both_guarantees
def test_a13_times_that_kafka_cannot_hold_go_to_callbacks(timestamp: int, guarantee: str) -> None:
    asked = list[Any]()

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        asked.append((type(error).__name__, record.offset))
        return True

    stage = Stage(on_processing_error=skip, processing_guarantee=guarantee)
    stage.sdf.set_timestamp(lambda value, *_: timestamp if value else 7).to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe("in", 1)
        driver.pipe("in", 0)
        assert [each.timestamp for each in driver.read("out")] == [7]
    assert asked == [("ValueError", 0)]
    with pytest.raises(ProducerError, match=f"timestamp is {timestamp} ms, and the latest one is {LATEST} ms"):
        client_timestamp(timestamp, "out")


@pytest.mark.parametrize("timestamp", [LATEST + 1, 2**63, -1])
def test_a13_extractors_that_return_such_times_fail_with_the_place_of_the_record(timestamp: int) -> None:
    asked = list[Any]()

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        asked.append((str(error), record.offset()))
        return True

    stage = Stage({"timestamp_extractor": lambda value, *_: timestamp if value else 5}, on_consumer_error=skip)
    stage.sdf.to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe("in", 1)
        driver.pipe("in", 0)
        assert [each.timestamp for each in driver.read("out")] == [5]
    [(text, offset)] = asked
    assert offset == 0
    assert "the timestamp of in[0] at offset 0 cannot be extracted" in text


def test_a13_the_latest_time_works_everywhere() -> None:
    stage = Stage({"key_deserializer": "str"}, {"key_serializer": "str"})
    stage.sdf.group_by(lambda value: "k", name="g").tumbling_window(1_000).count().current().to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe("in", 1, key=b"k", timestamp=LATEST)
        assert [each.value["value"] for each in driver.read("out")] == [1]
        with pytest.raises(ArgumentValueError, match="latest timestamp"):
            driver.pipe("in", 1, key=b"k", timestamp=LATEST + 1)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a11_the_epoch_is_one_millisecond_later_behind_every_topic(partitions: int) -> None:
    found = list[int]()
    app = application()
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    frame = frame.update(lambda value, key, timestamp, headers: found.append(timestamp), metadata=True)
    frame = frame.group_by(lambda value: "k", name="g")
    frame.update(lambda value, key, timestamp, headers: found.append(timestamp), metadata=True)
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", 1, timestamp=0)
    assert found == [0, 1]


LARGEST = 1_000_000 - 36 - len('""')


@both_guarantees
def test_a18_what_the_client_refuses_as_too_large_the_driver_refuses(guarantee: str) -> None:
    asked = list[Any]()

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        asked.append((str(error), record.offset))
        return True

    stage = Stage(on_producer_error=skip, processing_guarantee=guarantee)
    stage.sdf.apply(lambda size: "a" * size).to_topic(stage.out, key=lambda _: None)
    with stage.drive() as driver:
        driver.pipe("in", LARGEST)
        driver.pipe("in", LARGEST + 1)
        assert [len(each.value) for each in driver.read("out")] == [LARGEST]
    [(text, offset)] = asked
    assert offset == 1
    assert "a record of 999,965 bytes for topic 'out' was refused" in text
    assert "MSG_SIZE_TOO_LARGE" in text


@pytest.mark.parametrize("partitions", [1, 3])
def test_a18_a_group_by_refuses_the_same_records_with_one_partition(partitions: int) -> None:
    app = application()
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    frame.apply(lambda size: "a" * size).group_by(lambda _: None, name="g")
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", LARGEST)
        with pytest.raises(ProducerError, match="MSG_SIZE_TOO_LARGE"):
            driver.pipe("in", LARGEST + 1)


def test_a18_the_options_of_topic_and_producer_count() -> None:
    stage = Stage(
        out={"config": TopicConfig(1, 1, {"max.message.bytes": "3000000"})},
        producer_extra_config={"message.max.bytes": 5_000_000},
    )
    stage.sdf.apply(lambda size: "a" * size).to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe("in", 2_900_000)
        assert len(driver.read("out")) == 1
        with pytest.raises(ProducerError, match="was not delivered: Broker: Message size too large"):
            driver.pipe("in", 3_100_000)


def test_a18_an_input_takes_no_record_that_its_topic_would_not_take() -> None:
    stage = Stage()
    with stage.drive() as driver:
        with pytest.raises(ProducerError, match="MSG_SIZE_TOO_LARGE"):
            driver.pipe("in", "a" * 2_000_000)
        with pytest.raises(ProducerError, match="MSG_SIZE_TOO_LARGE"):
            driver.pipe_all("in", ["a" * 2_000_000])
        driver.pipe("in", "a" * 1_040_000)


def test_a18_topics_in_memory_have_limits() -> None:
    links = MemoryLinks(auto_create=True)
    lost = list[Any]()
    with pytest.raises(ProducerError, match="MSG_SIZE_TOO_LARGE"):
        links.sender().produce("t", b"a" * 1_000_000, None)
    sender = links.sender({"message.max.bytes": 10_000_000})
    sender.produce("t", b"a" * 2_000_000, None, on_delivery=lambda error, *_: lost.append(error))
    sender.flush(1)
    assert [type(error) for error in lost] == [ProducerError]
    assert record_size(b"1234", b"key", [("a", b"bc"), ("d", None)]) == 36 + 7 + 3 + 2 + 1 + 2


def test_a14_a_dead_letter_has_the_headers_of_its_record() -> None:
    stage = Stage(on_error=DeadLetters())
    stage.sdf.apply(lambda value: 1 / value)
    with stage.drive() as driver:
        driver.pipe("in", 0, headers=[("a", "text"), ("a", None)])
        [letter] = driver.read("dead-letters__group")
    headers = letter.headers or []
    assert ("a", b"text") in headers
    assert all(value is None or isinstance(value, bytes) for _, value in headers)


def test_errors_of_the_driver_are_those_of_production() -> None:
    stage = Stage()
    stage.sdf.apply(lambda _: {1, 2}).group_by(lambda value: 1, name="g")
    with stage.drive() as driver, pytest.raises(ProducerError, match="the value of a record for topic 'repartition__"):
        driver.pipe("in", 1)


@pytest.mark.parametrize(
    "change", [lambda sdf: sdf, lambda sdf: sdf.apply(lambda value: value), lambda sdf: sdf[sdf["k"] != "large"]]
)
def test_a12_values_that_were_just_read_from_json_pass_as_through_a_topic(change: Callable[[Any], Any]) -> None:
    texts = [
        b'{"k":"a","n":9223372036854775807,"f":-0.0,"t":"\\u00e9\\u0000","l":[1,{"x":null}]}',
        b'{"k":"a","n":18446744073709551615,"f":1e300,"b":true}',
        b'{"k":7,"n":1.0,"none":null}',
        b'{"k":18446744073709551615,"t":"null"}',
        b'{"k":1.5,"t":""}',
        b'{"k":null}',
        b'{"k":[1],"k2":{}}',
        b'{"k":"grows","n":[%b]}' % b",".join([b"9e15"] * 60_000),
        b'{"k":"large","t":"%b"}' % (b"x" * 999_900),
        b'{"k":"twice","k":"later"}',
        b'{"k":"%b"}' % (b"k" * 600_000),
        b'{"other":1}',
        b"null",
        b"[1]",
    ]
    (one, asked), (three, asked_three) = (seen_behind_group_by(texts, partitions, change) for partitions in (1, 3))
    assert one == three
    assert asked == asked_three
    assert len(one) >= 8
    assert asked.total() >= 4


def seen_behind_group_by(
    texts: list[bytes], partitions: int, change: Callable[[Any], Any]
) -> tuple[list[str], Counter[str]]:
    """Return the values behind a `group_by`, where they are changed, and what callbacks were asked."""
    seen: list[str] = []

    def see(value: dict[str, Any]) -> None:
        seen.append(repr(sorted(value.items())))
        value.clear()

    noted = Noted()
    app = application(**noted.settings())
    source = app.topic("in", config=TopicConfig(partitions, 1))
    change(app.dataframe(source)).group_by("k").update(see)
    with TopologyTestDriver(app) as driver:
        for number, text in enumerate(texts):
            driver.pipe_bytes(source, text, key=b"k", timestamp=number)
    return sorted(seen), noted.asked


SHORTCUTS: dict[str, tuple[bool, Callable[[Stage], Any]]] = {
    "column": (True, lambda stage: stage.sdf.group_by("k")),
    "filtered by columns": (True, lambda stage: stage.sdf[(stage.sdf["a"] > 1) | ~stage.sdf["b"]].group_by("k")),
    "key by a function": (False, lambda stage: stage.sdf.group_by(lambda value: value["k"], name="k")),
    "partitioner": (False, lambda stage: stage.sdf.group_by("k", partitioner=lambda key, count: 0)),
    "filtered by a function": (False, lambda stage: stage.sdf.filter(bool).group_by("k")),
    "filtered by a function of a column": (False, lambda stage: stage.sdf[stage.sdf["a"].apply(bool)].group_by("k")),
    "filtered by an object": (False, lambda stage: stage.sdf[stage.sdf["a"] == Noted()].group_by("k")),
    "changed in place": (False, lambda stage: stage.sdf.update(repr).group_by("k")),
    "new column": (False, lambda stage: _with_column(stage.sdf).group_by("k")),
    "merged": (False, lambda stage: stage.sdf.concat(stage.app.dataframe(stage.app.topic("other"))).group_by("k")),
}


def _with_column(sdf: Any) -> Any:
    sdf["new"] = sdf["a"] / sdf["b"]
    return sdf


@pytest.mark.parametrize("case", SHORTCUTS)
def test_a12_only_values_that_nobody_could_change_go_round_the_serializers(case: str) -> None:
    stage = Stage()
    expected, build = SHORTCUTS[case]
    build(stage)
    assert passes_as_read_in(stage.app) is expected


@pytest.mark.parametrize(
    "settings",
    [
        {"timestamp_extractor": lambda value, headers, timestamp, kind: timestamp},
        {"value_deserializer": JSONDeserializer(loads=json.loads)},
        {"value_deserializer": "string"},
    ],
)
def test_a12_values_of_other_deserializers_and_extractors_pass_the_serializers(settings: dict[str, Any]) -> None:
    app = application()
    app.dataframe(app.topic("in", **settings)).group_by("k")
    assert not passes_as_read_in(app)


def passes_as_read_in(app: Application) -> bool:
    topology = app.topology.resolve({"in": 1, "other": 1})
    (node,) = (node for node in topology.nodes if isinstance(node.operator, InMemoryExchange))
    return passes_as_read(node, topology)


def test_a12_a_value_that_is_changed_behind_a_group_by_stays_as_it_was_in_other_branches() -> None:
    stage = Stage()
    seen: list[Any] = []
    stage.sdf.group_by("k").update(lambda value: value.clear())
    stage.sdf.group_by("k", name="again").update(lambda value: value["l"].append(1))
    stage.sdf.update(seen.append)
    with stage.drive() as driver:
        driver.pipe("in", {"k": 1, "l": []})
    assert seen == [{"k": 1, "l": []}]
