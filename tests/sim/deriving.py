"""Tables that are derived from others behind exchanges, for the simulator, and what they are over the present rows.

A table is joined with another one by a foreign key, or by any columns; the rows that another one lacks are kept; the first
rows of groups of a table are kept; captured changes become the rows of a table, or their history; requests of several writers
are merged into the rows of a maintained table. Records are those of `tests.sim.relating`: some delete their row, and many
repeat it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from streamrt import Application
from streamrt.records import Headers
from streamrt.relations.exact_keys import make_digest
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.descriptions.requests import make_request_headers
from streamrt.topics.internal import digest_names
from streamrt.topology.graph import stream_id
from tests.sim.broker import Entry
from tests.sim.maintaining import (
    MAINTAINED,
    REPEATABLE,
    create_maintained,
    make_rows,
    read_request,
    write_requests,
)

DERIVED = ("foreign", "foreign-left", "pairs", "sets", "top", "rows", "history", *MAINTAINED)
REPAIRED = ("foreign", "foreign-left", "rows", "history", *REPEATABLE)
"""Those that are right in the end at least once as well."""
SUBSCRIPTIONS = "repartition__sim--in--f.subscriptions"
MATCHES = f"repartition__sim--other--{SUBSCRIPTIONS}--f.matches"
BY_GROUP = "repartition__sim--in--g"
TWO_INPUTS = ("foreign", "foreign-left", "pairs", "sets")
"""Those that are made of two tables."""
PAIRED = {
    "pairs": ("repartition__sim--in--p.left", "repartition__sim--other--p.right"),
    "sets": ("repartition__sim--in--s.left", "repartition__sim--other--s.right"),
}
"""The topics that bring the rows of two tables together."""
KEYED = {kind: f"repartition__sim--{digest_names('--'.join(PAIRED[kind]))}--id" for kind in PAIRED}
"""The topics in which rows get keys."""
RESULT, RANKS = "out", 2

Row = dict[str, Any]
Answer = dict[Any, Row]
"""The rows of a table by key."""
Item = tuple[str, bytes, Row, int]
"""A record of an input: topic, key, value and time."""


def topics_of(kind: str) -> tuple[str, ...]:
    """Return the topics that the application reads."""
    if kind.startswith("foreign"):
        return ("in", "other", SUBSCRIPTIONS, MATCHES)
    if kind in PAIRED:
        return ("in", "other", *PAIRED[kind], KEYED[kind])
    if kind in MAINTAINED:
        return ("in", f"sim.{kind}.requests")
    return ("in", BY_GROUP) if kind == "top" else ("in", f"repartition__sim--in--sim-{kind}")


def streams_of(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the topics of each stream."""
    if kind.startswith("foreign"):
        pairs = (("other", SUBSCRIPTIONS), ("in", MATCHES))
        return {stream_id(pair): pair for pair in pairs}
    together = PAIRED.get(kind, ())
    alone: dict[str, tuple[str, ...]] = {topic: (topic,) for topic in topics_of(kind) if topic not in together}
    return {**alone, stream_id(together): together} if together else alone


def row_of(value: Row, key: bytes, timestamp: int, headers: Any) -> Row | None:
    """Return the row that a record has, or None if it deletes it. Few different ones, so that rows repeat."""
    unique = value["u"]
    row = {"k": key.decode(), "g": value["g"], "f": f"key{unique // 4 % 6}", "n": unique % 3}
    return None if unique % 7 == 3 else row


