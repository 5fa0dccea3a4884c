"""Tables where topics stand: dataframes of tables, sources into tables, and `to_table`."""

import datetime
import functools
import pickle
import threading
from typing import Any

import cloudpickle
import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.cli.tables.table_copy import define_copy
from streamrt.connectors import CollectionSource
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CatalogError,
    ConfigurationError,
    InvalidOperationError,
    ProducerError,
    SchemaError,
    SerializationError,
    TableNotFoundError,
)
from streamrt.runtime.driver.observation.outline import Outline
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.descriptions.connectors import HTTPSSE, SourceTable, SQSQueue
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import RecordingProducer
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import DeadLetters
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

ORDERS = "id BIGINT NOT NULL, customer STRING, total DOUBLE, at TIMESTAMP"


def make_app(tables: Tables, **settings: Any) -> Application:
    return Application("unused:9092", consumer_group="shop", catalog=tables, **settings)  # type: ignore[arg-type]


@pytest.fixture
def tables() -> Tables:
    made = Tables()
    made.add("shop.orders", ORDERS, key=("customer",), time="at", topic="orders")
    made.add("shop.large", "id BIGINT NOT NULL, customer STRING, total DOUBLE", key=("customer",))
    made.add("shop.lines", "line STRING")
    return made


def test_values_are_checked_rows_with_key_and_time(tables: Tables) -> None:
    app = make_app(tables)
    seen: list[Any] = []
    app.dataframe("shop.orders").update(lambda *record: seen.append(record), metadata=True)
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"id": 1, "total": 2, "at": "2026-01-01T00:00:00"}, key="ann", timestamp=7)
    driver.pipe_bytes("orders", b'{"id":2,"more":true}', timestamp=8)
    at = datetime.datetime(2026, 1, 1)
    assert [(value, key, timestamp) for value, key, timestamp, _ in seen] == [
        ({"id": 1, "customer": None, "total": 2.0, "at": at}, "ann", 1_767_225_600_000),
        ({"id": 2, "customer": None, "total": None, "at": None}, None, 8),
    ]


@pytest.mark.rows("FE-088")
def test_rows_are_appended_with_their_key(tables: Tables) -> None:
    app = make_app(tables)
    orders = app.dataframe(tables.table("shop.orders"))
    orders = orders[orders["total"] > 10]
    orders.drop("at").to_table("shop.large", key="customer")
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"id": 1, "customer": "bob", "total": 20}, timestamp=5, headers=[("h", b"1")])
    driver.pipe("orders", {"id": 2, "customer": "bob", "total": 5})
    (record,) = driver.read("shop.large")
    assert (record.raw_key, record.raw_value) == (b'"bob"', b'{"id":1,"customer":"bob","total":20.0}')
    assert (record.key, record.timestamp, record.headers) == ("bob", 5, [("h", b"1")])
    assert "to_table-3 (shop.large)" in app.describe()


def test_several_key_columns_and_the_key_of_records_without_any(tables: Tables) -> None:
    tables.add("shop.cities", "country STRING NOT NULL, city STRING NOT NULL DEFAULT 'Lyon'", key=("country", "city"))
    app = make_app(tables)
    lines = app.dataframe(tables.table("shop.lines"))
    lines.apply(lambda row: {"country": row["line"]}).to_table("shop.cities")
    lines.apply(lambda row: [row["line"], "Nice"]).to_table("shop.cities")
    tables.add("shop.copies", "line STRING")
    tables.add("shop.named", "line STRING")
    lines.to_table("shop.copies").to_table("shop.named", key=lambda row: row["line"])
    driver = TopologyTestDriver(app)
    driver.pipe_bytes("shop.lines", b'{"line":"FR"}', key=b"\xff")
    records = driver.read("shop.cities")
    assert [(record.raw_key, record.key) for record in records] == [
        (b'["FR","Lyon"]', ("FR", "Lyon")),
        (b'["FR","Nice"]', ("FR", "Nice")),
    ]
    assert [record.raw_key for topic in ("shop.copies", "shop.named") for record in driver.read(topic)] == [
        b"\xff",
        b"FR",
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"id": "x", "customer": "ann"}, "column 'id' (BIGINT) must be an integer"),
        ({"customer": "ann"}, "column 'id' is missing"),
        ({"id": 1, "customer": "ann", "more": 1}, "there is no column 'more'"),
        ({"id": 1, "customer": None}, "column 'customer' is in the key and must not be null"),
        (7, "a row must be a mapping, a list or a tuple, not int"),
        (None, "a row must be a mapping"),
    ],
)
def test_a_row_that_does_not_fit_is_a_record_that_cannot_be_produced(tables: Tables, row: Any, text: str) -> None:
    app = make_app(tables)
    app.dataframe(app.topic("in")).apply(lambda _: row).to_table("shop.large")
    with pytest.raises(ProducerError) as raised:
        TopologyTestDriver(app).pipe("in", 1)
    assert text in str(raised.value)
    assert "offset 0" in str(raised.value)

    app = make_app(tables, on_error={"produce": DeadLetters("letters")})
    app.dataframe(app.topic("in")).apply(lambda value: row if value == 1 else {"id": 1, "customer": "c"}).to_table(
        "shop.large"
    )
    driver = TopologyTestDriver(app)
    driver.pipe_all("in", [1, 2])
    assert len(driver.read("letters")) == len(driver.read("shop.large")) == 1


