"""Tables that are everywhere: lookups of their rows by any value of a record."""

import pickle
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    ProcessingError,
    RunnerError,
    StaleTokenError,
    StreamRTError,
    TopicNotFoundError,
)
from streamrt.joins import SQLiteLookupField, TableField
from streamrt.kafka import ConnectionConfig, KafkaRequestError
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.secret import collect_secrets
from streamrt.state import MemoryStore
from streamrt.tables import Table
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.testing import TopologyTestDriver
from tests.unit.table_homes import Tables


@pytest.fixture
def tables() -> Any:
    made = Tables()
    made.add("ref.countries", "code STRING, name STRING, PRIMARY KEY (code)", num_partitions=2)
    made.add("ref.cities", "country STRING, city STRING, n BIGINT, PRIMARY KEY (country, city)")
    made.add("ref.log", "code STRING")
    return made


def define(tables: Any) -> Application:
    return Application("unused:9092", consumer_group="shop", catalog=tables)


@pytest.mark.rows("FL-177")
@pytest.mark.usefixtures("processing_mode")
def test_rows_are_found_by_any_value(tables: Any) -> None:
    app = define(tables)
    sdf = app.dataframe(app.topic("in"))
    countries, cities = (app.table(f"ref.{name}", everywhere=True) for name in ("countries", "cities"))
    fields = {"name": TableField("name", default="?"), "part": TableField(["name"]), "row": TableField()}
    sdf.join_lookup(countries, fields, on="code")
    sdf.join_lookup(cities, {"n": TableField("n", default=0)}, on=lambda value, key: (value["code"], value["city"]))
    sdf.to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.table("ref.countries").upsert([{"code": "FR", "name": "France"}])
    driver.table("ref.cities").upsert([["FR", "Lyon", 5]])
    driver.pipe("in", {"code": "FR", "city": "Lyon"})
    driver.pipe("in", {"code": None, "city": "Lyon"})
    driver.table("ref.countries").upsert([{"code": "FR", "name": "Frankreich"}])
    driver.pipe("in", {"code": "FR", "city": "Nice"})
    driver.table("ref.countries").delete(["FR"])
    driver.pipe("in", {"code": "FR", "city": "Nice"})
    found = [
        (value["name"], value["part"], value["row"], value["n"]) for value in (r.value for r in driver.read("out"))
    ]
    assert found == [
        ("France", {"name": "France"}, {"code": "FR", "name": "France"}, 5),
        ("?", None, None, 0),
        ("Frankreich", {"name": "Frankreich"}, {"code": "FR", "name": "Frankreich"}, 0),
        ("?", None, None, 0),
    ]
    assert TableUsage.of(definition_of(app)).reads == ("ref.cities", "ref.countries")
    driver.close()


def test_a_value_that_is_no_key_of_the_table_is_an_error_of_the_record(tables: Any) -> None:
    app = define(tables)
    sdf = app.dataframe(app.topic("in"))
    sdf.join_lookup(app.table("ref.countries", everywhere=True), {"name": TableField("name")}, on="code")
    driver = TopologyTestDriver(app)
    with pytest.raises(ProcessingError, match="code"):
        driver.pipe("in", {"code": 5})
    driver.close()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KafkaRequestError("the table says so"), RunnerError),
        (TopicNotFoundError("the table says so"), RunnerError),
        (StaleTokenError("the table says so"), StaleTokenError),
    ],
    ids=lambda each: type(each).__name__,
)
def test_no_callback_skips_records_for_the_faults_of_a_table(
    tables: Any, monkeypatch: pytest.MonkeyPatch, error: StreamRTError, raised: type[StreamRTError]
) -> None:
    app = Application("unused:9092", consumer_group="shop", catalog=tables, on_processing_error=lambda *_: True)
    sdf = app.dataframe(app.topic("in"))
    sdf.join_lookup(app.table("ref.countries", everywhere=True), {"name": TableField("name")}, on="code")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Table, "get", fail)
    driver = TopologyTestDriver(app)
    with pytest.raises(raised, match="the table says so"):
        driver.pipe("in", {"code": "FR"})
    driver.close()


def test_what_is_refused(tables: Any) -> None:
    app = define(tables)
    sdf = app.dataframe(app.topic("in"))
    countries = app.table("ref.countries", everywhere=True)
    for call, kind, text in (
        (lambda: app.table("ref.log", everywhere=True), InvalidOperationError, "primary key"),
        (lambda: app.table(5, everywhere=True), ArgumentTypeError, "needs a table with a primary key"),  # type: ignore[call-overload]
        (
            lambda: app.table("ref.countries", everywhere=True, store_type=MemoryStore),  # type: ignore[call-overload]
            ArgumentValueError,
            "in no store",
        ),
        (lambda: sdf.join_lookup(countries, {"x": TableField("nome")}), ArgumentValueError, "no column 'nome'"),
        (
            lambda: sdf.join_lookup(countries, {"x": SQLiteLookupField("t", ["a"], on="b")}),
            ArgumentTypeError,
            "needs a TableField",
        ),
        (lambda: sdf.join(countries), ArgumentTypeError, "leave everywhere=True out"),  # type: ignore[arg-type]
        (lambda: sdf.join_asof(countries), ArgumentTypeError, "leave everywhere=True out"),  # type: ignore[arg-type]
        (lambda: app.table("ref.countries").join(countries), ArgumentTypeError, "leave everywhere=True out"),  # type: ignore[arg-type]
        (lambda: countries.filter(len), AttributeError, "no 'filter': .* leave everywhere=True out"),
        (lambda: countries["name"], InvalidOperationError, "leave everywhere=True out"),
        (lambda: TableField([]), ArgumentTypeError, "names of columns"),
        (lambda: pickle.loads(pickle.dumps(countries)).table.get("FR"), ConfigurationError, "a catalogue on Kafka"),
    ):
        with pytest.raises(kind, match=text):
            call()


def test_tasks_get_the_connection_as_a_secret(tables: Any) -> None:
    connection = ConnectionConfig(
        bootstrap_servers="unused:9092", security_protocol="SASL_PLAINTEXT", sasl_password="sesame-9"
    )
    tables.links = KafkaLinks(connection)
    lookup = define(tables).table("ref.countries", everywhere=True)
    with collect_secrets() as collected:
        data = pickle.dumps(lookup)
    assert b"sesame-9" not in data
    assert any("sesame-9" in secret for secret in collected.values())
    received = pickle.loads(pickle.dumps(pickle.loads(data)))
    assert received.table.home.links.connection == connection