def change_of(value: Row, key: bytes, timestamp: int, headers: Any) -> Row:
    """Return a captured change: some come late, some have the sequence of another one, and some delete."""
    unique = value["u"]
    return {"k": key.decode(), "s": unique // 2 + unique * 7 % 13, "n": unique % 3, "gone": unique % 5 == 4}


def foreign_key(row: Row) -> bytes:
    """Return the key of the right row that a left row names; there is no key5."""
    return str(row["f"]).encode()


def merge_rows(left: Row, right: Row | None) -> Row:
    """Return the joined row."""
    return {"k": left["k"], "f": left["f"], "n": left["n"], "m": None if right is None else right["n"]}


def pair_rows(left: Row | None, right: Row | None) -> Row:
    """Return the row of a pair, of which one may be missing, with a key."""
    key = f"alone {right['k']}" if left is None else left["k"]  # type: ignore[index]  # one of both is there
    return {"id": key, "n": None if left is None else left["n"], "m": None if right is None else right["n"]}


def part_of(row: Row) -> Row:
    """Return a part of a row that other rows have as well."""
    return {"g": row["g"], "n": row["n"]}


def is_gone(value: Row) -> bool:
    """Return whether a captured change deletes its row."""
    return bool(value["gone"])


def catalog_of_tables() -> Catalog:
    """Return a catalogue with the tables of captured changes and of requests."""
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("sim")
    catalog.create_table("sim.rows", "k STRING, n BIGINT, PRIMARY KEY (k)")
    versions = "k STRING, n BIGINT, __START_AT BIGINT, __END_AT BIGINT, PRIMARY KEY (k, __START_AT)"
    catalog.create_table("sim.history", versions)
    create_maintained(catalog)
    return catalog


def declare_derived(app: Application, kind: str) -> Application:
    """Declare what the simulator runs: changes of the result go to a topic, and captured ones to their table.

    Args:
        app: the application, with the catalogue of `catalog_of_tables`.
        kind: one of `DERIVED`.
    """
    if kind in TWO_INPUTS:
        left, right = (
            app.dataframe(app.topic(topic)).apply(row_of, metadata=True).as_table(name)
            for topic, name in (("in", "left"), ("other", "right"))
        )
    if kind == "pairs":
        pairs = left.join(right, "outer", pair_rows, "p", ("f", "k")).keyed_by("id")
        pairs.to_stream("both").to_topic(app.topic(RESULT, key_serializer="json"))
    elif kind == "sets":
        rest = left.apply(part_of).subtract(right.apply(part_of), all=True, name="s").numbered("id")
        rest.to_stream("both").to_topic(app.topic(RESULT, key_serializer="json"))
    elif kind.startswith("foreign"):
        how: Any = "left" if kind == "foreign-left" else "inner"
        joined = left.join(right, how, on=foreign_key, name="f", on_merge=merge_rows)
        joined.to_stream("both").to_topic(app.topic(RESULT))
    elif kind == "top":
        ranked: Any = app.dataframe(app.topic("in"))
        ranked = ranked.apply(row_of, metadata=True).as_table("left").group_by("g").top(RANKS, by=["n", "k"])
        ranked.to_stream("both").to_topic(app.topic(RESULT, key_serializer="json"))
    elif kind in MAINTAINED:
        write_requests(app, kind)
        app.maintain(f"sim.{kind}").to_stream("both").to_topic(app.topic(RESULT, key_serializer="json"))
    else:
        changes = app.dataframe(app.topic("in")).apply(change_of, metadata=True)
        scd: Literal[1, 2] = 2 if kind == "history" else 1
        table = changes.to_table(f"sim.{kind}", sequence_by="s", apply_as_deletes=is_gone, scd=scd)
        table.to_stream("both").to_topic(app.topic(RESULT, key_serializer="json"))
    return app


def present_rows(items: Iterable[Item], topic: str) -> dict[bytes, Row]:
    """Return the last row of each key of a topic."""
    rows: dict[bytes, Row] = {}
    for name, key, value, timestamp in items:
        if name == topic:
            row = row_of(value, key, timestamp, None)
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
    return rows


def answer_foreign(items: Sequence[Item], *, left_join: bool = False) -> Answer:
    """Return the join of all present rows."""
    left, right = present_rows(items, "in"), present_rows(items, "other")
    return {
        key.decode(): merge_rows(row, right.get(foreign_key(row)))
        for key, row in left.items()
        if left_join or foreign_key(row) in right
    }


def answer_pairs(items: Sequence[Item]) -> Answer:
    """Return the outer join of all present rows."""
    left, right = present_rows(items, "in"), present_rows(items, "other")
    named = {foreign_key(row) for row in left.values()}
    rows = [pair_rows(row, right.get(foreign_key(row))) for row in left.values()]
    rows += [pair_rows(None, row) for key, row in right.items() if key not in named]
    return {row["id"]: row for row in rows}


def answer_sets(items: Sequence[Item]) -> Answer:
    """Return the parts of rows that the left table has more often, with their keys."""
    left, right = (
        Counter(tuple(part_of(row).items()) for row in present_rows(items, topic).values()) for topic in ("in", "other")
    )
    found: Answer = {}
    for part, count in (left - right).items():
        for number in range(1, count + 1):
            key = f"{make_digest(dict(part))}-{number}"
            found[key] = {**dict(part), "id": key}
    return found


def answer_top(rows: Iterable[Row]) -> Answer:
    """Return the first rows of each group, by group and rank."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["n"], row["k"]), reverse=True):
        groups.setdefault(row["g"], []).append(row)
    return {
        (group, rank): {**row, "rank": rank}
        for group, found in groups.items()
        for rank, row in enumerate(found[:RANKS], 1)
    }


def order_changes(changes: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the changes of each key in the order of their sequences; of equal ones, the later one counts.

    A row that is inserted with the sequence of its deletion is another one, which `renewed` says.
    """
    found: dict[str, dict[int, Row]] = {}
    for change in changes:
        own = found.setdefault(change["k"], {})
        former = own.get(change["s"], {"gone": False, "renewed": False})
        own[change["s"]] = {**change, "renewed": former["gone"] or former["renewed"]}
    return {key: [own[each] for each in sorted(own)] for key, own in found.items()}


def answer_rows(changes: Iterable[Row]) -> Answer:
    """Return the row of the last change of each key."""
    last = {key: own[-1] for key, own in order_changes(changes).items()}
    return {key: {"k": key, "n": change["n"]} for key, change in last.items() if not change["gone"]}


def answer_history(changes: Iterable[Row]) -> Answer:
    """Return the versions of the row of each key."""
    versions: Answer = {}
    for key, own in order_changes(changes).items():
        current: Row | None = None
        for change in own:
            same = current is not None and not change["gone"] and change["n"] == current["n"]
            if same and not change["renewed"]:
                continue
            if current is not None:
                current["__END_AT"] = change["s"]
            current = None
            if not change["gone"]:
                current = {"k": key, "n": change["n"], "__START_AT": change["s"], "__END_AT": None}
                versions[key, change["s"]] = current
    return versions


def headers_of(topic: str, records: Sequence[Entry]) -> list[Headers | None] | None:
    """Return the headers of records, which the simulated broker does not keep: those of requests follow from their values."""
    if not topic.endswith(".requests"):
        return None
    return [make_request_headers("d" if record.value is None else "u", 1) for record in records]


def read_value(entry: Entry) -> Any:
    """Return the decoded value of a record."""
    return orjson.loads(entry.value or b"null")


@dataclass(frozen=True)
class Follower:
    """How the rows of a result are found in a topic, and what they should be.

    Attributes:
        exchange: the topic that feeds the result.
        result: the topic that has it.
        key_of: returns the key of a row, given that of the record.
        answer: returns the rows, given all values of a partition of the exchange.
        read: returns the value of a record of the exchange.
        lingering: returns further rows that may be there until they are deleted.
    """

    exchange: str
    result: str
    key_of: Callable[[Any], Any]
    answer: Callable[[list[Any]], Answer]
    read: Callable[[Entry], Any] = read_value
    lingering: Callable[[list[Any]], Answer] = lambda values: {}

    def fits(self, values: list[Any], found: Answer, *, final: bool) -> bool:
        """Return whether rows are those of the values of a partition of the exchange."""
        rows, old = self.answer(values), {} if final else self.lingering(values)
        return {key: row for key, row in found.items() if old.get(key) != row} == rows


def follower_of(kind: str) -> Follower:
    """Return how to follow a result that one exchange feeds."""
    exchange = topics_of(kind)[1]
    if kind == "top":
        return Follower(exchange, RESULT, tuple, lambda values: answer_top(_fold_changes(values)))
    if kind in MAINTAINED:
        return Follower(
            exchange,
            f"sim.{kind}",
            str,
            lambda requests: make_rows(kind, requests)[0],
            read_request,
            lambda requests: make_rows(kind, requests)[1],
        )
    if kind == "rows":
        return Follower(exchange, "sim.rows", str, answer_rows)
    return Follower(exchange, "sim.history", tuple, answer_history)


def _fold_changes(values: Iterable[list[Any]]) -> list[Row]:
    rows: list[Row] = []
    for before, after in values:
        if before is not None:
            rows.remove(before)
        if after is not None:
            rows.append(after)
    return rows
