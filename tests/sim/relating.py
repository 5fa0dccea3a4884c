"""Two tables, their join, and an aggregate of its rows for the simulator, and what they are over the present rows.

Records of both topics are rows by key; some delete their row, and many repeat the row that is there. Each change of the join
is an output, and the joined rows are counted and summed by group behind an exchange.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streamrt import Application
from streamrt.relations.change import encode_row
from streamrt.state.layout import BYTES_KEY, record_prefix
from streamrt.windows import Count, Max, Sum
from tests.sim.broker import Entry

GROUPS = "repartition__sim--in--other--g"
"""The topic of the joined rows by group."""
JOINED, TOTALS = "out", "grouped"
KINDS = ("inner", "left", "right", "outer")
Pair = tuple[bytes, dict[str, Any]]


def row_of(value: dict[str, Any], key: Any, timestamp: int, headers: Any) -> dict[str, Any] | None:
    """Return the row that a record has, or None if it deletes it. Few different ones, so that rows repeat."""
    unique = value["u"]
    return None if unique % 4 == 3 else {"k": key.decode(), "g": value["g"], "n": unique % 2}


def merge_rows(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """Return the joined row."""
    row = right if left is None else left
    assert row is not None
    one, two = 0 if left is None else 1 + left["n"], 0 if right is None else 3 + right["n"]
    return {"k": row["k"], "g": row["g"], "number": 10 * one + two}


def declare_tables(app: Application, how: Any, *, rows_in_groups: bool) -> Application:
    """Declare what the simulator runs.

    Args:
        app: the application.
        how: the kind of the join.
        rows_in_groups: whether totals are those of the present joined rows, and not of all that there ever were.
    """
    left, right = (
        app.dataframe(app.topic(topic)).apply(row_of, metadata=True).as_table(name)
        for topic, name in (("in", "left"), ("other", "right"))
    )
    joined = left.join(right, how=how, on_merge=merge_rows)
    joined.to_stream("both").to_topic(app.topic(JOINED))
    aggregates: Any = {"n": Count(), "sum": Sum("number"), "most": Max("number")}
    if rows_in_groups:
        totals: Any = joined.group_by("g").agg(**aggregates)
    else:
        totals = joined.to_stream().filter(lambda row: row is not None).group_by("g").agg(**aggregates)
    totals.to_stream("both").to_topic(app.topic(TOTALS, key_serializer="json"))
    return app


@dataclass
class TablesModel:
    """The present rows of both tables, with their times, and the join computed from them each time.

    Args:
        how: the kind of the join.
    """

    how: str
    left: dict[bytes, tuple[dict[str, Any], int]] = field(default_factory=dict)
    right: dict[bytes, tuple[dict[str, Any], int]] = field(default_factory=dict)

    def run(self, records: Iterable[tuple[str, Entry]]) -> list[Pair]:
        """Take records with their topics; return keys and values of the changes of the join."""
        changes = []
        for topic, record in records:
            key, rows = record.key or b"", self.left if topic == "in" else self.right
            former = self.joined().get(key)
            row = row_of(orjson.loads(record.value or b"null"), key, record.timestamp, None)
            if row is None:
                rows.pop(key, None)
            elif rows.get(key, (None, 0))[0] != row:
                rows[key] = row, record.timestamp
            if (present := self.joined().get(key)) != former:
                changes.append((key, change_of(former, present)))
        return changes

    def joined(self) -> dict[bytes, dict[str, Any]]:
        """Return the rows of the join."""
        left, right = self.left.keys(), self.right.keys()
        keys = {"inner": left & right, "left": left, "right": right, "outer": left | right}[self.how]
        missing = (None, 0)
        return {key: merge_rows(self.left.get(key, missing)[0], self.right.get(key, missing)[0]) for key in keys}

    def dump(self, store: str) -> dict[bytes, bytes]:
        """Return what is in a store, by its keys."""
        tables: Mapping[str, Any] = {
            "table_left": {"row": self.left},
            "table_right": {"row": self.right},
            "join": {"left": self.left, "right": self.right},
        }
        return {
            record_prefix(BYTES_KEY, key) + orjson.dumps(name): encode_row(*row)
            for name, rows in tables[store].items()
            for key, row in rows.items()
        }


def totals_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the totals of joined rows by group."""
    numbers: dict[str, list[int]] = {}
    for row in rows:
        numbers.setdefault(row["g"], []).append(row["number"])
    return {
        group: {"g": group, "n": len(found), "sum": sum(found), "most": max(found)} for group, found in numbers.items()
    }


def follow_totals(records: Iterable[Entry], *, rows_in_groups: bool) -> list[Pair]:
    """Take what went to one partition of the groups; return keys and values of the changes of the totals."""
    rows: list[dict[str, Any]] = []
    changes = []
    for record in records:
        value = orjson.loads(record.value or b"null")
        key, (before, after) = record.key or b"", value if rows_in_groups else (None, value)
        group = orjson.loads(key)
        former = totals_of(rows).get(group)
        if before is not None:
            rows.remove(before)
        if after is not None:
            rows.append(after)
        if (present := totals_of(rows).get(group)) != former:
            changes.append((key, change_of(former, present)))
    return changes


def change_of(former: Any, present: Any) -> dict[str, Any]:
    """Return a change as a topic has it."""
    op = "+I" if former is None else "-D" if present is None else "+U"
    return {"op": op, "before": former, "after": present}
