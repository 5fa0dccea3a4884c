"""The tables of a view in DuckDB, and which of their records may have come too late."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import ConfigurationError
from streamrt.extras import install_command
from streamrt.sql.verify.waiting import CLOCK, TIME, Wait

__all__ = ["TimedTable", "add_table", "connect_duckdb"]

_POSITION = ("_change_type", "_offset", "_timestamp", "_partition")
"""What scans with metadata add."""


def connect_duckdb() -> Any:
    """Return a connection to a new database in memory, which can read nothing else."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ConfigurationError(f"verify() needs DuckDB: {install_command('sql')}") from None
    connection = duckdb.connect(config={"enable_external_access": "false"})
    connection.execute("SET lock_configuration = true")
    return connection


def add_table(connection: Any, name: str, rows: pa.Table) -> None:
    """Add a table.

    Args:
        connection: the connection to DuckDB.
        name: its name, with or without that of its database.
        rows: its rows.
    """
    database = name.rpartition(".")[0]
    if database:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{database}"')
    _fill(connection, _name_in_duckdb(name), "*", rows)


class TimedTable:
    """A table with the times of its records.

    Args:
        connection: the connection to DuckDB.
        name: name of the table, which `add_table` has added.
        rows: its rows, with metadata.
        time: its time column.
    """

    def __init__(self, connection: Any, name: str, rows: pa.Table, time: str) -> None:
        self._connection = connection
        self._target = _name_in_duckdb(name)
        self._timed, self._time = f'"times of {name}"', f'"{time}"'
        times = [_milliseconds(rows[column]) for column in (time, "_timestamp")]
        rows = rows.append_column(TIME, pc.coalesce(*times))
        before = "PARTITION BY _partition ORDER BY _offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        _fill(connection, self._timed, f"*, max({TIME}) OVER ({before}) AS {CLOCK}", rows)

    def find_ends(self) -> list[int]:
        """Return the highest time of each partition that has rows with a time, in milliseconds since 1970."""
        query = f"SELECT max({TIME}) FROM {self._timed} WHERE {self._time} IS NOT NULL GROUP BY _partition"  # noqa: S608
        return [time for (time,) in self._connection.execute(query).fetchall()]

    def leave_out(self, waits: Sequence[Wait], *, late: bool = False, waiting_at: int | None = None) -> int:
        """Leave out records of the table, and return the number of those that are left out.

        Args:
            waits: how long operators wait for its rows.
            late: whether to leave out records for which operators may not have waited.
            waiting_at: a time in milliseconds at which those are left out whose rows may not have been passed on; None for
                none.
        """
        conditions = [wait.is_late for wait in waits] if late else []
        if waiting_at is not None:
            conditions += [f"{TIME} + {wait.holds_ms} >= {waiting_at}" for wait in waits if wait.holds_ms is not None]
        out = f"coalesce({' OR '.join(f'({condition})' for condition in conditions) or 'FALSE'}, FALSE)"
        columns = f"* EXCLUDE ({', '.join((*_POSITION, TIME, CLOCK))})"
        others = f"SELECT {columns} FROM {self._timed} WHERE NOT {out}"  # noqa: S608
        self._connection.execute(f"CREATE OR REPLACE TABLE {self._target} AS {others}")
        (count,) = self._connection.execute(f"SELECT count(*) FROM {self._timed} WHERE {out}").fetchone()  # noqa: S608
        return int(count)


def _fill(connection: Any, target: str, columns: str, rows: pa.Table) -> None:
    connection.register("rows_of_table", rows)
    # Names are those of the catalogue.
    connection.execute(f"CREATE TABLE {target} AS SELECT {columns} FROM rows_of_table")  # noqa: S608
    connection.unregister("rows_of_table")


def _name_in_duckdb(name: str) -> str:
    database, _, table = name.rpartition(".")
    return f'"{database}"."{table}"' if database else f'"{table}"'


def _milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(times, pa.timestamp("ms", times.type.tz), safe=False), pa.int64())
