"""Views in SQL for the simulator: two tables whose rows come, repeat and go, and a query over them.

Records are those of `tests.sim.relating`: some delete their row, and many repeat it. Each change of the view is an output. It
should have what DuckDB finds in the present rows.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from streamrt import Application
from streamrt.sql.queries.duckdb_text import to_duckdb
from streamrt.sql.reading import parse_query
from streamrt.topology import Topology
from tests import duckdbs

RESULT = "out"
COLUMNS = "k STRING NOT NULL, g STRING, n BIGINT"
QUERIES = {
    "group": "SELECT g, count(*) AS rows, sum(n) AS total, min(n) AS least FROM {one} GROUP BY g",
    "distinct": "SELECT DISTINCT n FROM {one}",
    "join": "SELECT a.k, b.k AS other, a.n FROM {one} a JOIN {two} b ON a.n = b.n AND a.g = b.g",
    "outer": "SELECT a.k, b.k AS other FROM {one} a FULL JOIN {two} b ON a.n = b.n",
    "anti": "SELECT k, n FROM {one} a WHERE NOT EXISTS (SELECT 1 FROM {two} b WHERE b.n = a.n)",
    "union": "SELECT g, n FROM {one} UNION ALL SELECT g, n FROM {two}",
    "except": "SELECT n FROM {one} EXCEPT SELECT n FROM {two}",
    "top": (
        "SELECT g, n, k FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY n DESC, k) AS rank FROM {one}) "
        "WHERE rank <= 2"
    ),
    "chain": (
        "SELECT total, count(*) AS groups FROM (SELECT a.g, sum(b.n) AS total FROM {one} a JOIN {two} b ON a.k = b.k "
        "GROUP BY a.g) GROUP BY total"
    ),
    "nothing": "SELECT count(*) AS rows, sum(n) AS total FROM {one} WHERE n = 9",
    "scalar": "SELECT k, n, (SELECT count(*) FROM {two} WHERE n = 9) AS rows FROM {one}",
    "over": (
        "SELECT k, sum(n) OVER (PARTITION BY g ORDER BY n, k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS total, "
        "rank() OVER (PARTITION BY g ORDER BY n) AS place FROM {one}"
    ),
    "sets": "SELECT g, n, count(*) AS rows FROM {one} GROUP BY ROLLUP (g, n)",
}
"""The queries, by kinds of their operators. `chain` passes two exchanges; `nothing` and `scalar` count no row."""
BEGINNING = ("nothing", "scalar")
"""Those that have rows, or parts of them, before any record."""
REPAIRED = ("distinct", "join", "union", "nothing")
"""Those whose rows are there in the end at least once as well, though there may be more of them."""


class Shape(NamedTuple):
    """The topics of an application, and how they belong together."""

    sources: tuple[str, ...]
    streams: dict[str, tuple[str, ...]]
    scopes: dict[str, tuple[str, ...]]
    sinks: tuple[str, ...]


def row_of(value: dict[str, Any], key: bytes, timestamp: int, headers: Any) -> dict[str, Any] | None:
    """Return the row that a record has, or None if it deletes it. Few different ones, so that rows repeat, and some NULLs."""
    unique = value["u"]
    if unique % 5 == 3:
        return None
    return {
        "k": key.decode(),
        "g": None if unique % 7 == 0 else value["g"],
        "n": None if unique % 11 == 0 else unique % 4,
    }


def declare_view(app: Application, kind: str) -> Application:
    """Declare what the simulator runs.

    Args:
        app: the application.
        kind: one of `QUERIES`.
    """
    query = QUERIES[kind]
    frames: Any = {
        name: app.dataframe(app.topic(topic)).apply(row_of, metadata=True).as_table(name)
        for topic, name in (("in", "one"), ("other", "two"))
        if f"{{{name}}}" in query
    }
    if "two" not in frames:
        # The simulator feeds both topics.
        app.dataframe(app.topic("other")).filter(never)
    view = app.sql(query, schemas=dict.fromkeys(frames, COLUMNS), **frames)
    view.to_stream("both").to_topic(app.topic(RESULT, key_serializer="str"), key=key_of)
    return app


def key_of(change: Any) -> str:
    """Return the key of a change: keys of bags mean nothing, so all are in one partition."""
    return "row"


def never(value: Any) -> bool:
    """Return False."""
    return False


@functools.cache
def shape_of(kind: str) -> Shape:
    """Return the topics of the application with a view."""
    app = declare_view(Application("unused.invalid:9092", consumer_group="sim", loglevel=None), kind)
    topology: Topology = app.topology
    topology = topology.resolve(dict.fromkeys(topology.outer_topics, 2))
    streams = {name: tuple(sources) for name, sources in topology.streams.items()}
    return Shape(tuple(topology.sources), streams, dict(topology.scopes), (*topology.exchanges, RESULT))


def answer(kind: str, rows: Mapping[str, Iterable[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """Return the rows of a view, given those of both tables by their names."""
    schema = pa.schema([("k", pa.string()), ("g", pa.string()), ("n", pa.int64())])
    text = QUERIES[kind].replace("{one}", "one").replace("{two}", "two")
    with duckdbs.connect() as connection:
        for name, each in rows.items():
            connection.register(name, pa.Table.from_pylist([*each], schema=schema))
        query = to_duckdb(parse_query(text), dict.fromkeys(rows, schema))
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return found


def present_rows(entries: Iterable[Any]) -> dict[bytes, dict[str, Any]]:
    """Return the last rows of keys of a topic."""
    rows: dict[bytes, dict[str, Any]] = {}
    for entry in entries:
        key = entry.key or b""
        row = row_of(orjson.loads(entry.value or b"null"), key, entry.timestamp, None)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    return rows
