"""Methods of tables that do not exist yet: each says why, and what does the same today."""

from typing import NoReturn

from streamrt.errors import InvalidOperationError
from streamrt.tables.descriptions.info import TableInfo

__all__ = ["refuse"]

_LOOKUPS = (
    "keep the rows of app.dataframe(table) in the state of an application, and ask it by app.query_state(), or read all of "
    "them by scan()"
)
_LAKES = "sinks of an application write files to object stores, and scan().to_parquet() writes one file"
_INSTEAD = {
    "get": _LOOKUPS,
    "get_many": _LOOKUPS,
    "prefix": _LOOKUPS,
    "replica": f"subscribe() follows the rows; {_LOOKUPS}",
    "snapshot": "scan() reads the rows up to a position, and subscribe(start=scan.end) goes on",
}


def refuse(info: TableInfo, method: str) -> NoReturn:
    """Raise InvalidOperationError: a method needs a primary key, or a lake, and what does the same today.

    Args:
        info: the table.
        method: name of the method.

    Example:
        >>> from streamrt.tables import Catalog, MemoryCatalog
        >>> table = Catalog(store=MemoryCatalog()).create_table("visits", "id BIGINT")
        >>> try:
        ...     table.snapshot()
        ... except InvalidOperationError as error:
        ...     print(str(error).partition(":")[0])
        snapshot() needs a table with a primary key, and 'default.visits' is a log table
    """
    if method == "lake_snapshot":
        raise InvalidOperationError(
            f"lake_snapshot() of table {info.name!r} is not there yet, because no table is in a lake: {_LAKES}"
        )
    name, kind = info.name, info.kind
    if kind == "log":
        reason = f"needs a table with a primary key, and {name!r} is a log table"
    elif kind == "external":
        reason = (
            f"needs a table with a primary key, and the rows of table {name!r} are in another system ({info.connector})"
        )
    else:
        reason = f"is not there yet for table {name!r}, because tables with a primary key are written and scanned"
    raise InvalidOperationError(f"{method}() {reason}: {_INSTEAD[method]}")
