"""`TableLookup`: rows of a table with a primary key, of which each process has a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    LookupTimeoutError,
    TopicNotFoundError,
)
from streamrt.joins.lookups.base import BaseField, BaseLookup, LookupUnavailableError
from streamrt.kafka import KafkaRequestError
from streamrt.records import Headers

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.table import Table

__all__ = ["USE_TABLE", "TableField", "TableLookup"]


@dataclass(frozen=True)
class TableField(BaseField):
    """What a lookup in a table finds.

    Attributes:
        columns: the column whose value is found; or a list of columns, for a dict of them; None for the whole row.
        default: what is found if there is no such row.

    Example:
        >>> TableField("name").find({"code": "FR", "name": "France"})
        'France'
        >>> TableField(["name"], default={}).find(None)
        {}
    """

    columns: str | Sequence[str] | None = None
    default: Any = None

    def __post_init__(self) -> None:
        names = [self.columns] if isinstance(self.columns, str) else self.columns
        if names is not None and (not names or not all(isinstance(name, str) for name in names)):
            raise ArgumentTypeError(f"TableField(columns=...) takes names of columns, got {self.columns!r}")

    def find(self, row: Mapping[str, Any] | None) -> Any:
        """Return what is found in a row, or the default for None."""
        if row is None:
            return self.default
        if self.columns is None:
            return dict(row)
        return row[self.columns] if isinstance(self.columns, str) else {name: row[name] for name in self.columns}


USE_TABLE: Final = (
    "app.table(everywhere=True) gives rows to join_lookup() only; leave everywhere=True out for a table with filters, joins "
    "and aggregates"
)
"""What to do instead with a lookup that is taken for a table."""


class TableLookup(BaseLookup[TableField]):
    """Finds rows of a table with a primary key; `app.table(table, everywhere=True)` makes one.

    Each process that runs tasks has a copy of the table in memory. The first lookup in a partition of the table reads it to
    its end; from then on the copy follows. So all rows that are there when an application starts are found, whatever the
    partitions of its own topics are. Later changes arrive within moments, and are not part of its transactions: a record
    that is processed again may find another row.

    Args:
        table: the table.
        timeout: seconds that a lookup waits for the copy. After that, the record is processed again.

    Raises:
        InvalidOperationError: if the table has no primary key, or is in another system.

    Example:
        ```python
        countries = app.table("ref.countries", everywhere=True)
        sdf.join_lookup(countries, {"country": TableField("name")}, on="code")
        ```
    """

    def __init__(self, table: Table, timeout: float = 30.0) -> None:
        if table.kind != "primary-key":
            raise InvalidOperationError(
                f"table(everywhere=True) finds rows by their key, and table {table.name!r} has no primary key here: let an "
                "application write the rows by to_table() into a table that has one"
            )
        self._table = table
        self._timeout = timeout
        self._fresh = False

    @property
    def table(self) -> Table:
        """The table."""
        return self._table

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a lookup has no {name!r}: {USE_TABLE}")

    def __getitem__(self, item: object) -> NoReturn:
        raise InvalidOperationError(f"a lookup has no columns and conditions: {USE_TABLE}")

    def join(  # noqa: D102
        self,
        fields: Mapping[str, TableField],
        on: Any,
        value: dict[str, Any],
        key: Any,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        try:
            # A null matches nothing, as in SQL.
            is_null = on is None or (isinstance(on, list | tuple) and None in on)
            row = None if is_null else self._table.get(on, fresh=self._fresh, timeout=self._timeout)
        except (KafkaRequestError, LookupTimeoutError, TopicNotFoundError) as error:
            raise LookupUnavailableError(str(error)) from error
        for column, field in fields.items():
            value[column] = field.find(row)

    def reading(self, table: Table) -> TableLookup:
        """Return a lookup in another table of the same rows, each time as it is then; for tests.

        Args:
            table: the table.
        """
        lookup = TableLookup(table, self._timeout)
        lookup._fresh = True
        return lookup

    def require_fields(self, fields: Mapping[str, BaseField]) -> None:
        """Refuse fields of other lookups, and columns that the table does not have."""
        names = self._table.schema.names
        for column, field in fields.items():
            if not isinstance(field, TableField):
                raise ArgumentTypeError(
                    f"join_lookup(fields=...): column {column!r} of a lookup in table {self._table.name} needs a TableField, "
                    f"got {type(field).__name__}"
                )
            wanted = (field.columns,) if isinstance(field.columns, str) else field.columns or ()
            unknown = [name for name in wanted if name not in names]
            if unknown:
                raise ArgumentValueError(
                    f"join_lookup(fields=...): table {self._table.name} has no column {unknown[0]!r}; it has "
                    f"{', '.join(names)}"
                )

    def __getstate__(self) -> Any:
        from streamrt.tables.replicas.task_home import TaskHome

        home: Any = self._table.home
        return home if isinstance(home, TaskHome) else TaskHome(self._table.info, home), self._timeout

    def __setstate__(self, state: Any) -> None:
        from streamrt.tables.table import Table

        home, self._timeout = state
        self._table = Table(home.info, home)
        self._fresh = False

    def __repr__(self) -> str:
        return f"TableLookup({self._table.name})"