def key_unless_empty(key: Any, row: Any) -> Any:
    return key if row["line"] else None


def test_keys_for_a_table_without_key_columns(tables: Tables) -> None:
    app = make_app(tables)
    frame = app.dataframe(app.topic("in"))
    for key in (b"\xff", "é", 7, (1, "a"), object()):
        tables.add(f"shop.of_{type(key).__name__}", "line STRING")
        frame.to_table(f"shop.of_{type(key).__name__}", key=functools.partial(key_unless_empty, key))
    driver = TopologyTestDriver(app)
    driver.pipe_bytes("in", b'{"line":null}')
    with pytest.raises(ProducerError, match="a key of type object has no form in JSON"):
        driver.pipe_bytes("in", b'{"line":"a"}')
    keys = [[record.raw_key for record in driver.read(f"shop.of_{name}")] for name in ("bytes", "str", "int", "tuple")]
    assert keys == [[None, b"\xff"], [None, "é".encode()], [None, b"7"], [None, b'[1,"a"]']]


def test_refusals_say_what_to_do(tables: Tables) -> None:
    tables.add("shop.customers", "id BIGINT, PRIMARY KEY (id)")
    tables.add("shop.unknown", None)
    tables.add("city.rides", "id BIGINT", HTTPSSE("http://unused/"))
    app = make_app(tables)
    frame = app.dataframe(app.topic("in"))
    for call, error, text in (
        (lambda: frame.to_table("shop.unknown"), SchemaError, "has no schema"),
        (lambda: frame.to_table("city.rides"), InvalidOperationError, r"city.rides \(http-sse\) can be read alone"),
        (lambda: frame.to_table("shop.nowhere"), TableNotFoundError, "shop.nowhere"),
        (lambda: frame.to_table(7), ArgumentTypeError, "a Table or the name of one, got int"),  # type: ignore[call-overload]
        (
            lambda: frame.to_table("shop.large", key="id"),
            ArgumentValueError,
            "the key of table shop.large is its column",
        ),
        (lambda: frame.to_table("shop.large", key=str), ArgumentValueError, "got a function"),
        (
            lambda: frame.to_table("shop.lines", key=["line"]),
            ArgumentValueError,
            r"create the table with key=\['line'\]",
        ),
        (lambda: frame.to_table("shop.lines", key=7), ArgumentTypeError, "names of columns or a function, got int"),  # type: ignore[call-overload]
        (lambda: app.dataframe("shop.nowhere"), TableNotFoundError, "shop.nowhere"),
        (lambda: app.dataframe("orders"), ArgumentTypeError, "a table such as 'shop.orders'"),
        (lambda: app.dataframe("shop.unknown"), SchemaError, "has no schema"),
        (lambda: app.add_source(CollectionSource([1]), "shop.customers"), InvalidOperationError, "change_events=True"),
        (lambda: app.add_source(CollectionSource([1]), "city.rides"), InvalidOperationError, "an external table"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_a_source_into_a_table_gives_rows_with_the_key_of_their_columns(tables: Tables) -> None:
    app = make_app(tables)
    source = CollectionSource([{"id": 1, "customer": "ann"}, {"id": 2, "customer": "bob"}], "two")
    app.dataframe(topic="shop.orders", source=source)
    (process,) = definition_of(app).sources.processes
    assert process.topic.name == "orders"
    topic = pickle.loads(cloudpickle.dumps(process.topic))
    assert isinstance(topic, TableTopic)
    assert topic.table == "shop.orders"
    source.configure(topic, RecordingProducer())
    assert source.serialize(None, {"id": 3, "customer": "eve"}).key == b'"eve"'
    assert source.serialize("own", {"id": 3}).key == b'"own"'
    with pytest.raises(SerializationError, match="column 'id'"):
        source.serialize(None, {"customer": "x"})


def test_exactly_once_outputs_are_rows_too(tables: Tables) -> None:
    app = make_app(tables, processing_guarantee="exactly-once")
    app.dataframe("shop.orders").apply(lambda row: {"line": row["customer"]}).to_table("shop.lines")
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"id": 1, "customer": "ann"})
    assert [record.value for record in driver.read("shop.lines")] == [{"line": "ann"}]


