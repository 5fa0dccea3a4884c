"""Nexmark's events and answers for tests: the example `nexmark`, DuckDB over its events, and rows to compare."""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import duckdb
import orjson
import pandas as pd

from streamrt.kafka.partitioner import partition_for
from streamrt.testing import InputRecord
from tests.example_programs import load

__all__ = ["Answers", "inputs", "nexmark", "results_of", "rows_of"]

nexmark: ModuleType = load("nexmark")


TABLES = {
    name for name, query in nexmark.QUERIES.items() if inspect.signature(query).return_annotation == nexmark.Table
}
"""The queries whose rows change."""


class Answers:
    """The answers of the queries over some events.

    Args:
        events: the events, as `make_events` returns them.
    """

    def __init__(self, events: Iterable[Any]) -> None:
        self._connection = duckdb.connect()
        for kind in ("persons", "auctions", "bids"):
            rows = [event.value | arrival_of(event) for event in events if event.kind == kind]
            self._add(kind, pd.DataFrame(rows))
        self._add("side_input", pd.DataFrame(list(nexmark.SIDE_INPUT.items()), columns=["key", "value"]))

    def _add(self, table: str, rows: pd.DataFrame) -> None:
        self._connection.register("rows", rows)
        self._connection.execute(f"CREATE TABLE {table} AS SELECT * FROM rows")
        self._connection.unregister("rows")

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        found = self._connection.execute(nexmark.read_sql(query))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def arrival_of(event: Any) -> dict[str, int]:
    """Return the column that only the table of bids has in addition: when an event has arrived."""
    return {"arrived": event.arrived} if event.kind == "bids" else {}


def inputs(events: Iterable[Any]) -> Iterator[InputRecord]:
    """Yield events as records of the partitions where a producer puts them."""
    for event in events:
        partition = partition_for(orjson.dumps(event.key), nexmark.CONFIG.num_partitions)
        yield InputRecord(nexmark.PREFIX + event.kind, event.value, event.key, event.timestamp, partition=partition)


def rows_of(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> "Counter[tuple[Any, ...]]":
    """Return rows as a multiset; each must have exactly these columns."""
    names = tuple(columns)
    return Counter(
        tuple(row.get(name, _MISSING) for name in (*names, *sorted(row.keys() - set(names)))) for row in rows
    )


_MISSING = "a column that is missing"


def results_of(query: str, outputs: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Return the rows that a query has at the end, from the keys and values that it has put out.

    Those of a table are the last ones of each key.
    """
    found = [*outputs]
    return [value for _, value in (dict(found).items() if query in TABLES else found) if value is not None]
