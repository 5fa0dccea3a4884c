"""Writes to a DuckDB database, for a process of its own: not in the module of the tests, as it imports little."""

from pathlib import Path

from streamrt.connectors import DuckDBSink, PositionChange, SinkCommit, SinkPosition
from streamrt.connectors.retries import Retries
from tests.connectors.sql_tables import batch_of

FAST = Retries(attempts=2, first_wait_s=0.01, retry_after_s=7)


def write_many(path: Path, number: int) -> None:
    """Write ten rows, each in a transaction of its own, while others do so as well.

    Args:
        path: the database.
        number: the partition of the rows, and of their column.
    """
    sink = DuckDBSink(path, "orders", include_metadata=False, retries=FAST, timeout=120)
    sink.start()
    for n in range(10):
        before = SinkPosition(n, n) if n else None
        change = {("orders", number): PositionChange(before, SinkPosition(n + 1, n + 1))}
        sink.write_transaction([batch_of({"n": n, f"c{number}": 1}, partition=number)], SinkCommit("g", change))