def test_a_table_can_be_of_a_named_source(tables: Tables) -> None:
    tables.add("demo.ticks", "value BIGINT", SourceTable("RateSource", {"rate": 5}))
    tables.add("demo.wrong", "value BIGINT", SourceTable("RateSource", {"rows": 5}))
    tables.add("demo.none", "value BIGINT", SourceTable("NoSource"))
    app = make_app(tables)
    assert app.dataframe("demo.ticks").topics[0].name == "source__demo.ticks"
    with pytest.raises(
        ConfigurationError, match=r"the source RateSource of table demo\.wrong cannot be made of name, rows"
    ):
        app.dataframe("demo.wrong")
    with pytest.raises(ConfigurationError, match=r"which streamrt\.connectors does not"):
        app.dataframe("demo.none")


def test_a_queue_that_names_no_connection_uses_the_environment(tables: Tables) -> None:
    tables.add("ops.jobs", "id BIGINT", SQSQueue("jobs", fifo=True))
    app = make_app(tables)
    app.dataframe("shop.orders")[["id"]].to_table("ops.jobs")
    (sink,) = app.topology.sinks.values()
    assert (repr(sink), sink.table) == ("SQSSink('jobs.fifo')", "ops.jobs")  # type: ignore[attr-defined]


def test_plans_name_tables_and_usages_are_the_topology_s(tables: Tables) -> None:
    tables.add("city.rides", "id BIGINT", HTTPSSE("http://unused/"))
    tables.add("ops.jobs", "id BIGINT", SQSQueue("jobs"))
    app = make_app(tables)
    app.dataframe("city.rides").to_table("ops.jobs").to_topic(app.topic("out"))
    app.add_source(CollectionSource([{"line": "a"}], "lines"), "shop.lines")
    orders = app.dataframe("shop.orders")
    orders[["id", "customer", "total"]].to_table("shop.large")
    definition = definition_of(app)
    assert TableUsage.of(definition) == TableUsage(
        ("city.rides", "shop.orders"), ("ops.jobs", "shop.large", "shop.lines")
    )
    outline = Outline.of(definition, "unused:9092")
    assert {each.name: each.table for each in outline.topics if each.role != "source"} == {
        "source__city.rides": "city.rides",
        "out": None,
        "shop.lines": "shop.lines",
        "orders": "shop.orders",
        "shop.large": "shop.large",
    }
    assert any(line.startswith("sink of table ops.jobs: each value at least once") for line in outline.guarantees)


def test_a_run_tells_the_catalogue_what_it_uses_and_needs_no_right_to(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    app = make_app(tables)
    app.dataframe("shop.orders")
    with app._tables.noting_usage():
        pass
    assert tables.recorded == [("shop", ("shop.orders",), ())]
    tables.refusal = CatalogError("topic authorization failed")
    with app._tables.noting_usage():
        pass
    assert (
        "does not learn which tables the application shop uses: topic authorization failed" in capsys.readouterr().err
    )
    other = make_app(Tables())
    other.dataframe(other.topic("in"))
    with other._tables.noting_usage():
        assert not any(thread.name == "streamrt-usage" for thread in threading.enumerate())


def test_raw_tables_need_no_schema() -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    for name in ("raw", "copies"):
        catalog.create_table(name, format="raw")
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    app.dataframe("default.raw").to_table("default.copies")
    driver = TopologyTestDriver(app)
    driver.pipe_bytes("default.raw", b"\xff")
    assert [(record.raw_value, record.value) for record in driver.read("default.copies")] == [
        (b"\xff", {"value": b"\xff"})
    ]


@pytest.mark.rows("DK-071")
def test_copies_of_tables(tables: Tables) -> None:
    app = make_app(tables)
    orders, large = tables.table("shop.orders"), tables.table("shop.large")
    with pytest.raises(
        SchemaError, match=r"table shop\.large has no column 'at': name the columns to copy with --column"
    ):
        define_copy(app, orders, large)
    with pytest.raises(SchemaError, match=r"table shop\.orders has no column 'more'$"):
        define_copy(app, orders, large, ["more"])
    define_copy(app, orders, large, ["id", "customer"])
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"id": 1, "customer": "ann", "total": 5})
    assert [record.value for record in driver.read("shop.large")] == [{"id": 1, "customer": "ann", "total": None}]
