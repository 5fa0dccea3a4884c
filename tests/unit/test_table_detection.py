"""Schemas that are detected in records."""

import contextlib
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import httpx
import httpx_sse
import pytest

from streamrt.errors import ArgumentValueError, InvalidOperationError, SchemaError, SourceError
from streamrt.records import Headers
from streamrt.schema import Schema
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.avro import AvroSerializer
from streamrt.serializers.registry import SchemaRegistrySerializationConfig
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.reading.detection import Detected
from streamrt.tables.reading.event_detection import arriving
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import Home, info_of, table, write
from tests.unit.registries import RegistryDouble
from tests.unit.test_row_formats_registry import Schemas

COUNTERS: list[dict[str, Any]] = [{"counter": 1, "city": "Lyon"}, {"counter": 2}, {"counter": 3, "ok": True}]


@pytest.mark.rows("DK-046", "DK-049", "DK-050")
def test_columns_that_are_new_and_that_are_missing() -> None:
    events = table(schema=Schema("counter STRING, zip STRING"))
    write(events, COUNTERS)
    texts = events.detect_schema()
    assert texts.schema == Schema("counter STRING, city STRING, ok STRING")
    assert (texts.new_columns, texts.missing_columns) == (["city", "ok"], ["zip"])
    assert texts.rows == COUNTERS
    typed = events.detect_schema(types=True)
    assert typed.schema == Schema("counter BIGINT, city STRING, ok BOOLEAN")


@pytest.mark.rows("DK-048")
def test_nothing_comes() -> None:
    events = table(schema=None)
    assert events.detect_schema(timeout=0.01) == Detected(None)
    write(events, COUNTERS, abort=True)
    assert events.detect_schema(timeout=0.01).schema is None


@pytest.mark.rows("DK-052")
def test_it_waits_for_the_first_record() -> None:
    events = table(schema=None, partitions=2)
    found: list[Detected] = []
    thread = threading.Thread(daemon=True, target=lambda: found.append(events.detect_schema(timeout=60)))
    thread.start()
    write(events, COUNTERS[:1], 1)
    thread.join(60)
    assert found[0].rows == COUNTERS[:1]


@pytest.mark.rows("DK-052")
def test_last_records_of_all_partitions() -> None:
    events = table(schema=None, partitions=3)
    write(events, [{"n": number} for number in range(30)], 0, timestamps=range(1_000, 1_030))
    write(events, [{"m": number} for number in range(3)], 2, timestamps=[500, 1_026, 2_000])
    assert events.detect_schema(limit=4).rows == [{"n": 27}, {"n": 28}, {"n": 29}, {"m": 2}]
    # Many aborted records at the end do not hide those before them.
    write(events, [{"x": 1}] * 40, 0, abort=True)
    assert events.detect_schema(limit=2, types=True).rows == [{"n": 29}, {"m": 2}]
    assert events.detect_schema(start={2: 0}, limit=2).rows == [{"m": 0}, {"m": 1}]
    assert events.detect_schema(start="latest", timeout=0.01).rows == []


@pytest.mark.rows("DK-051")
def test_hints_at_other_formats() -> None:
    events = table(schema=None)
    write(events, [b"\0" + struct.pack(">I", 7) + b"abc"])
    found = events.detect_schema()
    assert (found.schema, found.skipped) == (None, 1)
    assert found.hint is not None
    assert "schema id 7" in found.hint
    other = table(schema=Schema("a STRING"), topic="texts")
    write(other, [b"text", b"7", {"a": "b"}])
    found = other.detect_schema()
    assert (found.rows, found.skipped) == ([{"a": "b"}], 2)
    assert found.hint is not None
    assert "not JSON objects" in found.hint
    empty = table(schema=Schema("a STRING"), topic="tombstones")
    write(empty, [None])
    assert empty.detect_schema() == Detected(None, [], [], [], 1, "the records have no value")


ORDERS = Schema("id BIGINT NOT NULL, price DECIMAL(9, 2)")


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryDouble]:
    with RegistryDouble(Schemas()) as double:
        yield double


