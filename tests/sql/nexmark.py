"""Nexmark's queries by SQL, over the events of the example `nexmark`, out of order: DuckDB answers `examples/nexmark.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from streamrt.schema import Schema
from tests.nexmark import Answers as Reference
from tests.nexmark import nexmark
from tests.sql.suites import Answers, Query, Suite
from tests.sql.tpch import read_queries
from tests.sql.worlds import Change

__all__ = ["SCHEMAS", "make_changes", "make_suite", "read_texts"]

SCHEMAS = {
    "persons": Schema(
        "id BIGINT NOT NULL, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
        "date_time TIMESTAMP, extra STRING",
        time="date_time",
    ),
    "auctions": Schema(
        "id BIGINT NOT NULL, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP, "
        "seller BIGINT, category BIGINT, date_time TIMESTAMP, extra STRING",
        time="date_time",
    ),
    "bids": Schema(
        "auction BIGINT NOT NULL, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING",
        time="date_time",
    ),
    "side_input": Schema("key BIGINT NOT NULL, value STRING, PRIMARY KEY (key)"),
}
_EPOCH = datetime(1970, 1, 1)
_CLOSING = ("q11",)
"""Sessions give their rows when they are over."""


def make_suite(events: int, chunks: int, seed: int = 1) -> Suite:
    """Return the suite over some events, which come in chunks in the order of their arrival."""
    made = nexmark.make_events(events, seed)
    size = -(-len(made) // chunks)
    parts = [made[start : start + size] for start in range(0, len(made), size)]
    changes = [make_changes(part) for part in parts]
    changes[0][:0] = [
        Change("side_input", key, {"key": key, "value": value}) for key, value in nexmark.SIDE_INPUT.items()
    ]
    queries = [Query(name, text, closes=name in _CLOSING) for name, text in read_texts().items()]

    def answer(asked: Sequence[Query]) -> Answers:
        answers: Answers = {query.name: [] for query in asked}
        for number in range(len(parts)):
            until = Reference([event for part in parts[: number + 1] for event in part])
            for query in asked:
                rows = answers[query.name]
                assert isinstance(rows, list)
                rows.append([tuple(row.values()) for row in until.rows(query.name)])
        return answers

    return Suite(f"Nexmark, {events} events", SCHEMAS, queries, changes, answer, _to_milliseconds)


def read_texts() -> dict[str, str]:
    """Return the queries by their names."""
    return read_queries(Path(__file__).with_name("nexmark.sql").read_text(encoding="utf-8"))


def make_changes(events: Sequence[Any]) -> list[Change]:
    """Return the rows of events."""
    return [Change(event.kind, None, _with_times(event.value), event.timestamp) for event in events]


def _with_times(value: dict[str, Any]) -> dict[str, Any]:
    times = {name: _EPOCH + timedelta(milliseconds=value[name]) for name in ("date_time", "expires") if name in value}
    return value | times


def _to_milliseconds(value: Any) -> Any:
    """Return a value of a view as DuckDB has it here, where times are milliseconds."""
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
