"""Events of sources of database changes, applied to tables."""

from collections.abc import Mapping
from typing import Any

import pytest

from streamrt import Application
from streamrt.connectors.sources.changes import Change, shaped
from streamrt.errors import ProcessingError
from streamrt.testing import TopologyTestDriver
from streamrt.topics import TopicConfig
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

CUSTOMERS = "id BIGINT, name STRING, note STRING, PRIMARY KEY (id)"
HISTORY = "id BIGINT, name STRING, note STRING, __START_AT STRING, __END_AT STRING, PRIMARY KEY (id, __START_AT)"
Row = Mapping[str, Any]


class Origin:
    """Makes the records of a source of a driver's topic."""

    def __init__(
        self, columns: str = CUSTOMERS, *, partitions: int = 1, connector: str = "postgresql", **options: Any
    ) -> None:
        tables = Tables()
        tables.add("shop.customers", columns)
        app = Application("unused:9092", consumer_group="shop", catalog=tables)  # type: ignore[arg-type]
        frame = app.dataframe(app.topic("changes", config=TopicConfig(partitions, 1)))
        self.result = frame.to_table("shop.customers", **{"change_events": True, **options})
        self.driver = TopologyTestDriver(app)
        self.rows: dict[Any, Any] = {}
        self._connector, self._partitions, self._position = connector, partitions, 0

    def source(self, table: str, number: int) -> Row:
        if self._connector == "postgresql":
            place: Row = {"schema": "public", "lsn": f"{number >> 4:X}/{number:X}", "seq": number % 3 or None}
        else:
            place = {
                "database": "shop",
                "file": f"binlog.{number // 4:06d}",
                "pos": number * 10,
                "seq": number % 3 or None,
            }
        return {"connector": self._connector, "table": table, **place}

    def change(
        self, op: str, before: Row | None, after: Row | None, *, table: str = "customers", at: int | None = None
    ) -> dict[Any, Any]:
        """Pipe the records of a change, and return the rows of the table."""
        self._position += 1
        key, old = ({"id": row["id"]} if row else None for row in (after, before))
        source = self.source(table, self._position if at is None else at)
        change = Change(op, table, key or old, old, before, after, source, self._position)
        for _, value in shaped(change, flat=False, tombstones=True):
            partition = (key or old or {"id": 0})["id"] % self._partitions
            self.driver.pipe("changes", value, timestamp=self._position, partition=partition)
        for record in self.driver.read("shop.customers"):
            self.rows.pop(record.key, None)
            if record.value is not None:
                self.rows[record.key] = tuple(record.value.values())
        return self.rows


@pytest.mark.parametrize("connector", ["postgresql", "mysql"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_follow_their_origin(connector: str, partitions: int) -> None:
    origin = Origin(partitions=partitions, connector=connector)
    assert origin.change("r", None, {"id": 1, "name": "ann", "note": "long"}) == {1: (1, "ann", "long")}
    origin.change("c", None, {"id": 2, "name": "bob", "note": None})
    # A column that the log left out keeps its value; null is a value.
    assert origin.change("u", None, {"id": 1, "name": None})[1] == (1, None, "long")
    # The key changes.
    assert origin.change("u", {"id": 2}, {"id": 3, "name": "bob", "note": None}) == {
        1: (1, None, "long"),
        3: (3, "bob", None),
    }
    assert origin.change("d", {"id": 3}, None) == {1: (1, None, "long")}
    origin.change("c", None, {"id": 4, "name": "dan", "note": None})
    assert origin.change("t", None, None) == {}
    # Changes are repeated after a crash of the source.
    assert origin.change("c", None, {"id": 4, "name": "dan", "note": None}, at=6) == {}
    assert origin.change("c", None, {"id": 9, "name": "old", "note": None}, at=2) == {}
    assert origin.change("c", None, {"id": 4, "name": "eve", "note": None}) == {4: (4, "eve", None)}


def test_a_history_of_events() -> None:
    origin = Origin(HISTORY, scd=2)
    origin.change("c", None, {"id": 1, "name": "ann", "note": "long"})
    origin.change("u", None, {"id": 1, "name": "anna"})
    origin.change("t", None, None)
    assert sorted(origin.rows.values()) == [
        (1, "ann", "long", "0000000000000001-0000000001", "0000000000000002-0000000002"),
        (1, "anna", "long", "0000000000000002-0000000002", "0000000000000003-0000000000"),
    ]


def test_the_events_of_one_of_several_tables() -> None:
    for chosen in ("customers", "public.customers"):
        origin = Origin(change_events=chosen)
        origin.change("c", None, {"id": 1, "name": "ann", "note": None})
        origin.change("c", None, {"id": 2, "name": "a desk", "note": None}, table="products")
        assert origin.change("t", None, None, table="products") == {1: (1, "ann", None)}


def test_a_table_with_another_key_than_its_origin() -> None:
    """An update with both rows says that the key has changed."""
    origin = Origin("id BIGINT, name STRING, note STRING, PRIMARY KEY (name)", partitions=2)
    origin.change("c", None, {"id": 1, "name": "ann", "note": None})
    row = {"id": 1, "name": "ann", "note": None}
    assert origin.change("u", row, {**row, "name": "anna"}) == {"anna": (1, "anna", None)}


def test_ignored_nulls_of_events() -> None:
    origin = Origin(ignore_null_updates=["note"])
    origin.change("c", None, {"id": 1, "name": "ann", "note": "long"})
    assert origin.change("u", None, {"id": 1, "note": None}) == {1: (1, "ann", "long")}
    assert origin.change("u", None, {"id": 1, "name": None, "note": None}) == {1: (1, None, "long")}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"id": 1, "name": "ann"}, "not a change event of PostgresCdcSource or MySQLCdcSource"),
        ([1], "not a change event"),
        ({"op": "c", "after": {"id": 1}, "source": {"connector": "oracle"}}, "a change event has no position"),
        (
            {"op": "c", "after": {"id": 1}, "source": {"connector": "mysql", "file": "x"}},
            "a change event has no position",
        ),
        ({"op": "u", "after": None, "source": {"connector": "postgresql", "lsn": "0/1"}}, "column 'id'"),
    ],
)
def test_values_that_are_no_events(value: Any, expected: str) -> None:
    with pytest.raises(ProcessingError, match=expected):
        Origin().driver.pipe("changes", value)
