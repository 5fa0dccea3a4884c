"""Common parts of lookups in SQL databases: caches, rows, and checks of fields.

Values reach a database as bound parameters only. Names of tables and columns cannot be bound: they are checked against
the schema of the database, and quoted.
"""

import abc
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from cachetools import TLRUCache

from streamrt.arguments import checked, checked_choice
from streamrt.common.backoff import Backoff
from streamrt.common.copies import deep_copy
from streamrt.errors import ArgumentTypeError, ConfigurationError, MissingColumnError, argument_error
from streamrt.forks import ForkGuard, close_with
from streamrt.joins.lookups.base import BaseField, BaseLookup, CacheInfo, LookupUnavailableError
from streamrt.records import Headers

__all__ = ["Direction", "QueryField", "SQLLookup", "TableField"]

Direction = Literal["ASC", "DESC"]
Answer = TypeVar("Answer")

_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LONGEST_S = 60.0


@dataclass(frozen=True)
class SQLField(BaseField):
    """Common base of the fields of SQL lookups.

    Attributes:
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.
    """

    def _check_parts(self) -> None:
        what, ttl = f"{type(self).__name__}(ttl=...)", vars(self)["ttl"]
        checked(what, ttl, int | float, "a number of seconds, 0 or more", lambda seconds: seconds >= 0)