@pytest.mark.rows("DK-051", "DK-097")
def test_avro_has_the_schema_that_it_was_written_with(registry: RegistryDouble) -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks(), schema_registry=registry.config())
    older = catalog.create_table("older", ORDERS, format="avro", topic="orders")
    newer = catalog.create_table(
        "newer", [*ORDERS.columns, {"name": "note", "type": "STRING"}], format="avro", topic="orders"
    )
    older.append([[1, "0.50"]])
    newer.append([[2, None, "b"]])
    read = catalog.create_table("read", "id BIGINT, city STRING", format="avro", topic="orders")
    found = read.detect_schema()
    assert found == read.detect_schema(types=True)
    assert str(found.schema) == "id BIGINT NOT NULL, price DECIMAL(9, 2), note STRING"
    assert found.rows == [{"id": 1, "price": Decimal("0.50"), "note": None}, {"id": 2, "price": None, "note": "b"}]
    assert (found.new_columns, found.missing_columns, found.skipped) == (["price", "note"], ["city"], 0)
    assert list(catalog.create_table("all", found.schema, format="avro", topic="orders").scan().rows()) == found.rows


@pytest.mark.rows("DK-051")
def test_avro_whose_schema_is_named_in_headers(registry: RegistryDouble) -> None:
    links = MemoryLinks()
    catalog = Catalog(store=MemoryCatalog(), links=links, schema_registry=registry.config())
    events = catalog.create_table("headed", format="avro")
    serializer = AvroSerializer(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
        schema_registry_client_config=registry.config(),
        schema_registry_serialization_config=SchemaRegistrySerializationConfig(schema_id_location="header"),
    )
    write_bound = serializer.bind("headed", MessageField.VALUE)
    with contextlib.closing(links.sender()) as sender:
        for number in range(2):
            headers: Headers = []
            value = write_bound({"a": number}, headers)
            assert headers
            sender.produce("default.headed", value, None, 1_000 + number, headers)
        assert sender.flush(60) == 0
    found = events.detect_schema()
    assert (str(found.schema), found.rows, found.hint) == ("a INT NOT NULL", [{"a": 0}, {"a": 1}], None)


@pytest.mark.rows("DK-051")
def test_avro_that_the_registry_does_not_know(registry: RegistryDouble) -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks(), schema_registry=registry.config())
    events = catalog.create_table("events", format="avro")
    write(events, [b"{}", None, b"\0\0\0\0\x63x"])
    found = events.detect_schema()
    assert (found.schema, found.rows, found.skipped) == (None, [], 3)
    assert found.hint is not None
    assert "not records of Avro with a schema in the registry" in found.hint
    assert "id 99" in found.hint
    odd = catalog.create_table("odd", format="avro")
    serializer = AvroSerializer(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]},
        schema_registry_client_config=registry.config(),
    )
    write(odd, [serializer({"a": 1}, SerializationContext("odd", MessageField.VALUE))])
    with pytest.raises(SchemaError, match=r"no table can have the columns of schema \d+"):
        odd.detect_schema()


@pytest.mark.rows("DK-051")
@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("avro", {}, "without a schema registry, values of Avro do not say what their columns are"),
        ("protobuf", {}, "messages of Protobuf do not say what the names of their columns are"),
    ],
)
def test_formats_whose_values_do_not_name_their_columns(name: str, options: dict[str, Any], why: str) -> None:
    events = table(schema=None, format=name, format_options=options)
    # At once, and not after the time for which it would wait for records.
    with pytest.raises(
        InvalidOperationError, match=f"cannot look at the format '{name}': {why}; set the schema that they"
    ):
        events.detect_schema(timeout=10**6)


@pytest.mark.rows("DK-051")
@pytest.mark.parametrize(
    ("name", "options", "values", "schema", "rows"),
    [
        ("string", {}, [b"a", b"\xff", b"b"], "value STRING", ["a", "b"]),
        ("single", {}, [b"a", b"1"], "value STRING", ["a", "1"]),
        ("single", {}, [b"a", b"\xff"], "value BINARY", [b"a", b"\xff"]),
        ("single", {"serializer": "int"}, [b"\0\0\0\x07", b"x"], "value INT", [7]),
        ("single", {"serializer": "double"}, [bytes(8)], "value DOUBLE", [0.0]),
        ("single", {"serializer": "json"}, [b"7", b"{", b"8"], "value BIGINT", [7, 8]),
        ("raw", {}, [b"\xff", b""], "value BINARY", [b"\xff", b""]),
    ],
)
def test_values_that_are_one_column(
    name: str, options: dict[str, Any], values: list[bytes], schema: str, rows: list[Any]
) -> None:
    events = table(schema=None, format=name, format_options=options)
    assert events.detect_schema(timeout=0).schema is None
    write(events, values)
    found = events.detect_schema(types=True)
    assert (str(found.schema), [row["value"] for row in found.rows]) == (schema, rows)
    assert found.new_columns == ["value"]
    assert found.skipped == len(values) - len(rows)
    assert (found.hint is None) == (not found.skipped)


