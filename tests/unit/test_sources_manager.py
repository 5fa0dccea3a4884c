"""Arguments that `SourceManager` refuses before any process is started."""

import threading
from typing import Any, cast

import pytest

from streamrt.app import definition_of
from streamrt.connectors import BaseSource, CSVSource, Source, StatefulSource
from streamrt.errors import ConfigurationError, InvalidOperationError, SourceError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runs.start_positions import StartOffsets
from streamrt.runtime.sources.manager import SourceManager, name_of
from streamrt.topics import Topic
from tests.unit.apps import application


class Named(Source):
    def run(self) -> None: ...


class Remembering(StatefulSource):
    store_partitions_count = 3

    def run(self) -> None: ...


class Nameless(BaseSource):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def default_topic(self) -> Topic:
        return Topic("nameless")


def manager(**options: Any) -> SourceManager:
    return SourceManager(ConnectionConfig(bootstrap_servers="localhost:1"), "shop", **options)


def test_names_and_topics_are_unique() -> None:
    sources = manager()
    first = Named("first")
    sources.register(first, Topic("a"))
    for source, topic, message in (
        (first, "b", "the source first is added twice"),
        (Named("first"), "b", "two sources are called first"),
        (Named("second"), "a", "the sources first and second both produce to topic 'a'"),
    ):
        with pytest.raises(InvalidOperationError, match=message):
            sources.register(source, Topic(topic))
    sources.register(Named("second"), Topic("b"))
    assert [process.name for process in sources.processes] == ["first", "second"]


def test_only_sources() -> None:
    with pytest.raises(ConfigurationError, match="a str is not a source"):
        manager().register("orders", Topic("a"))  # type: ignore[arg-type]


def test_names() -> None:
    assert name_of(CSVSource("in.csv", "orders")) == "orders"
    assert name_of(Nameless()) == "Nameless"


def test_changelog_topics() -> None:
    sources = manager()
    sources.register(Named("plain"), Topic("a"))
    sources.register(Remembering("orders"), Topic("b"))
    (topic,) = sources.changelog_topics(replication_factor=None)
    assert topic.name == "changelog__shop--source-orders"
    assert topic.config is not None
    assert (topic.config.num_partitions, topic.config.replication_factor) == (3, None)
    assert topic.config.extra_config == {"cleanup.policy": "compact"}


def test_state_needs_changelogs() -> None:
    sources = manager(use_changelogs=False)
    sources.register(Named("plain"), Topic("a"))
    with pytest.raises(ConfigurationError, match="use_changelog_topics=False"):
        sources.register(Remembering("orders"), Topic("b"))


def test_a_source_that_cannot_be_sent() -> None:
    source = Named("orders")
    source.lock = threading.Lock()  # type: ignore[attr-defined]
    sources = manager()
    sources.register(source, Topic("a"))
    with pytest.raises(SourceError, match=r"the source orders cannot be sent to its process .*lock.*create clients"):
        sources.start()
    assert not sources.is_alive()


def test_options_that_cannot_be_sent() -> None:
    sources = manager(producer_options={"stats_cb": threading.Lock()})
    sources.register(Named("orders"), Topic("a"))
    with pytest.raises(SourceError, match="the producer options of source orders cannot be sent"):
        sources.start()


def test_a_connection_that_cannot_be_sent() -> None:
    connection = ConnectionConfig(bootstrap_servers="localhost:1", oauth_cb=lambda options: ("token", 0.0))
    sources = SourceManager(connection, "shop")
    sources.register(Named("orders"), Topic("a"))
    with pytest.raises(ConfigurationError, match="oauth_cb is a Python function"):
        sources.start()


def test_no_sources() -> None:
    sources = manager()
    with sources.running():
        sources.check()
    assert not sources.is_alive()
    assert sources.changelog_topics() == []


def test_secrets_are_not_shown() -> None:
    connection = ConnectionConfig(bootstrap_servers="localhost:1", sasl_password="open-sesame")
    sources = SourceManager(connection, "shop", {"ssl.key.password": "open-sesame"})
    sources.register(Named("orders"), Topic("a"))
    assert "open-sesame" not in repr(sources) + repr(sources.processes)


@pytest.mark.parametrize("reset", ["latest", "error"])
def test_a_new_group_skips_nothing_that_its_sources_have_written(reset: str) -> None:
    app = application(auto_offset_reset=reset)
    app.dataframe(source=Named("first"))
    app.dataframe(app.topic("own"), source=Named("second"))
    app.dataframe(app.topic("late", auto_offset_reset="latest"), source=Named("third"))
    app.dataframe(app.topic("orders"))
    offsets = StartOffsets(
        app.config,
        ConnectionConfig(bootstrap_servers="unused:9092"),
        definition_of(app).task_spec(),
        cast("Any", None),
        lambda partitions: None,
    )
    resets = {
        name: offsets._make_rules(TopicPartition(name, 0), CommittedOffset(None)).reset
        for name in ("source__first", "own", "late", "orders")
    }
    assert resets == {"source__first": "earliest", "own": "earliest", "late": "latest", "orders": reset}


def test_the_default_topic_of_a_source_says_where_a_group_begins() -> None:
    class Live(Named):
        def default_topic(self) -> Topic:
            return Topic(self.name, auto_offset_reset="latest")

    assert application().dataframe(source=Live("ticks")).topics[0].auto_offset_reset == "latest"
