"""The log table `<table>$changelog` with the changes of a maintained table.

A catalogue keeps no document of it: it follows from that of the table, with whose schema it changes.
"""

from dataclasses import replace

from streamrt.errors import TableNotFoundError
from streamrt.schema import Schema
from streamrt.tables.descriptions.info import TableInfo, required_schema
from streamrt.tables.descriptions.maintenance import CHANGELOG_SUFFIX

__all__ = ["describe_changelog", "is_changelog", "strip_changelog_suffix"]

_ADDED = (
    {"name": "_change_type", "type": "STRING", "nullable": False, "comment": "+I, -U, +U or -D"},
    {"name": "_at", "type": "TIMESTAMP_LTZ", "nullable": False, "comment": "time of the change"},
)


def is_changelog(name: str) -> bool:
    """Return whether a name is that of a log of changes."""
    return name.endswith(CHANGELOG_SUFFIX)


def strip_changelog_suffix(name: str) -> str:
    """Return the name of the table whose changes a log has; other names as they are.

    Example:
        >>> strip_changelog_suffix("shop.customers$changelog"), strip_changelog_suffix("shop.customers")
        ('shop.customers', 'shop.customers')
    """
    return name.removesuffix(CHANGELOG_SUFFIX)


def describe_changelog(table: TableInfo) -> TableInfo:
    """Return the description of the log table with the changes of a table.

    Its rows are JSON, whatever those of the table are, with `_change_type` and `_at` before the columns of the table; their
    keys are those of the table.

    Args:
        table: a maintained table.

    Raises:
        TableNotFoundError: if it has no such log.
    """
    if table.maintenance is None or not table.maintenance.changelog:
        raise TableNotFoundError(
            f"table {table.name!r} has no log of its changes: it was created without changelog=True; "
            "subscribe(changes='full') returns the changes of a table from now on"
        )
    return replace(
        table,
        name=f"{table.name}{CHANGELOG_SUFFIX}",
        kind="log",
        id=f"{table.id}{CHANGELOG_SUFFIX}",
        topic=table.changelog_topic,
        options={"topic": table.changelog_topic},
        format="json",
        format_options={},
        schema=_with_changes(required_schema(table)),
        schema_history={number: _with_changes(schema) for number, schema in table.schema_history.items()},
        config={},
        comment=f"changes of {table.name}",
        properties={},
        maintenance=None,
        maintained_by=None,
    )


def _with_changes(schema: Schema) -> Schema:
    return Schema([*_ADDED, *schema.columns], time="_at")
