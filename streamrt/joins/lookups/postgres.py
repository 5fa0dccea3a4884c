"""Lookups in a PostgreSQL database."""

import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import SecretStr

from streamrt.arguments import checked
from streamrt.errors import ArgumentTypeError, ConfigurationError
from streamrt.extras import install_command
from streamrt.joins.lookups.sql import Direction, QueryField, SQLField, SQLLookup, TableField, quoted
from streamrt.secret import Secret

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresLookup", "PostgresLookupField", "PostgresLookupQueryField"]

# In psycopg's statements, a percent sign that is not part of a parameter is doubled.
_PARAMETER = re.compile(r"%%|%\(([^)]*)\)[sbt]")
_COLUMNS = """
    SELECT a.attname FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


@dataclass(frozen=True)
class PostgresLookupField(TableField):
    """Looks up rows of a table, and returns them as dicts; made by `PostgresLookup.field`.

    Attributes:
        table: name of the table or view.
        columns: names of the columns in the dict.
        on: name of the column that is compared with the value to look up.
        order_by: name of the column that orders the rows, or several names separated by commas; empty for no order.
        order_by_direction: "ASC" or "DESC".
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.
        schema: schema of the table.
    """

    schema: str = "public"


@dataclass(frozen=True)
class PostgresLookupQueryField(QueryField):
    """Runs a query, and returns its rows as tuples; made by `PostgresLookup.query_field`.

    Attributes:
        query: one SELECT statement; columns of the record's value are bound to named parameters, such as `%(carrier)s`.
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.
    """


class PostgresLookup(SQLLookup):
    """Looks up rows in a PostgreSQL database, over one read-only connection in each process.

    Results are cached for the `ttl` of their fields. The password is in no `repr`, log line or pickled task.
    Needs the extra `postgres`.

    Args:
        host: host of the server, or the directory of its socket.
        port: port of the server.
        dbname: name of the database.
        user: name of the user.
        password: the password, or a function that returns it. The process that opens a connection calls the function,
            so it can read an environment variable, a file or a vault there. A string reaches tasks by a broadcast of Spark.
        connection_timeout_seconds: time limit for opening a connection, in seconds.
        statement_timeout_seconds: time limit of the server for one lookup, in seconds.
        cache_size: maximum number of cached results in each process; 0 for no cache.
        kwargs: more connection settings of `psycopg.connect`, such as `sslmode`.

    Raises:
        ConfigurationError: if a setting cannot be used, or psycopg is not installed.

    Example:
        ```python
        lookup = PostgresLookup("db", 5432, "shop", "reader", password=lambda: os.environ["DB_PASSWORD"])
        fields = {
            "customer": lookup.field("customers", ["name", "city"], on="id"),
            "orders": lookup.query_field("SELECT count(*) FROM orders WHERE customer = %(customer_id)s"),
        }
        sdf = sdf.join_lookup(lookup, fields, on="customer_id")
        ```
    """

    _fields: ClassVar[tuple[type[SQLField], ...]] = (PostgresLookupField, PostgresLookupQueryField)
    _mark: ClassVar[str] = "%s"
    _parameter: ClassVar[re.Pattern[str]] = _PARAMETER

    def __init__(
        self,
        host: str,
        port: int,
        dbname: str,
        user: str,
        password: str | SecretStr | Callable[[], str],
        connection_timeout_seconds: int = 30,
        statement_timeout_seconds: int = 30,
        cache_size: int = 1000,
        **kwargs: Any,
    ) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigurationError(f"PostgresLookup needs psycopg: run {install_command('postgres')}")
        for name, seconds in (
            ("connection_timeout_seconds", connection_timeout_seconds),
            ("statement_timeout_seconds", statement_timeout_seconds),
        ):
            what = f"PostgresLookup({name}=...)"
            checked(what, seconds, int | float, "1 second or more", lambda n: isinstance(n, int) and n >= 1)
        self._settings: dict[str, Any] = {"host": host, "port": port, "dbname": dbname, "user": user}
        self._connection_timeout = connection_timeout_seconds
        self._statement_timeout = statement_timeout_seconds
        self._make_password: Callable[[], str] | None = None
        hidden = _check_settings(kwargs)
        if isinstance(password, SecretStr):
            password = password.get_secret_value()
        if callable(password):
            self._make_password = password
        elif isinstance(password, str):
            hidden["password"] = password
        else:
            raise ArgumentTypeError(
                "PostgresLookup(password=...) must be a string or a function that returns one, got "
                f"{type(password).__name__}"
            )
        self._hidden = Secret(json.dumps(hidden))
        super().__init__(cache_size, f"the PostgreSQL database {dbname!r} at {host}:{port}")

    def __repr__(self) -> str:
        return f"PostgresLookup({', '.join(map(repr, self._settings.values()))}, ***)"

    def field(
        self,
        table: str,
        columns: Sequence[str],
        on: str,
        order_by: str = "",
        order_by_direction: Direction = "ASC",
        schema: str = "public",
        ttl: float = 60.0,
        default: Any = None,
        first_match_only: bool = True,
    ) -> PostgresLookupField:
        """Return a field that looks up rows of a table, and returns them as dicts.

        Args:
            table: name of the table or view.
            columns: names of the columns in the dict.
            on: name of the column that is compared with the value to look up.
            order_by: name of the column that orders the rows, or several names separated by commas; empty for no order.
            order_by_direction: "ASC" or "DESC".
            schema: schema of the table.
            ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
            default: value of the column if no row is found.
            first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.

        Raises:
            ConfigurationError: if a name is empty, or another setting cannot be used.
        """
        return PostgresLookupField(
            table, columns, on, order_by, order_by_direction, ttl, default, first_match_only, schema
        )

    def query_field(
        self, query: str, ttl: float = 60.0, default: Any = None, first_match_only: bool = True
    ) -> PostgresLookupQueryField:
        """Return a field that runs a query, and returns its rows as tuples.

        Args:
            query: one SELECT statement; columns of the record's value are bound to named parameters, such as
                `%(carrier)s`. Double all other percent signs.
            ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
            default: value of the column if no row is found.
            first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.

        Raises:
            ConfigurationError: if a setting cannot be used.
        """
        return PostgresLookupQueryField(query, ttl, default, first_match_only)

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error,)

    def _connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        import psycopg

        settings = {**self._settings, **json.loads(self._hidden.reveal())}
        if self._make_password is not None:
            settings["password"] = self._make_password()
        own = f"-c statement_timeout={self._statement_timeout * 1000} -c default_transaction_read_only=on"
        settings["options"] = f"{own} {settings.get('options') or ''}".rstrip()
        settings.setdefault("connect_timeout", self._connection_timeout)
        settings.setdefault("application_name", "streamrt")
        return psycopg.connect(autocommit=True, **settings)

    def _is_passing(self, error: BaseException) -> bool:
        import psycopg

        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

    def _columns(self, connection: Any, field: Any) -> Mapping[str, str]:
        return {name: name for (name,) in connection.execute(_COLUMNS, (field.schema, field.table)).fetchall()}

    def _table(self, field: Any) -> str:
        return f"{self._quoted(field.schema)}.{self._quoted(field.table)}"

    def _quoted(self, name: str) -> str:
        return quoted(name).replace("%", "%%")

    def _select(self, connection: Any, sql: str, bound: Any, first: bool) -> tuple[Any, ...]:
        with connection.execute(sql, bound if isinstance(bound, dict) else (bound,)) as cursor:
            return tuple(cursor.fetchmany(1) if first else cursor.fetchall())


def _check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return additional connection settings, if psycopg knows them all."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool | None):
            raise ArgumentTypeError(
                f"PostgresLookup({name}=...) must be a string or a number, got {type(value).__name__}: settings are "
                "sent to other processes"
            )
    try:
        # prepare_threshold is a setting of psycopg, not of libpq.
        make_conninfo("", **{name: value for name, value in settings.items() if name != "prepare_threshold"})
    except ProgrammingError:
        # The original message would show values.
        names = ", ".join(settings)
        raise ConfigurationError(
            f"PostgresLookup got unsupported settings among {names}: it takes the connection settings of libpq, and "
            "prepare_threshold"
        ) from None
    return dict(settings)
