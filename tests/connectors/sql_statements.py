"""Effects of statements of users in each SQL database: each record's effect happens once, and bad values are named."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamrt.connectors import PositionChange, SinkCommit, SinkPosition
from streamrt.connectors.sql.sql_sink import SQLSink
from streamrt.errors import SinkError, SinkFencedError
from tests.connectors.sql_tables import batch_of

TABLE = "CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0), note VARCHAR(50))"
STATEMENT = "UPDATE stock SET n = n - :quantity, note = '100% :off' WHERE sku = :sku"


def judge(
    sink_of: Callable[..., SQLSink],
    execute: Callable[[str], Any],
    query: Callable[[str], Sequence[Any]],
    rejected: Sequence[Any],
) -> None:
    """Run statements against a database.

    Args:
        sink_of: starts a sink with some options.
        execute: runs a statement.
        query: returns rows.
        rejected: quantities that the database or the sink must refuse.
    """
    execute(TABLE)
    execute("INSERT INTO stock (sku, n) VALUES ('piano''s', 100), ('flute', 5)")
    sink = sink_of(statement=STATEMENT, name="stock")
    values = [{"sku": "piano's", "quantity": n, "more": object()} for n in (1, 2)]
    moved = SinkCommit("g", {("orders", 0): PositionChange(None, SinkPosition(2, 1))})
    sink.write_transaction([batch_of(*values, {"sku": "nobody", "quantity": 1})], moved)
    left = [("flute", 5, None), ("piano's", 97, "100% :off")]
    assert list(query("SELECT sku, n, note FROM stock ORDER BY sku")) == left
    # The position is that of the transaction: neither is there without the other, and nothing happens twice.
    assert sink.positions("g", [("orders", 0)]) == {("orders", 0): SinkPosition(2, 1)}
    with pytest.raises(SinkFencedError):
        sink.write_transaction([batch_of(*values)], moved)
    _refuse(sink, rejected)
    assert list(query("SELECT sku, n, note FROM stock ORDER BY sku")) == left
    assert sink.positions("g", [("orders", 0)]) == {("orders", 0): SinkPosition(2, 1)}
    sink.write(batch_of({"sku": "flute", "quantity": 5}))

    keyed = sink_of(
        statement="INSERT INTO stock (sku, n) SELECT :sku, :n",
        parameters=lambda item: {"sku": item.key.decode(), "n": item.value},
        name="new",
    )
    keyed.write(batch_of(*range(50, 51), key=b"drum"))
    keyed.close()
    deleting = sink_of(statement="DELETE FROM stock WHERE sku IN (:sku, :other) OR sku = :sku", name="gone")
    deleting.write(batch_of({"sku": "flute", "other": None}))
    assert list(query("SELECT sku, n FROM stock ORDER BY sku")) == [("drum", 50), ("piano's", 97)]
    with pytest.raises(SinkError, match=r"the statement of the sink x cannot be used: .*nowhere"):
        sink_of(statement="UPDATE nowhere SET n = :n", name="x")
    for each in (sink, deleting):
        each.close()


def _refuse(sink: SQLSink, rejected: Sequence[Any]) -> None:
    good = [{"sku": "piano's", "quantity": 1} for _ in range(5)]
    bad: list[Any] = [{"sku": "flute", "quantity": each} for each in (*rejected, 6, 1 << 70, object())]
    bad += [{"sku": "flute"}, 7, None, {"sku": "\ud800", "quantity": 1}]
    after = SinkPosition(9, 2)
    for value in bad:
        commit = SinkCommit("g", {("orders", 0): PositionChange(SinkPosition(2, 1), after)})
        with pytest.raises(SinkError) as caught:
            sink.write_transaction([batch_of(*good, value, *good, start=10)], commit)
        assert caught.value.record == ("orders", 0, 15), (value, caught.value)
        assert "offset 15" in str(caught.value)
