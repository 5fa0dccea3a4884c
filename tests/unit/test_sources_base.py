"""The base classes of sources."""

import threading
from typing import Any

import pytest

from streamrt.connectors import BaseSource, CSVSource, Source, StatefulSource, source_topic
from streamrt.errors import ConfigurationError, InvalidOperationError, ProducerError
from streamrt.kafka import TopicConfig
from streamrt.models import TimestampType
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer
from streamrt.topics import Topic

TOPIC = Topic("orders", key_serializer="str")


class Scripted(Source):
    """Notes what happens, and fails where it is told to."""

    def __init__(self, fails: str = "", **options: Any) -> None:
        super().__init__("scripted", **options)
        self.fails = fails
        self.calls: list[Any] = []

    def _note(self, call: str, *details: Any) -> None:
        self.calls.append((call, *details) if details else call)
        if call in self.fails.split():
            raise RuntimeError(f"{call} failed")

    def setup(self) -> None:
        self._note("setup")

    def run(self) -> None:
        self._note("run")

    def cleanup(self, failed: bool) -> None:
        self._note("cleanup", failed)


class Counter(StatefulSource):
    def run(self) -> None:
        for _ in range(3):
            number = self.state.get("number", 0)
            self.produce(self.serialize(value=number).value)
            self.state.set("number", number + 1)


def configured(source: Source, producer: RecordingProducer | None = None) -> Source:
    source.configure(TOPIC, producer or RecordingProducer())
    return source


@pytest.mark.parametrize(
    ("fails", "calls", "message"),
    [
        ("", ["setup", "run", ("cleanup", False)], None),
        ("setup", ["setup", ("cleanup", True)], "setup failed"),
        ("run", ["setup", "run", ("cleanup", True)], "run failed"),
        ("cleanup", ["setup", "run", ("cleanup", False)], "cleanup failed"),
        ("run cleanup", ["setup", "run", ("cleanup", True)], "run failed"),
    ],
)
def test_the_life_of_a_source(fails: str, calls: list[Any], message: str | None) -> None:
    source = Scripted(fails)
    configured(source)
    if message is None:
        source.start()
    else:
        with pytest.raises(RuntimeError, match=message):
            source.start()
    assert source.calls == calls


def test_callbacks() -> None:
    heard: list[Any] = []
    good = Scripted(on_client_connect_success=lambda: heard.append("connected"))
    bad = Scripted("setup", on_client_connect_failure=lambda error: heard.append(str(error)))
    configured(good).start()
    configured(bad).start()
    assert heard == ["connected", "setup failed"]
    # The callback has dealt with it.
    assert bad.calls == ["setup", "run", ("cleanup", False)]


def test_running_and_sleep() -> None:
    source = Scripted()
    assert not source.running
    assert configured(source).running
    assert source.sleep(0)
    assert source.sleep(0.001)
    threading.Timer(0.02, source.stop).start()
    assert not source.sleep(60)
    assert not source.running


def test_before_configure() -> None:
    source = Scripted()
    source.stop()
    for call in (source.start, lambda: source.sleep(1), source.flush, lambda: source.produce(b"1"), source.serialize):
        with pytest.raises(InvalidOperationError, match="the source scripted has no topic and no producer yet"):
            call()


def test_produce_hands_everything_over() -> None:
    producer = RecordingProducer()
    source = configured(Scripted(), producer)
    message = source.serialize("key", {"n": 1}, {"h": "x"}, 5)
    assert (message.key, message.value, message.headers, message.timestamp) == (b"key", b'{"n":1}', [("h", "x")], 5)
    source.produce(message.value, message.key, message.headers, partition=3, timestamp=message.timestamp)
    assert producer.records == [("orders", b'{"n":1}', b"key", [("h", "x")], 3, 5)]
    assert source.producer is producer
    assert source.producer_topic is TOPIC


def test_flush_fails_if_records_are_not_delivered() -> None:
    producer = RecordingProducer()
    producer.undelivered = 2
    with pytest.raises(ProducerError, match="2 records for topic 'orders' were not delivered within 5 s"):
        configured(Scripted(), producer).flush(5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "give a non-empty str"),
        ({"name": 5}, "give a non-empty str"),
        ({"name": "a", "shutdown_timeout": -1}, "shutdown_timeout of source a is -1"),
        ({"name": "a", "shutdown_timeout": float("inf")}, "shutdown_timeout"),
        ({"name": "a", "shutdown_timeout": float("nan")}, "shutdown_timeout"),
    ],
)
def test_wrong_parameters(arguments: dict[str, Any], message: str) -> None:
    class Silent(Source):
        def run(self) -> None: ...

    with pytest.raises(ConfigurationError, match=message):
        Silent(**arguments)


class TestStateful:
    def test_names(self) -> None:
        source = Counter("orders")
        assert (source.store_name, source.store_partitions_count, source.assigned_store_partition) == (
            "source-orders",
            1,
            0,
        )

    def test_it_goes_on_where_it_was(self) -> None:
        store, producer = MemorySourceStore(), RecordingProducer()
        for _ in range(2):
            source = Counter("orders")
            source.configure(TOPIC, producer, store_partition=store)
            source.start()
        assert [record.value for record in producer.records] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert store.commits == 2

    def test_state_is_not_committed_if_a_record_is_not_delivered(self) -> None:
        store, producer = MemorySourceStore(), RecordingProducer()
        source = Counter("orders")
        source.configure(TOPIC, producer, store_partition=store)
        producer.undelivered = 1
        with pytest.raises(ProducerError):
            source.start()
        assert store.commits == 0

    def test_without_a_store(self) -> None:
        source = Counter("orders")
        source.configure(TOPIC, RecordingProducer())
        with pytest.raises(InvalidOperationError, match="the source orders has no state yet"):
            _ = source.state


class TestDefaultTopic:
    def test_the_application_puts_a_prefix_before_it(self) -> None:
        source = CSVSource("in.csv", name="orders")
        assert source.default_topic().name == "orders"
        topic = source_topic(source)
        assert topic.name == "source__orders"
        assert topic.serialize("key", {"n": 1}).key == b"key"
        assert topic.deserialize(b"key", b'{"n":1}') == ("key", {"n": 1})

    def test_everything_else_stays(self) -> None:
        def extractor(value: Any, headers: Any, timestamp: int, kind: TimestampType) -> int:
            return 5

        mine = Topic("mine", TopicConfig(3, 1), "str", "int", "str", "int", extractor)

        class Own(BaseSource):
            def start(self) -> None: ...

            def stop(self) -> None: ...

            def default_topic(self) -> Topic:
                return mine

        assert mine.differences(source_topic(Own())) == ["name"]

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(ConfigurationError, match="not a valid topic name"):
            source_topic(CSVSource("in.csv", name="my orders"))