@dataclass(frozen=True)
class TableField(SQLField):
    """Rows of a table whose column `on` equals the value to look up, as dicts of some columns.

    Attributes:
        table: name of the table or view.
        columns: names of the columns in the dict.
        on: name of the column that is compared.
        order_by: name of the column that orders the rows, or several names separated by commas; empty for no order.
        order_by_direction: "ASC" or "DESC".
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.
    """

    table: str
    columns: Sequence[str]
    on: str
    order_by: str = ""
    order_by_direction: Direction = "ASC"
    ttl: float = 60.0
    default: Any = None
    first_match_only: bool = True

    def __post_init__(self) -> None:
        self._check_parts()
        kind = type(self).__name__
        if isinstance(self.columns, str) or not self.columns:
            raise ArgumentTypeError(f"{kind}(columns=...) must be a list of column names, got {self.columns!r}")
        object.__setattr__(self, "columns", tuple(self.columns))
        names = (self.table, self.on, *self.columns, *self.order)
        if not all(isinstance(name, str) and name for name in names):
            raise argument_error(
                f"{kind} needs non-empty names of tables and columns, got {names!r}",
                of_type=all(isinstance(name, str) for name in names),
            )
        checked_choice(f"{kind}(order_by_direction=...)", self.order_by_direction, ("ASC", "DESC"))

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the columns that order the rows."""
        return tuple(name.strip() for name in self.order_by.split(",")) if self.order_by else ()

    def sql(self, resolve: Callable[[Sequence[str]], Sequence[str]], table: str, mark: str) -> str:
        """Return the statement.

        Args:
            resolve: function from column names to quoted names in the schema.
            table: the quoted name of the table.
            mark: the placeholder of a bound value.
        """
        columns, (on,), order = resolve(self.columns), resolve((self.on,)), resolve(self.order)
        # This text contains only names that `resolve` has quoted, and ASC or DESC.
        statement = f"SELECT {', '.join(columns)} FROM {table} WHERE {on} = {mark}"  # noqa: S608
        if order:
            statement += " ORDER BY " + ", ".join(f"{name} {self.order_by_direction}" for name in order)
        return statement + (" LIMIT 1" if self.first_match_only else "")

    def row(self, row: tuple[Any, ...]) -> Any:
        """Return the result for a row."""
        return dict(zip(self.columns, row, strict=True))


@dataclass(frozen=True)
class QueryField(SQLField):
    """Rows of a query, as tuples.

    Attributes:
        query: one SELECT statement; columns of the record's value are bound to its named parameters.
        ttl: lifetime of a cached result in seconds; 0 queries the database for each record.
        default: value of the column if no row is found.
        first_match_only: use the first row only; otherwise the column gets a list of all rows, which may be empty.
    """

    query: str
    ttl: float = 60.0
    default: Any = None
    first_match_only: bool = True

    def __post_init__(self) -> None:
        self._check_parts()
        if not isinstance(self.query, str) or not self.query.strip():
            raise argument_error(
                f"{type(self).__name__} needs a query, got {self.query!r}", of_type=isinstance(self.query, str)
            )

    def row(self, row: tuple[Any, ...]) -> Any:
        """Return the result for a row."""
        return row


@dataclass(frozen=True)
class _Plan:
    """A compiled field: its statement, and the columns of the value to bind; None for only `on`."""

    sql: str
    parameters: tuple[str, ...] | None


class SQLLookup(BaseLookup[Any]):
    """Queries a database, and caches the last `cache_size` results in each process.

    Args:
        cache_size: maximum number of cached results; 0 for no cache.
        name: the database's name in errors.
    """

    def __init__(self, cache_size: int, name: str) -> None:
        what = f"{type(self).__name__}(cache_size=...)"
        self._cache_size = checked(what, cache_size, int, "a number, 0 or more", lambda number: number >= 0)
        self._name = name
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._fork_guard = ForkGuard()
        self._connection: Any = None
        self._close_connection: Callable[[], object] | None = None
        self._plans: dict[int, tuple[Any, _Plan]] = {}
        self._cache: TLRUCache[Any, tuple[float, tuple[Any, ...]]] = TLRUCache(
            self._cache_size, _expiry_time, timer=time.monotonic
        )
        self._hits = self._misses = 0

    def __getstate__(self) -> dict[str, Any]:
        # Connections and caches belong to a process.
        state = vars(self).copy()
        for name in ("_fork_guard", "_connection", "_close_connection", "_plans", "_cache", "_hits", "_misses"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin_batch()

    def join(
        self,
        fields: Mapping[str, Any],
        on: Any,
        value: dict[str, Any],
        key: Any,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        """Set a column of `value` for each field; see `BaseLookup.join`.

        Raises:
            LookupUnavailableError: if the database does not answer after several attempts.
            ConfigurationError: if a field names an unknown table or column, or the database refuses the query.
            MissingColumnError: if the value lacks a column that a query needs.
        """
        if not self._fork_guard.is_own:
            # After a fork, the connection belongs to the parent process.
            self._begin_batch()
        found = {column: self._find_value(field, on, value) for column, field in fields.items()}
        value.update(found)

    def cache_info(self) -> CacheInfo:
        """Return statistics of the cache in this process, since the lookup was made or last closed.

        Tasks have separate lookups, in their processes.
        """
        return CacheInfo(hits=self._hits, misses=self._misses, size=len(self._cache), maxsize=self._cache_size)

    def close(self) -> None:
        """Close the connection and clear the cache. The next record opens the connection again."""
        self._drop_connection()
        self._begin_batch()

    def _find_value(self, field: Any, on: Any, value: dict[str, Any]) -> Any:
        plan = self._plan_field(field)
        rows: tuple[Any, ...]
        if plan.parameters is None:
            # NULL equals nothing, so no query is needed.
            rows = () if on is None else self._query_rows(field, plan.sql, on)
        else:
            missing = next((name for name in plan.parameters if name not in value), None)
            if missing is not None:
                raise MissingColumnError(missing, tuple(value))
            rows = self._query_rows(field, plan.sql, {name: value[name] for name in plan.parameters})
        if not field.first_match_only:
            return [field.row(deep_copy(row)) for row in rows]
        return field.row(deep_copy(rows[0])) if rows else deep_copy(field.default)

    def _query_rows(self, field: Any, sql: str, bound: Any) -> tuple[Any, ...]:
        """Return the rows of a statement, from the cache if they are not older than `ttl`."""
        ttl, first = field.ttl, field.first_match_only
        values = tuple(bound.values()) if isinstance(bound, dict) else (bound,)
        # 1, 1.0 and True are equal as dict keys, but not in all databases.
        question = (sql, first, ttl, tuple(map(type, values)), values)
        # Lists and dicts cannot be keys.
        cached = ttl > 0 and self._cache_size > 0 and all(isinstance(value, Hashable) for value in values)
        known = self._cache.get(question) if cached else None
        if known is not None:
            self._hits += 1
            return known[1]
        self._misses += cached
        rows = self._query_database(lambda connection: self._select(connection, sql, bound, first))
        if cached:
            self._cache[question] = (ttl, rows)
        return rows

    def _plan_field(self, field: Any) -> _Plan:
        # By identity, which is fast; a reference to the field keeps its id from being reused.
        known = self._plans.get(id(field))
        if known is None:
            known = self._plans[id(field)] = field, self._make_plan(field)
        return known[1]

    def _make_plan(self, field: Any) -> _Plan:
        if not isinstance(field, self._fields):
            names = " or ".join(kind.__name__ for kind in self._fields)
            raise ArgumentTypeError(f"{type(self).__name__} needs fields of {names}, got {type(field).__name__}")
        if isinstance(field, QueryField):
            parameters = dict.fromkeys(found[1] for found in self._parameter.finditer(field.query) if found[1])
            return _Plan(field.query, tuple(parameters))
        return _Plan(self._make_statement(field), None)

    def _make_statement(self, field: Any) -> str:
        available = self._query_database(lambda connection: self._columns(connection, field))
        table = self._table(field)
        if not available:
            raise ConfigurationError(f"{self._name} has no table {table}, which a {type(field).__name__} names")

        def resolve(names: Sequence[str]) -> list[str]:
            missing = [name for name in names if name not in available]
            if missing:
                known = ", ".join(map(repr, available.values()))
                raise ConfigurationError(
                    f"table {table} of {self._name} has no column {missing[0]!r}; its columns: {known}"
                )
            return [self._quoted(available[name]) for name in names]

        return str(field.sql(resolve, table, self._mark))

    def _query_database(self, question: Callable[[Any], Answer]) -> Answer:
        """Query the database, with several attempts if it does not answer.

        Raises:
            LookupUnavailableError: if the last attempt fails.
        """
        backoff = Backoff(_FIRST_PAUSE_S, time.monotonic() + _LONGEST_S, longest_s=_LONGEST_PAUSE_S, attempts=_ATTEMPTS)
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                    # For a lookup that is not closed.
                    self._close_connection = close_with(self, self._connection)
                return question(self._connection)
            except self._errors as error:
                self._drop_connection()
                if not self._is_passing(error):
                    raise ConfigurationError(f"{self._name} refuses a lookup: {str(error).strip()}") from error
                if not backoff.pause():
                    raise LookupUnavailableError(
                        f"{self._name} did not answer a lookup, even after retries: {str(error).strip()}; the records "
                        "are processed again when the application continues"
                    ) from error

    def _drop_connection(self) -> None:
        close, self._connection, self._close_connection = self._close_connection, None, None
        if close is not None:
            close()

    # -- Implemented for each database -----------------------------------------------------------------------------

    _fields: ClassVar[tuple[type[SQLField], ...]]
    """The supported classes of fields."""

    _mark: ClassVar[str]
    """The placeholder of a bound value in a statement."""
    _parameter: ClassVar[re.Pattern[str]]
    """Matches the parameters of query fields; its group is the name."""

    @property
    @abc.abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of the database driver."""

    def _quoted(self, name: str) -> str:
        """Return the name of a table or a column, quoted for a statement."""
        return quoted(name)

    @abc.abstractmethod
    def _connect(self) -> Any:
        """Open a connection."""

    @abc.abstractmethod
    def _is_passing(self, error: BaseException) -> bool:
        """Return whether another attempt may succeed."""

    @abc.abstractmethod
    def _columns(self, connection: Any, field: Any) -> Mapping[str, str]:
        """Return the columns of a field's table, as the database spells them; empty if the table does not exist."""

    @abc.abstractmethod
    def _table(self, field: Any) -> str:
        """Return the quoted name of a field's table."""

    @abc.abstractmethod
    def _select(self, connection: Any, sql: str, bound: Any, first: bool) -> tuple[Any, ...]:
        """Return the rows of a statement, or the first one only."""


def quoted(name: str) -> str:
    """Return a quoted SQL name.

    Example:
        >>> quoted('a"b')
        '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def _expiry_time(question: Any, answer: tuple[float, tuple[Any, ...]], now: float) -> float:
    return now + answer[0]
