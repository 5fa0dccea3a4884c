"""Queries of present rows by DuckDB and by Spark, over the same tables on Kafka: equal rows, columns, offsets and errors."""

import datetime as dt
import math
import threading
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest

from streamrt.errors import (
    ArgumentValueError,
    ConfigurationError,
    QueryError,
    QueryTimeoutError,
    ResultTooLargeError,
    SerializationError,
)
from streamrt.kafka.java_options import java_client_options
from streamrt.spark.queries import query_session
from streamrt.spark.queries.query_session import QuerySession
from streamrt.spark.sessions.spark_session import create_spark_session, open_environment
from streamrt.sql.queries.catalog_queries import home_of
from streamrt.sql.queries.checked_query import CheckedQuery, QueryLimits
from streamrt.sql.reading import parse_query
from streamrt.tables import Catalog
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.catalogue.query_engine import Engine
from streamrt.testing.plugin import KafkaBroker
from tests.support import LONG, MASTER, Kafka, unique

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

UTC = dt.timezone.utc
_PATIENCE_S = 300.0
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456)
VALUES = [0.0, -0.0, math.nan, math.inf, -2.5, None]


@pytest.fixture(scope="module")
def catalog(kafka_broker: KafkaBroker) -> Iterator[Catalog]:
    create_spark_session(MASTER)
    with Catalog(kafka_broker.bootstrap_servers) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def database(catalog: Catalog) -> Iterator[str]:
    name = unique("engines").replace("-", "_")
    catalog.create_database(name)
    catalog.execute(
        f"CREATE TABLE {name}.orders (id INT, customer STRING, amount DECIMAL(10, 2), score DOUBLE, at TIMESTAMP, "
        "seen TIMESTAMP_LTZ, day DATE, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>, "
        "counts MAP<STRING, INT>, raw BINARY, ok BOOLEAN) WITH ('partitions' = '3', 'format' = 'avro')"
    )
    catalog.table(f"{name}.orders").append([_make_order(number) for number in range(60)])
    customers = catalog.create_table(
        f"{name}.customers", "name STRING, city STRING, born INT, PRIMARY KEY (name)", num_partitions=3
    )
    customers.upsert([[f"c{number}", "Rome", 1980 + number] for number in range(8)])
    customers.upsert([[f"c{number}", "Lyon", 1980 + number] for number in range(3)])
    customers.delete(["c3", "c7"])
    catalog.create_table(f"{name}.empty", "id INT, name STRING", num_partitions=2)
    yield name
    catalog.drop_database(name, cascade=True, delete_data=True)


def _make_order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": None if number % 11 == 0 else f"c{number % 7}",
        "amount": Decimal(number * 37 % 1000) / 100,
        "score": VALUES[number % 6],
        "at": NOON + dt.timedelta(hours=number),
        "seen": (NOON + dt.timedelta(minutes=number)).replace(tzinfo=UTC),
        "day": dt.date(2024, 2, 20) + dt.timedelta(days=number % 13),
        "tags": [None, "x", f"t{number % 4}"][: number % 4] if number % 5 else None,
        "place": {"city": f"p{number % 3}", "zip": None if number % 4 == 0 else number},
        "counts": {"a": number % 3, "b": None},
        "raw": bytes([number, 0, 255]) if number % 6 else None,
        "ok": [True, False, None][number % 3],
    }


QUERIES = (Path(__file__).parent / "query_engines.txt").read_text().splitlines()


