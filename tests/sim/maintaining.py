"""Maintained tables, for the simulator: several writers send requests, and what rows these make, one after the other."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import orjson

from streamrt import Application
from streamrt.dataframe import StreamingDataFrame
from streamrt.tables import Aggregate, Catalog, SequenceGroups, Versioned
from tests.sim.broker import Entry

MAINTAINED = ("merged", "newest", "grouped", "summed", "expiring")
"""Tables by the rule that they are about."""
REPEATABLE = ("merged", "newest", "grouped")
"""Those whose rows do not change if requests are merged again."""
TTL_MS = 60
_FUTURE_MS = 10**10
"""Added to the times of requests for rows that expire: the clock of the simulator, which expires them as well, is behind."""

Row = dict[str, Any]
Rows = dict[Any, Row]
"""Rows by key."""


class Request(NamedTuple):
    """A request: key, columns (None for a delete), and time."""

    key: str
    columns: Row | None
    at: int


def create_maintained(catalog: Catalog) -> None:
    """Create the tables."""
    columns = "k STRING, n BIGINT, m BIGINT, PRIMARY KEY (k)"
    catalog.create_table("sim.merged", columns, maintained=True)
    catalog.create_table("sim.newest", columns, merge=Versioned("n"))
    catalog.create_table("sim.summed", columns, merge=Aggregate(n="sum", m="max"))
    catalog.create_table("sim.expiring", columns, ttl=timedelta(milliseconds=TTL_MS))
    groups = "k STRING, s BIGINT, n BIGINT, t BIGINT, m BIGINT, PRIMARY KEY (k)"
    catalog.create_table("sim.grouped", groups, merge=SequenceGroups({"s": ["n"], "t": ["m"]}))


def is_whole(value: Row) -> bool:
    """Return whether a record is a request of a whole row, or to delete it; others are of one column."""
    return bool(value["u"] % 5 in (0, 4))


def whole_row(value: Row, key: str, timestamp: int, headers: Any) -> Row | None:
    """Return a row, or None to delete it."""
    return {"k": key, "n": value["u"] % 3, "m": value["u"] % 4} if value["u"] % 5 == 0 else None


def first_column(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row with one column."""
    return {"k": key, "n": value["u"] % 3}


def second_column(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row with another column."""
    return {"k": key, "m": value["u"] % 4}


def versioned_row(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row whose version may be older than that of a former one."""
    return {"k": key, "n": value["u"] * 7 % 13, "m": value["u"] % 4}


def first_group(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row with one group of columns, whose sequence may be older than that of a former one."""
    return {"k": key, "s": value["u"] * 7 % 13, "n": value["u"] % 3}


def second_group(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row with another group, which has a sequence of its own."""
    return {"k": key, "t": value["u"] * 5 % 11, "m": value["u"] % 4}


def both_groups(value: Row, key: str, timestamp: int, headers: Any) -> Row:
    """Return a row with both groups."""
    return first_group(value, key, timestamp, headers) | second_group(value, key, timestamp, headers)


def write_requests(app: Application, kind: str) -> None:
    """Send requests of several writers, or of rows with versions."""
    records: StreamingDataFrame = app.dataframe(app.topic("in", key_deserializer="str"))
    table = f"sim.{kind}"
    if kind == "newest":
        records.apply(versioned_row, metadata=True).to_table(table)
        return
    if kind == "expiring":
        records = records.set_timestamp(lambda value, key, timestamp, headers: timestamp + _FUTURE_MS)
    parts: list[tuple[Callable[..., Row], list[str]]] = [(first_column, ["n"]), (second_column, ["m"])]
    whole: Callable[..., Row | None] = whole_row
    if kind == "grouped":
        whole, parts = both_groups, [(first_group, ["s", "n"]), (second_group, ["t", "m"])]
    records.filter(is_whole).apply(whole, metadata=True).to_table(table)
    for (make_row, columns), rest in zip(parts, ((1, 2), (3,)), strict=True):
        chosen = records.filter(lambda value, rest=rest: value["u"] % 5 in rest)
        chosen.apply(make_row, metadata=True).to_table(table, columns=columns)


def read_request(entry: Entry) -> Request:
    """Return the request of a record."""
    return Request(orjson.loads(entry.key or b""), orjson.loads(entry.value or b"null"), entry.timestamp)


def make_rows(kind: str, requests: Iterable[Request]) -> tuple[Rows, Rows]:
    """Return the rows that requests make, one after the other.

    Returns:
        The rows; and those that are too old, which may be there until they are deleted.
    """
    rows: Rows = {}
    written: dict[str, int] = {}
    now = 0
    for key, columns, at in requests:
        now = max(now, at)
        if kind == "expiring" and key in rows and written[key] + TTL_MS <= now:
            del rows[key]
        before = rows.get(key)
        after = _merge(kind, before, columns)
        if after is None:
            rows.pop(key, None)
        elif columns is not None:
            rows[key], written[key] = after | {"k": key}, now
    old = {key for key in rows if kind == "expiring" and written[key] + TTL_MS <= now}
    return {key: row for key, row in rows.items() if key not in old}, {key: rows[key] for key in old}


def _merge(kind: str, before: Row | None, columns: Row | None) -> Row | None:
    """Return the row after a request."""
    if columns is None:
        return None if kind in ("merged", "expiring") else before
    if kind == "newest":
        return columns if before is None or columns["n"] >= before["n"] else before
    if kind == "grouped":
        row = before or dict.fromkeys(("k", "s", "n", "t", "m"))
        for sequence, column in (("s", "n"), ("t", "m")):
            if sequence in columns and (row[sequence] is None or columns[sequence] >= row[sequence]):
                row = row | {sequence: columns[sequence], column: columns[column]}
        return row
    row = before or dict.fromkeys(("k", "n", "m"))
    if kind == "summed":
        both = {name: [each for each in (row[name], columns.get(name)) if each is not None] for name in ("n", "m")}
        return row | {"n": sum(both["n"]) if both["n"] else None, "m": max(both["m"], default=None)}
    return row | columns
