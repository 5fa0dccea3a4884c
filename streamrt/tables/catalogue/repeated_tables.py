"""Tables that a program creates each time that it runs."""

from collections.abc import Callable
from typing import Any, Final

from streamrt.errors import TableExistsError
from streamrt.tables.descriptions.info import TableInfo

__all__ = ["require_same_table"]

_PARTS: Final[tuple[tuple[str, Callable[[TableInfo], Any]], ...]] = (
    ("connector", lambda info: info.connector),
    ("connection", lambda info: info.connection),
    ("options", lambda info: dict(info.options)),
    ("topic", lambda info: info.topic),
    ("columns", lambda info: None if info.schema is None else str(info.schema)),
    ("time", lambda info: None if info.schema is None else info.schema.time),
    ("format", lambda info: info.format),
    ("format options", lambda info: dict(info.format_options)),
    ("key", lambda info: info.key),
    ("key format", lambda info: info.key_format),
    ("maintenance", lambda info: info.maintenance),
)


def require_same_table(wanted: TableInfo, found: TableInfo) -> None:
    """Raise if a table is not as a statement describes it.

    Args:
        wanted: what the statement would create.
        found: what there is.

    Raises:
        TableExistsError: if so; it names what differs.
    """
    pairs = [(part, read(wanted), read(found)) for part, read in _PARTS]
    # A table may have got these by itself or since, if the statement says nothing of them.
    if wanted.num_partitions is not None:
        pairs.append(("partitions", wanted.num_partitions, found.num_partitions))
    if wanted.comment is not None:
        pairs.append(("comment", wanted.comment, found.comment))
    pairs += [(f"setting {name}", value, found.config.get(name)) for name, value in wanted.config.items()]
    pairs += [(f"property {name}", value, found.properties.get(name)) for name, value in wanted.properties.items()]
    differing = [
        f"{part} {_shown(one)}, and the table has {_shown(other)}" for part, one, other in pairs if one != other
    ]
    if differing:
        raise TableExistsError(
            f"table {found.name!r} exists, and CREATE TABLE describes another one: {'; '.join(differing)}. Make the "
            "statement that of the table, or change the table by ALTER TABLE, or write CREATE TABLE IF NOT EXISTS to take "
            "it as it is"
        )


def _shown(value: Any) -> str:
    return "none" if value is None or value == {} else repr(value)
