"""Lookups in a SQLite database."""

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from streamrt.joins.lookups.sql import QueryField, SQLField, SQLLookup, TableField

__all__ = ["SQLiteLookup", "SQLiteLookupField", "SQLiteLookupQueryField"]

_BUSY_S = 5.0
_PASSING = ("database is locked", "database table is locked", "unable to open database file", "disk i/o error")
# Matches text, quoted names and comments first, so that parameters inside them are not found.
_PARAMETER = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/ | [:@$]([A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class SQLiteLookupField(TableField):
    """Looks up rows of a table, and returns them as dicts.

    Names of tables and columns are checked against the schema of the database, and unknown names are refused.

    Attributes:
        table: name of the table or view.
        columns: names of the columns in the dict.
        on: name of the column that is compared with the value to look up.
        order_by: name of the column that orders the rows, or several names separated by commas; empty for no order.
        order_by_direction: "ASC" or "DESC".
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.

    Raises:
        ConfigurationError: if a name is empty, or another setting cannot be used.

    Example:
        >>> SQLiteLookupField("carriers", ["name"], on="code").columns
        ('name',)
    """


@dataclass(frozen=True)
class SQLiteLookupQueryField(QueryField):
    """Runs a query, and returns its rows as tuples.

    Attributes:
        query: one SELECT statement; columns of the record's value are bound to named parameters, such as `:carrier`.
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.

    Raises:
        ConfigurationError: if a setting cannot be used.

    Example:
        >>> SQLiteLookupQueryField("SELECT max(price) FROM prices WHERE item = :item AND day <= :day").ttl
        60.0
    """


class SQLiteLookup(SQLLookup):
    """Looks up rows in a SQLite database, which each process opens once, read-only.

    Results are cached for the `ttl` of their fields. Keys of records are bytes unless the topic has another key
    deserializer, and bytes never equal text: declare the topic with `key_deserializer="str"`, or look up a column.

    Args:
        path: path of the database file; it must be the same for all processes that run tasks.
        cache_size: maximum number of cached results in each process; 0 for no cache.

    Raises:
        ConfigurationError: if `cache_size` cannot be used.

    Example:
        >>> import sqlite3, tempfile
        >>> path = f"{tempfile.mkdtemp()}/airlines.sqlite"
        >>> with sqlite3.connect(path) as connection:
        ...     _ = connection.execute("CREATE TABLE carriers (code TEXT, name TEXT)")
        ...     _ = connection.execute("INSERT INTO carriers VALUES ('UA', 'United')")
        >>> connection.close()
        >>> lookup = SQLiteLookup(path)
        >>> value = {"carrier": "UA"}
        >>> lookup.join({"airline": SQLiteLookupField("carriers", ["name"], on="code")}, "UA", value, None, 0, None)
        >>> value
        {'carrier': 'UA', 'airline': {'name': 'United'}}
        >>> lookup.close()
    """

    _fields: ClassVar[tuple[type[SQLField], ...]] = (SQLiteLookupField, SQLiteLookupQueryField)
    _mark: ClassVar[str] = "?"
    _parameter: ClassVar[re.Pattern[str]] = _PARAMETER

    def __init__(self, path: str | Path, cache_size: int = 1000) -> None:
        self._path = str(path)
        super().__init__(cache_size, f"the SQLite database {self._path}")

    def __repr__(self) -> str:
        return f"SQLiteLookup({self._path!r})"

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, sqlite3.Warning, OverflowError)

    def _connect(self) -> sqlite3.Connection:
        # Read-only, so a wrong path is an error and does not create an empty database.
        uri = Path(self._path).absolute().as_uri() + "?mode=ro"
        # One thread at a time, but several threads may use a test driver in turn.
        return sqlite3.connect(uri, timeout=_BUSY_S, isolation_level=None, uri=True, check_same_thread=False)

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.OperationalError) and str(error).lower().startswith(_PASSING)

    def _columns(self, connection: sqlite3.Connection, field: Any) -> Mapping[str, str]:
        rows = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (field.table,)).fetchall()
        return _AnyCase((name.lower(), name) for (name,) in rows)

    def _table(self, field: Any) -> str:
        return self._quoted(field.table)

    def _select(self, connection: sqlite3.Connection, sql: str, bound: Any, first: bool) -> tuple[Any, ...]:
        cursor = connection.execute(sql, bound if isinstance(bound, dict) else (bound,))
        with contextlib.closing(cursor):
            return tuple(cursor.fetchmany(1) if first else cursor.fetchall())


class _AnyCase(dict[str, str]):
    """Column names, compared without regard to case."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())
