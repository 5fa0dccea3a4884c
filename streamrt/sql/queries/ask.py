"""Queries: from a text to rows that are read when they are asked for."""

from collections.abc import Callable, Mapping
from typing import Any

from streamrt.arguments import checked_int
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SQLNotSupportedError, SQLSyntaxError
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.queries.arguments import bind_arguments
from streamrt.sql.queries.checked_query import CheckedQuery, QueryLimits
from streamrt.sql.queries.duckdb_query import DuckDBQuery
from streamrt.sql.queries.query_sources import QueryHome
from streamrt.sql.reading import Statement, parse_statements
from streamrt.sql.reading.dialect import read_tokens, syntax_error_at
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES
from streamrt.tables.reading.query_result import QueryResult, RunnableQuery

__all__ = ["MakeQuery", "ask", "check_limits", "read_statement"]

MakeQuery = Callable[[CheckedQuery], RunnableQuery]
"""Returns a query that an engine computes."""

_FIRST_WORDS = frozenset(
    [
        *(
            "SELECT",
            "WITH",
            "VALUES",
            "FROM",
            "(",
            ";",
            "INSERT",
            "UPDATE",
            "DELETE",
            "MERGE",
            "CREATE",
            "ALTER",
            "DROP",
        ),
        *("TRUNCATE", "REPLACE", "USE", "SET", "SHOW", "EXPLAIN"),
    ]
)


def ask(
    home: QueryHome,
    sql: str,
    args: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    timeout: float | None = 60.0,
    after: Offsets | str | None = None,
    max_scan_bytes: int = MAX_SCAN_BYTES,
    engine: MakeQuery = DuckDBQuery,
) -> QueryResult:
    """Return the rows of a query; `Catalog.query` says what the arguments are.

    Args:
        home: where the names in it lead.
        sql: the query.
        args: values of its parameters.
        limit: most rows.
        timeout: seconds.
        after: a completion token.
        max_scan_bytes: bytes of records.
        engine: computes it.
    """
    limits = check_limits("query", limit, timeout, max_scan_bytes)
    token = Offsets.parse(after) if isinstance(after, str) else after
    if token is not None and not isinstance(token, Offsets):
        raise ArgumentTypeError(f"query(after=...) takes Offsets, or their text, got {type(after).__name__}")
    statement = read_statement(sql, "query")
    if statement.kind != "query" or statement.tree is None:
        raise SQLNotSupportedError(
            "query() reads, and changes nothing: a SELECT was expected; INSERT, UPDATE, DELETE, CREATE, ALTER and DROP "
            "are for execute()",
            *(statement.line, statement.column),
        )
    return QueryResult(engine(CheckedQuery(home, bind_arguments(statement.tree, args, "query"), limits, token)))


def read_statement(sql: str, method: str) -> Statement:
    """Return the only statement of a text.

    Raises:
        SQLSyntaxError: if it cannot be read, or has none, or several.
    """
    if not isinstance(sql, str):
        raise ArgumentTypeError(f"{method}() takes a text of SQL, got {type(sql).__name__}")
    words = read_tokens(sql)
    if words and words[0].text.upper() not in _FIRST_WORDS:
        raise syntax_error_at(sql, words[0], "no statement begins so; a query begins with SELECT, WITH, FROM or VALUES")
    statements = parse_statements(sql)
    if not statements:
        raise SQLSyntaxError("the text has no statement")
    if len(statements) > 1:
        second = statements[1]
        raise SQLSyntaxError(
            f"{method}() takes one statement, and a second one begins here", second.line, second.column
        )
    return statements[0]


def check_limits(method: str, limit: int | None, timeout: float | None, max_scan_bytes: int) -> QueryLimits:
    """Return the limits of a query.

    Raises:
        ArgumentValueError: if one is out of range. Types are checked as well.
    """
    if limit is not None:
        checked_int(f"{method}(limit=...)", limit, 0, "a number of rows")
    checked_int(f"{method}(max_scan_bytes=...)", max_scan_bytes, 1, "a number of bytes")
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ArgumentTypeError(f"{method}(timeout=...) is a number of seconds, got {type(timeout).__name__}")
        if not timeout > 0:
            raise ArgumentValueError(f"{method}(timeout=...) must be above 0 seconds, got {timeout!r}")
    return QueryLimits(limit, timeout, max_scan_bytes)
