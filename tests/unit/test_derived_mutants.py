"""Deliberate mistakes in tables that are derived from others, each with a history that shows it."""

from collections.abc import Callable
from typing import Any

import pytest

import streamrt.relations.consolidate as consolidate_module
import streamrt.relations.equal_rows as sets_module
import streamrt.relations.foreign_key_join as join_module
import streamrt.relations.present_row as row_module
import streamrt.relations.row_history as history_module
import streamrt.relations.row_join as pairs_module
import streamrt.relations.top as top_module
from streamrt import Application
from streamrt.joins.merging import merge_of
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicConfig
from streamrt.records import Headers
from streamrt.relations import Change, Consolidate, JoinRows, MatchForeignKeys
from streamrt.relations.row_bag import add_row, count_row
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Node, OperatorContext, RecordHandler
from tests.sim.deriving import (
    MATCHES,
    RESULT,
    answer_foreign,
    answer_history,
    answer_pairs,
    answer_rows,
    answer_sets,
    answer_top,
    catalog_of_tables,
    change_of,
    declare_derived,
    present_rows,
    row_of,
)
from tests.sim.simulation import replaced
from tests.unit.joined import SPEC, Joined

Item = tuple[str, bytes, dict[str, Any], int]
PARTITIONS = 2


class Derived:
    """A derived table in the test driver.

    Args:
        kind: one of `DERIVED`.
    """

    def __init__(self, kind: str) -> None:
        app = Application("localhost:9092", consumer_group="sim", catalog=catalog_of_tables())
        for topic in ("in", "other"):
            app.topic(topic, config=TopicConfig(PARTITIONS, 1))
        self.driver = TopologyTestDriver(declare_derived(app, kind))
        self.items: list[Item] = []

    def pipe(self, unique: int, key: bytes, topic: str = "in", group: str = "a") -> None:
        """Send a record; what it is follows from its number."""
        value = {"u": unique, "g": group}
        self.items.append((topic, key, value, 1_000 + len(self.items)))
        place = partition_for(key, PARTITIONS)
        self.driver.pipe(topic, value, key=key, timestamp=self.items[-1][3], partition=place)

    def rows(self, topic: str = RESULT) -> dict[Any, Any]:
        """Return the rows that were written and not deleted."""
        found = {}
        for record in self.driver.read(topic):
            value, key = record.value, record.key
            row = value["after"] if topic == RESULT and value is not None else value
            found[key.decode() if isinstance(key, bytes) else tuple(key) if isinstance(key, list) else key] = row
        return {key: row for key, row in found.items() if row is not None}


def check_top() -> None:
    table = Derived("top")
    for unique, key in ((2, b"key0"), (1, b"key1"), (4, b"key0"), (5, b"key2")):
        table.pipe(unique, key)
    found = {(row["g"], row["rank"]): row for row in table.rows().values()}
    assert found == answer_top(present_rows(table.items, "in").values())


def check_pairs() -> None:
    """Rows of either side come, change, find other partners, and go."""
    table = Derived("pairs")
    for unique, key, topic in (
        (1, b"key1", "other"),
        (4, b"key0", "in"),
        (2, b"key2", "other"),
        (8, b"key0", "in"),
        (5, b"key3", "in"),
        (6, b"key4", "in"),
        (3, b"key4", "in"),
        (5, b"key1", "other"),
        (3, b"key2", "other"),
    ):
        table.pipe(unique, key, topic)
    assert {row["id"]: row for row in table.rows().values()} == answer_pairs(table.items)


def check_sets() -> None:
    """Rows of both sides have equal parts, more than one of them."""
    table = Derived("sets")
    for unique, key, topic in (
        (1, b"key1", "other"),
        (1, b"key0", "in"),
        (4, b"key2", "in"),
        (7, b"key3", "in"),
        (5, b"key4", "in"),
        (3, b"key0", "in"),
    ):
        table.pipe(unique, key, topic)
    assert {row["id"]: row for row in table.rows().values()} == answer_sets(table.items)


def check_equal_rows() -> None:
    """Of two equal rows, one goes."""
    joined = Joined(JoinRows("inner", merge_of("join", "keep-left"), SPEC, ("a", "b")))
    for side, change in ((0, [None, {"a": 1}]), (0, [None, {"a": 1}]), (0, [{"a": 1}, None]), (1, [None, {"b": 1}])):
        joined.feed(side, change, [1], 0)
    assert [value for value, *_ in joined.outputs] == [Change(None, {"a": 1, "b": 1})]


def check_consolidated() -> None:
    """The new row of a key comes before the former one goes."""
    outputs: list[Any] = []
    joined = Joined(JoinRows("inner", merge_of("join", "keep-left"), SPEC, ("a", "b")))

    def take(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        outputs.append(value[1])

    run = Consolidate(SPEC, ("k",)).build(take, Node(3, (2,), Consolidate(SPEC, ("k",)), "test.py:1"), joined)
    for change in ([None, {"n": 1}], [None, {"n": 2}], [None, {"n": 3}], [{"n": 3}, None], [{"n": 1}, None]):
        run(change, 7, 0, None)
    assert outputs == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 2}]


