"""Applications with SQL over tables in memory, and the rows that they have in the end."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from streamrt import Application
from streamrt.dataframe import StreamingDataFrame
from streamrt.relations import ExactDeserializer, ExactSerializer
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver

__all__ = ["TABLES", "Input", "make_app", "rows_of"]

TABLES = (
    "CREATE TABLE items (k BIGINT NOT NULL, a BIGINT, b BIGINT NOT NULL, c STRING, PRIMARY KEY (k)) WITH ('partitions' = 2)",
    "CREATE TABLE others (k BIGINT NOT NULL, a BIGINT, d STRING, PRIMARY KEY (k)) WITH ('partitions' = '2')",
    "CREATE TABLE customers (id STRING NOT NULL, name STRING, PRIMARY KEY (id))",
    "CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT, tags ARRAY<STRING>, at TIMESTAMP) WITH ('time' = 'at')",
    "CREATE TABLE parcels (id BIGINT NOT NULL, order_id BIGINT, at TIMESTAMP NOT NULL) WITH ('time' = 'at')",
)

Input = tuple[str, Any, dict[str, Any] | None]
"""Table, key, and row; a stream has no key, and its row the time `at` in seconds."""


def make_app(tables: Sequence[str] = TABLES, **settings: Any) -> Application:
    """Return an application with some tables in memory."""
    catalog = Catalog(store=MemoryCatalog())
    for table in tables:
        catalog.execute(table)
    return Application("unused:9092", consumer_group="views", catalog=catalog, **settings)


def rows_of(
    sql: str,
    inputs: Sequence[Input],
    *,
    chunk: int = 2,
    app: Application | None = None,
    end: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return the rows of a query after some inputs, sorted by their text.

    Args:
        sql: the query, or a program with one view.
        inputs: what arrives.
        chunk: inputs of one commit.
        app: the application; one with `TABLES` by default.
        end: whether the inputs end, so that all windows close.
        options: arguments of `Application.sql`.
    """
    app = app or make_app(processing_guarantee="exactly-once")
    frame = app.sql(sql, **options)
    if not hasattr(frame, "_branch"):
        (frame,) = frame.values()
    is_stream = isinstance(frame, StreamingDataFrame)
    exact = {"value_serializer": ExactSerializer(), "value_deserializer": ExactDeserializer()}
    output = app.topic("out", key_serializer=ExactSerializer(), **exact)  # type: ignore[arg-type]
    (frame if is_stream else frame.to_stream("both")).to_topic(output)
    driver = TopologyTestDriver(app)
    try:
        driver.pipe_many(
            (_to_record(each) for each in inputs if f"default.{each[0]}" in app.topology.sources), chunk=chunk
        )
        if end:
            driver.end()
        values = [record.value for record in driver.read("out")]
    finally:
        driver.close()
    if is_stream:
        return sorted(values, key=repr)
    return _present_rows(values)


def _to_record(given: Input) -> InputRecord:
    table, key, row = f"default.{given[0]}", *given[1:]
    if row is None or "at" not in row:
        return InputRecord(table, row, key=key)
    seconds = row["at"]
    time = f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}"
    return InputRecord(table, {**row, "at": time}, key=key, timestamp=1767225600000 + seconds * 1000)


def _present_rows(changes: Sequence[Any]) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    rows: dict[str, Any] = {}
    for change in changes:
        for row, sign in ((change["before"], -1), (change["after"], 1)):
            if row is not None:
                rows[repr(row)] = row
                counts[repr(row)] += sign
    assert min(counts.values(), default=0) >= 0
    return [rows[text] for text in sorted(counts) for _ in range(counts[text])]
