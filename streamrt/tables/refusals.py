"""Methods of tables and catalogues that do not exist yet: each says why, and what does the same today."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from streamrt.errors import InvalidOperationError
from streamrt.tables.info import TableInfo

__all__ = ["CatalogRefusals", "TableRefusals"]

_LOOKUPS = (
    "keep the rows of app.dataframe(table) in the state of an application, and ask it by app.query_state(), or read all of "
    "them by scan()"
)
_UPSERTS = "append() rows to a log table, and let an application keep the newest of each key in its state"
_LAKES = "sinks of an application write files to object stores, and scan().to_parquet() writes one file"


class TableRefusals:
    """What needs a primary key, or a lake. All methods raise InvalidOperationError."""

    _info: TableInfo

    def upsert(self, rows: Any) -> NoReturn:
        """Refuse to insert or update rows.

        Args:
            rows: the rows.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("upsert()", _UPSERTS)

    def delete(self, keys: Any) -> NoReturn:
        """Refuse to delete rows.

        Args:
            keys: their keys.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("delete()", f"config={{'retention.ms': ...}} ends rows by their age; {_UPSERTS}")

    def get(self, key: Any, **options: Any) -> NoReturn:
        """Refuse to look up a row.

        Args:
            key: its key.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("get()", _LOOKUPS)

    def get_many(self, keys: Sequence[Any], **options: Any) -> NoReturn:
        """Refuse to look up rows.

        Args:
            keys: their keys.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("get_many()", _LOOKUPS)

    def prefix(self, key: Mapping[str, Any] | Sequence[Any], **options: Any) -> NoReturn:
        """Refuse to look up rows by the first columns of their key.

        Args:
            key: values of these columns.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("prefix()", _LOOKUPS)

    def replica(self, **options: Any) -> NoReturn:
        """Refuse to keep a copy of the rows by key.

        Args:
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse("replica()", f"subscribe() follows the rows; {_LOOKUPS}")

    def snapshot(self, columns: Sequence[str | int] | None = None, **options: Any) -> NoReturn:
        """Refuse to return the rows of all keys as of one position.

        Args:
            columns: names or numbers of columns.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        self._refuse(
            "snapshot()",
            "scan() reads the rows up to a position, and subscribe(start=scan.end) goes on",
        )

    def lake_snapshot(self) -> NoReturn:
        """Refuse to return what a lake has of the table.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            f"lake_snapshot() of table {self._info.name!r} is not there yet, because no table is in a lake: {_LAKES}"
        )

    def _refuse(self, method: str, advice: str) -> NoReturn:
        name, kind = self._info.name, self._info.kind
        if kind == "log":
            reason = f"needs a table with a primary key, and {name!r} is a log table"
        elif kind == "external":
            reason = (
                f"needs a table with a primary key, and the rows of table {name!r} are in another system "
                f"({self._info.connector})"
            )
        else:
            reason = f"is not there yet for table {name!r}, because tables with a primary key are created and described alone"
        raise InvalidOperationError(f"{method} {reason}: {advice}")


class CatalogRefusals:
    """Queries and views. All methods raise InvalidOperationError."""

    def query(self, sql: str, args: Mapping[str, Any] | None = None, **options: Any) -> NoReturn:
        """Refuse to run a query.

        Args:
            sql: the query.
            args: values of its parameters.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            "query() is not there yet, because a catalogue has no engine for SQL: read rows by table.scan().to_arrow() or "
            "to_parquet(), and query these by DuckDB, polars or Spark"
        )

    def view(self, name: str) -> NoReturn:
        """Refuse to return a view.

        Args:
            name: its name.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            f"view({name!r}) is not there yet, because a catalogue has tables alone: let an application write the result to "
            "a table by sdf.to_table()"
        )