def _ask_both(catalog: Catalog, sql: str, args: dict[str, Any] | None = None) -> list[Any]:
    duckdb = catalog.query(sql, args).to_arrow()
    spark = catalog.query(sql, args, engine="spark", timeout=_PATIENCE_S).to_arrow()
    assert spark.schema == duckdb.schema
    return [list(map(_plain, each.to_pylist(maps_as_pydicts="strict"))) for each in (spark, duckdb)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    # With the sign of zero; NaN equals itself.
    return {name: repr(value) if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.parametrize("sql", QUERIES if LONG else QUERIES[::3])
def test_both_engines_give_equal_rows(catalog: Catalog, database: str, sql: str) -> None:
    spark, duckdb = _ask_both(catalog, sql.format(database))
    assert spark == duckdb


def test_both_engines_read_up_to_the_same_offsets(catalog: Catalog, database: str) -> None:
    who = unique("late")
    written = catalog.table(f"{database}.orders").append([{"id": 1_000, "customer": who}])
    sql, args = f"SELECT count(*) AS n FROM {database}.orders WHERE customer = :who", {"who": who}
    results = [
        catalog.query(sql, args, engine=engine, timeout=_PATIENCE_S, after=written) for engine in get_args(Engine)
    ]
    assert results[0].offsets == results[1].offsets
    later = catalog.table(f"{database}.orders").append([{"id": 1_001, "customer": who}])
    assert [each.one() for each in results] == [{"n": 1}, {"n": 1}]
    # Again, up to the same offsets; another query sees the later row.
    assert results[1].one() == {"n": 1}
    assert catalog.query(sql, args, engine="spark", timeout=_PATIENCE_S, after=later).one() == {"n": 2}
    with pytest.raises(ArgumentValueError, match="no table in the query"):
        catalog.query(
            f"SELECT count(*) AS n FROM {database}.customers", engine="spark", timeout=_PATIENCE_S, after=later
        )


def test_records_of_open_and_aborted_transactions_are_not_read(
    catalog: Catalog, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tasks begin and end within transactions.
    monkeypatch.setattr(query_session, "_RECORDS_PER_TASK", 2)
    table = catalog.create_table(f"{database}.logged", "id BIGINT", num_partitions=1)
    sql = f"SELECT collect_list(id) AS ids FROM (SELECT id FROM {database}.logged ORDER BY id)"
    writer = table.writer(id="loader")
    writer.append_rows([[number] for number in range(5)])
    writer.checkpoint("five")
    writer.append_rows([[98], [99]])
    writer.flush()
    assert _ask_both(catalog, sql) == [[{"ids": [0, 1, 2, 3, 4]}]] * 2
    writer.close(failed=True)
    with table.writer(id="loader") as following:
        following.append([5])
        following.checkpoint("six")
    assert _ask_both(catalog, sql) == [[{"ids": [0, 1, 2, 3, 4, 5]}]] * 2


def test_records_that_are_no_rows_end_both_engines_alike(kafka: Kafka, catalog: Catalog, database: str) -> None:
    table = catalog.create_table(f"{database}.broken", "id BIGINT, PRIMARY KEY (id)", num_partitions=1)
    table.upsert([[1]])
    kafka.produce(str(table.info.topic), [b"{"], key=b"2", raw=True)
    errors = []
    for engine in get_args(Engine):
        with pytest.raises(SerializationError) as raised:
            catalog.query(f"SELECT count(id) AS n FROM {database}.broken", engine=engine, timeout=_PATIENCE_S).one()
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    assert "at offset 1" in errors[1]


def test_values_that_cannot_be_computed_end_a_query(catalog: Catalog, database: str) -> None:
    with pytest.raises(QueryError, match="division by zero"):
        catalog.query(
            f"SELECT 1 div (id - 5) AS x FROM {database}.orders", engine="spark", timeout=_PATIENCE_S
        ).to_arrow()


def test_limits_end_a_query(catalog: Catalog, database: str) -> None:
    every = f"SELECT id FROM {database}.orders"
    assert catalog.query(every, engine="spark", timeout=_PATIENCE_S, limit=7).to_arrow().num_rows == 7
    assert list(catalog.query(every, engine="spark", timeout=_PATIENCE_S, limit=0)) == []
    with pytest.raises(ResultTooLargeError, match="more than 100 bytes"):
        catalog.query(every, engine="spark", timeout=_PATIENCE_S, max_scan_bytes=100).to_arrow()
    tables = ", ".join(f"{database}.orders t{number}" for number in range(7))
    endless = f"SELECT count(*) AS n FROM {tables} WHERE t1.id + t2.id * t3.id - t4.id = t5.id * t6.id"
    with pytest.raises(QueryTimeoutError, match="did not end in 3 s"):
        catalog.query(endless, engine="spark", timeout=3).one()
    result = catalog.query(endless, engine="spark", timeout=_PATIENCE_S)
    is_over = threading.Event()

    def cancel() -> None:
        while not is_over.wait(0.2):
            result.cancel()

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(QueryError, match="cancelled"):
        result.one()
    is_over.set()


def test_rows_come_batch_by_batch(catalog: Catalog, database: str) -> None:
    batches = catalog.query(f"SELECT id FROM {database}.orders", engine="spark", timeout=_PATIENCE_S).batches()
    assert next(batches).num_rows > 0
    batches.close()


def test_plans_have_names_of_views_and_no_secrets(catalog: Catalog, database: str) -> None:
    sql = f"SELECT city FROM {database}.customers WHERE name = 'c1'"
    explained = catalog.query(sql, engine="spark", timeout=_PATIENCE_S).explain()
    assert f"s1 = {database}.customers (name, city; only the keys of WHERE)" in explained
    assert "FROM `q" in explained
    query = CheckedQuery(home_of(catalog), parse_query(sql), QueryLimits())
    environment = open_environment()
    assert environment is not None
    assert isinstance(catalog.links, KafkaLinks)
    options = {**java_client_options(catalog.links.connection).java, "ssl.key.password": "open-sesame"}
    assert query.offsets
    with closing(QuerySession(environment, options)) as session:
        session.create_view("v", query.sources["s1"], ["name", "city"])
        plan = session.explain("SELECT city FROM v")
    assert "kafka" in plan.lower()
    assert "open-sesame" not in plan


def test_an_application_asks_its_own_spark(kafka: Kafka, catalog: Catalog, database: str) -> None:
    app = kafka.app()
    app.sql(f"CREATE VIEW big AS SELECT id, amount FROM {database}.orders WHERE amount > 9")
    expected = app.query("SELECT count(*) AS n, sum(b.amount) AS total FROM big b").one()
    assert (
        app.query("SELECT count(*) AS n, sum(b.amount) AS total FROM big b", engine="spark", timeout=_PATIENCE_S).one()
        == expected
    )
    app.dataframe(app.topic(kafka.topic())).update(print)
    app.start()
    try:
        # The query takes turns with micro-batches.
        assert (
            app.query(
                "SELECT count(*) AS n, sum(b.amount) AS total FROM big b", engine="spark", timeout=_PATIENCE_S
            ).one()
            == expected
        )
    finally:
        app.stop(wait=True)
    resident = kafka.app(processing_mode="resident", spark_master="processes[1]")
    with pytest.raises(ConfigurationError, match="starts no Spark"):
        resident.query(f"SELECT id FROM {database}.orders", engine="spark", timeout=_PATIENCE_S)
