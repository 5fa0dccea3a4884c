"""What only tables with a primary key, or in a lake, can do: others say why, and what does the same."""

from typing import NoReturn

from streamrt.errors import InvalidOperationError
from streamrt.tables.descriptions.info import TableInfo

__all__ = ["refuse_lake", "require_primary_key"]

_LOOKUPS = "create a table with PRIMARY KEY for rows that are found by a key, or read all of them by scan()"
_LAKES = "sinks of an application write files to object stores, and scan().to_parquet() writes one file"
_INSTEAD = {
    "get": _LOOKUPS,
    "get_many": _LOOKUPS,
    "prefix": _LOOKUPS,
    "replica": f"subscribe() follows the rows; {_LOOKUPS}",
    "snapshot": "scan() reads the rows up to a position, and subscribe(start=scan.end) goes on",
}


def require_primary_key(info: TableInfo, method: str) -> None:
    """Check that rows of a table have keys.

    Args:
        info: the table.
        method: name of the method that needs them.

    Raises:
        InvalidOperationError: if they have none; the message says what to do instead.

    Example:
        >>> from streamrt.tables import Catalog, MemoryCatalog
        >>> table = Catalog(store=MemoryCatalog()).create_table("visits", "id BIGINT")
        >>> try:
        ...     table.snapshot()
        ... except InvalidOperationError as error:
        ...     print(str(error).partition(":")[0])
        snapshot() needs a table with a primary key, and 'default.visits' is a log table
    """
    if info.kind == "primary-key":
        return
    reason = f"and {info.name!r} is a log table"
    if info.kind == "external":
        reason = f"and the rows of table {info.name!r} are in another system ({info.connector})"
    raise InvalidOperationError(f"{method}() needs a table with a primary key, {reason}: {_INSTEAD[method]}")


def refuse_lake(info: TableInfo) -> NoReturn:
    """Raise InvalidOperationError: no table is in a lake.

    Args:
        info: the table.
    """
    raise InvalidOperationError(
        f"lake_snapshot() of table {info.name!r} is not there yet, because no table is in a lake: {_LAKES}"
    )