def check_captured(kind: str, uniques: tuple[int, ...]) -> None:
    table = Derived(kind)
    for unique in uniques:
        table.pipe(unique, b"key0")
    changes = [change_of(value, key, timestamp, None) for _, key, value, timestamp in table.items]
    assert table.rows(f"sim.{kind}") == (answer_rows if kind == "rows" else answer_history)(changes)


def check_late_change() -> None:
    """The second change is older than the first one."""
    first, second = (change_of({"u": unique}, b"", 0, None) for unique in (1, 2))
    assert first["s"] > second["s"]
    check_captured("rows", (1, 2))


def check_versions() -> None:
    check_captured("history", (1, 5, 2, 4))


def joined() -> Derived:
    """Return a join in which key0 has named key1, and names key2 now."""
    table = Derived("foreign")
    table.pipe(1, b"key1", "other")
    table.pipe(2, b"key2", "other")
    for unique in (4, 8):
        table.pipe(unique, b"key0")
    named = [row_of(value, key, 0, None) for _, key, value, _ in table.items[2:]]
    assert [row["f"] for row in named if row is not None] == ["key1", "key2"]
    return table


def check_obsolete_response() -> None:
    """What key1 has sent before key0 left it comes after what key2 has sent."""
    table = joined()
    table.driver.pipe(
        MATCHES, [b"key1", {"n": 5}, 2_000], key=b"key0", timestamp=2_000, partition=partition_for(b"key0", PARTITIONS)
    )
    assert table.rows() == answer_foreign(table.items)


def check_subscriptions() -> None:
    """A row that none names any more is sent to none; its change, and its deletion, leave the joined row as it is."""
    table = joined()
    assert table.driver.read(MATCHES)
    table.pipe(5, b"key1", "other")
    table.pipe(3, b"key1", "other")
    assert table.driver.read(MATCHES) == []
    assert table.rows() == answer_foreign(table.items)


_REAL_INPUTS = MatchForeignKeys.build_inputs
_REAL_VERSIONS = history_module._list_versions


def _keep_subscriptions(
    self: MatchForeignKeys, child: RecordHandler, node: Node, context: OperatorContext
) -> tuple[RecordHandler, ...]:
    subscription, right = _REAL_INPUTS(self, child, node, context)

    def subscribe(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if value[1]:
            subscription(value, key, timestamp, headers)
        else:
            child([key], value[0], timestamp, None)

    return subscribe, right


def _leave_versions_open(folded: Any) -> Any:
    versions, present = _REAL_VERSIONS(folded)
    return {start: {**row, "__END_AT": None} for start, row in versions.items()}, present


_REPLACE = top_module._replace
_REAL_PAIRS = pairs_module._Side._pair_few


def _add_row(transaction: Any, prefix: bytes, number: int, gone: bytes | None, added: bytes | None, row: Any) -> bool:
    return _REPLACE(transaction, prefix, number, None, added, row)


def _forget_who_was_alone(self: Any, other: Any, change: Any, had_rows: bool, *rest: Any) -> None:
    _REAL_PAIRS(self, other, change, True, *rest)


def _add_once(bag: Any, row: str, prefix: bytes, sets: Any) -> None:
    if not count_row(bag, row, prefix, sets):
        add_row(bag, row, prefix, sets)


MUTANTS: dict[str, tuple[Callable[[], None], Any, str, Any]] = {
    "an obsolete response of a foreign key is accepted": (
        check_obsolete_response,
        join_module,
        "_match_key",
        lambda foreign: "match",
    ),
    "a subscription is not removed": (check_subscriptions, MatchForeignKeys, "build_inputs", _keep_subscriptions),
    "a late captured change is applied": (check_late_change, row_module, "precedes", lambda one, other: False),
    "a version of a history is not closed": (check_versions, history_module, "_list_versions", _leave_versions_open),
    "a row of a join is not taken back": (check_pairs, pairs_module, "take_row", lambda *bag: True),
    "a row without a partner stays": (check_pairs, pairs_module._Side, "_pair_few", _forget_who_was_alone),
    "equal rows of a join are one": (check_equal_rows, pairs_module, "add_row", _add_once),
    "equal rows of a set are one": (
        check_sets,
        sets_module,
        "_COUNTS",
        {"subtract all": lambda left, right: int(left > 0 and not right)},
    ),
    "a key has the wrong row": (check_consolidated, consolidate_module, "_find", lambda rows, row: 0 if rows else None),
    "a row of top is not retracted": (check_top, top_module, "_replace", _add_row),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_chosen_history_shows_the_mutant(mutant: str) -> None:
    check, *patch = MUTANTS[mutant]
    check()
    with replaced(*patch), pytest.raises(AssertionError):
        check()
