"""Numbers and strings that a catalogue takes, and what sqlglot says of them."""

import logging
import threading
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.config import ApplicationConfig
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CatalogError,
    ConfigurationError,
    SchemaError,
    StreamRTError,
)
from streamrt.kafka import ConnectionConfig
from streamrt.schema import Schema
from streamrt.schema.quiet import quiet_sqlglot
from streamrt.secret import SecretRef
from streamrt.tables import MemoryCatalog, SinkTable, SQSQueue
from streamrt.tables.catalogue.catalog_store import CatalogStore

ODD_NUMBERS = ("1_0", " 10", "10 ", "+10", "١٠", "1e1", "10.0", "0x10", "", "-1")  # noqa: RUF001 - Arabic digits


@pytest.fixture
def store() -> CatalogStore:
    return MemoryCatalog()


@pytest.fixture
def catalog(store: CatalogStore) -> Catalog:
    made = Catalog(store=store)
    made.create_table("orders", "id INT")
    return made


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_numbers_in_statements_are_plain_ones(catalog: Catalog, text: str) -> None:
    for option in ("partitions", "replicas"):
        with pytest.raises(SchemaError, match=f"the option '{option}' must be a number of 1 or more"):
            catalog.execute(f"CREATE TABLE a (id INT) WITH ('{option}' = '{text}')")
    with pytest.raises(ConfigurationError, match="wait_time_s"):
        SQSQueue.from_texts({"name": "jobs", "connection": "aws", "wait_time_s": text})
    assert SQSQueue.from_texts({"name": "jobs", "visibility_timeout_s": "0"}).visibility_timeout_s == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_partitions": "4"}, ArgumentTypeError),
        ({"num_partitions": True}, ArgumentTypeError),
        ({"num_partitions": 4.0}, ArgumentTypeError),
        ({"num_partitions": 0}, ArgumentValueError),
        ({"replication_factor": -1}, ArgumentValueError),
        ({"replication_factor": "3"}, ArgumentTypeError),
        ({"comment": 5}, ArgumentTypeError),
        ({"key_format": 5}, ArgumentTypeError),
        ({"time": b"at"}, ArgumentTypeError),
        ({"comment": "\ud800"}, CatalogError),
        ({"format_options": {"x": object()}}, StreamRTError),
    ],
)
def test_tables_that_could_not_be_read_again_are_refused(
    catalog: Catalog, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        catalog.create_table("a", "id INT", **arguments)
    assert catalog.tables() == ["default.orders"]


@pytest.mark.parametrize(
    "change",
    [
        {"expect": "1"},
        {"expect": True},
        {"comment": 5},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"topic": 5},
        {"url": b"x"},
    ],
)
def test_changes_that_could_not_be_read_again_are_refused(catalog: Catalog, change: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"alter_table\("):
        catalog.alter_table("orders", **{"comment": "x", **change})
    assert catalog.load("orders").version == 1


def test_connections_to_kafka_are_refused_by_name(catalog: Catalog) -> None:
    kafka: Any = ConnectionConfig(bootstrap_servers="other:9092")
    with pytest.raises(ConfigurationError, match=r"a connection to Kafka, which is not there yet: .* own cluster"):
        catalog.add_connection("other", kafka)
    other: Any = {"region": "eu-west-1"}
    with pytest.raises(ArgumentTypeError, match="such as AWSConnection"):
        catalog.add_connection("other", other)
    for fail in (
        lambda: catalog.create_table("a", "id INT", connection="other"),
        lambda: catalog.execute("CREATE TABLE a (id INT) WITH ('connection' = 'other')"),
    ):
        with pytest.raises(ConfigurationError, match="not there yet for topics"):
            fail()


def test_settings_are_plain_numbers() -> None:
    for timeout in ("10", True, float("nan"), float("inf"), 0, -1):
        with pytest.raises(ConfigurationError, match="must be a number of seconds above 0"):
            Catalog(store=MemoryCatalog(), timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="comment"):
        Catalog(store=MemoryCatalog()).create_database("a", comment=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a number"):
        ApplicationConfig(loglevel="١٠")  # noqa: RUF001 - Arabic digits


def test_sqlglot_is_quiet_here_and_heard_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("sqlglot")
    heard: list[bool] = []

    def elsewhere() -> None:
        log.warning("from elsewhere")
        heard.append(log.disabled)

    with caplog.at_level(logging.WARNING, "sqlglot"), quiet_sqlglot():
        log.warning("from here")
        with quiet_sqlglot():
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        log.warning("from here")
    log.warning("afterwards")
    assert [record.message for record in caplog.records] == ["from elsewhere", "afterwards"]
    assert heard == [False]


def test_a_schema_that_cannot_be_read_is_an_error_and_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sqlglot"), pytest.raises(SchemaError):
        Schema("x INT) CLUSTER BY WHAT (")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", {"a": {"b": 1}}),
        ('"a.b"', {"a.b": 1}),
        ('headers."x.y".z', {"headers": {"x.y": {"z": 1}}}),
        ('"a"."b"', {"a": {"b": 1}}),
    ],
)
def test_names_of_arguments(name: str, expected: dict[str, Any]) -> None:
    found = SinkTable.from_texts({"sink": "WebhookSink", f"arguments.{name}": "1"})
    assert found.arguments == expected


def test_names_of_secrets_with_points() -> None:
    found = SinkTable.from_texts({"sink": "WebhookSink", 'arguments.headers."x.api-key"': "env:KEY"})
    assert found.arguments == {"headers": {"x.api-key": SecretRef.env("KEY")}}
    with pytest.raises(ConfigurationError, match=r"names a secret: a reference to a secret is env:NAME or file:PATH"):
        SinkTable.from_texts({"sink": "WebhookSink", 'arguments.headers."x.api-key"': "sesame"})


@pytest.mark.parametrize("name", ["a..b", "a.", ".a", '"a', 'a"', '"a"b', 'a."b', 'a"b"', '""', '"a""b"', '"a".'])
def test_names_of_arguments_that_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has no name, or a quote inside of one: .* in double quotes"):
        SinkTable.from_texts({"sink": "WebhookSink", f"arguments.{name}": "1"})