@pytest.mark.rows("DK-051")
def test_one_column_that_is_known() -> None:
    events = table(schema=Schema("celsius DOUBLE"), format="single")
    write(events, [bytes(8)])
    assert events.detect_schema() == Detected(Schema("celsius DOUBLE"), [{"celsius": 0.0}])
    texts = table(schema=None, format="single", format_options={"serializer": "json"}, topic="texts")
    write(texts, [b"{"])
    assert texts.detect_schema() == Detected(None, skipped=1, hint="values are not JSON")
    assert texts.detect_schema(start="latest", timeout=0) == Detected(None)


@pytest.mark.rows("DK-050")
def test_conflicts_and_nulls_are_texts() -> None:
    events = table(schema=None)
    write(events, [{"a": 1, "b": None}, {"a": "x", "b": None}])
    assert events.detect_schema(types=True).schema == Schema("a STRING, b STRING")


@pytest.mark.rows("DK-047")
def test_what_cannot_be_looked_at() -> None:
    queue = Table(info_of(None, None, kind="external", connector="sqs"), Home())
    with pytest.raises(InvalidOperationError, match="sqs"):
        queue.detect_schema()
    for wrong in (0, True, 1.5):
        with pytest.raises(ArgumentValueError, match="limit"):
            table().detect_schema(limit=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="timeout"):
        table().detect_schema(timeout=-1)


# -- Events of HTTP streams --------------------------------------------------------------------------------------

EVENT = b'data: {"a": 1}\n\n'


class Body(httpx.SyncByteStream):  # type: ignore[misc]
    """Content that a server sends, up to an error or, without one, until the stream is closed."""

    def __init__(self, parts: list[bytes], error: Exception | None = None, then: Callable[[], object] = int) -> None:
        self.parts, self.error, self.then = parts, error, then
        self.closed = threading.Event()
        self.read = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        self.then()
        if self.error is not None:
            raise self.error
        self.closed.wait(60)
        self.read.set()

    def close(self) -> None:
        """Close the stream."""
        self.closed.set()


def events_of(body: Body, kind: str = "text/event-stream") -> httpx_sse.EventSource:
    """Return the events of an answer."""
    return httpx_sse.EventSource(httpx.Response(200, headers={"content-type": kind}, stream=body))


def test_events_that_arrive_in_time() -> None:
    body = Body([EVENT, EVENT, EVENT])
    assert arriving(events_of(body), None, 2, 60, "a.b") == [b'{"a": 1}'] * 2
    assert body.closed.is_set()
    body = Body([EVENT])
    assert arriving(events_of(body), None, 2, 0.05, "a.b") == [b'{"a": 1}']
    assert body.read.wait(60)
    assert arriving(events_of(Body([EVENT])), "other", 2, 0.05, "a.b") == []


def test_stream_of_events_that_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    body = Body([], httpx.ReadError("the connection was lost"))
    with pytest.raises(SourceError, match=r"no event of table a\.b was read: ReadError: the connection was lost"):
        arriving(events_of(body), None, 2, 60, "a.b")
    assert body.closed.is_set()
    with pytest.raises(SourceError, match="text/html"):
        arriving(events_of(Body([EVENT]), "text/html"), None, 2, 60, "a.b")
    assert arriving(events_of(Body([EVENT], httpx.ReadError("lost"))), None, 2, 60, "a.b") == [b'{"a": 1}']
    assert "The events of table a.b broke off after 1: ReadError: lost" in caplog.text


def test_interrupt_closes_the_stream_of_events() -> None:
    main = threading.main_thread().ident
    assert main is not None
    body = Body([EVENT], then=lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        arriving(events_of(body), None, 2, 60, "a.b")
    assert body.closed.is_set()
    assert body.read.wait(60)
