"""Spark SQL with the rows that tables have after some changes, in ANSI mode and in UTC."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from streamrt.schema import Schema
from tests.sql.worlds import Change, Row, apply_changes

__all__ = ["SparkBatch"]


class SparkBatch:
    """The counterpart of `Batch`.

    Args:
        session: a session of Spark.
        tables: the schemas, by the names of tables.
    """

    def __init__(self, session: Any, tables: Mapping[str, Schema]) -> None:
        self._session = session
        self._schemas = tables
        self._rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in tables}
        for name, value in (("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC")):
            session.conf.set(name, value)
        # TIMESTAMP has no time zone in StreamRT.
        session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")

    def apply(self, changes: Iterable[Change]) -> None:
        """Take over changes; rows without a key are all kept."""
        apply_changes(self._rows, self._schemas, changes)

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query."""
        for name, schema in self._schemas.items():
            columns = ", ".join(
                f"{column} {'TIMESTAMP_NTZ' if type_ == 'TIMESTAMP' else type_}"
                for column, type_ in zip(schema.names, schema.types, strict=True)
            )
            rows = [tuple(row.values()) for row in self._rows[name].values()]
            self._session.createDataFrame(rows, columns).createOrReplaceTempView(name)
        return [tuple(map(_convert, row)) for row in self._session.sql(query).collect()]


def _convert(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
