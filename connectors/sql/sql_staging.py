"""Rows that may exist already, on their way through a temporary table.

All rows of a commit are staged as they come, with their number, so that the database decides which of them have equal keys:
collations, numbers, times and padding make keys equal that differ as Python sees them. Rows of one key get turns, and the
rows of one turn have different keys:

| id  | price | stock | row | has | turn |
|-----|-------|-------|-----|-----|------|
| 7   | 1.50  |       | 0   | 10  | 1    |
| 07  | 1.60  |       | 1   | 10  | 0    |
| 7   | 1.70  |       | 2   | 10  | 2    |
| 7   |       | 5     | 3   | 01  | 3    |

The first row of a key comes first, since it decides how the key is spelled. Of the others, the last one of those with the
same columns counts (turn 0 is left out): `has` says which of the columns that some rows lack a row has.
"""

from collections.abc import Callable, Sequence
from typing import Any

from streamrt.connectors.sql.sql_rows import Row, TableRows

__all__ = ["STAGED", "Staging"]

STAGED = "streamrt_staged"


class Staging:
    """Statements for a temporary table. The table in which rows end has the alias `t`, the temporary one `s`.

    Args:
        target: the table in which the rows end, quoted.
        staged: the temporary table.
        rows: the rows.
        columns: the columns to write.
        defaults: columns with a default, which a new row gets if it lacks the column.
        quoted: returns a name as an identifier.
        key: returns an expression that is equal for values that the primary key takes for equal.
    """

    def __init__(
        self,
        target: str,
        staged: str,
        rows: TableRows,
        columns: Sequence[str],
        defaults: frozenset[str],
        quoted: Callable[[str], str],
        key: Callable[[str, str], str] | None = None,
    ) -> None:
        self.target, self.staged = target, staged
        self._quoted = quoted
        self._key = key or (lambda table, column: f"{table}.{quoted(column)}")
        self._primary_key = rows.primary_key
        self.columns = list(columns)
        # The names of the table's own columns are free.
        prefix = "streamrt_"
        while any(column.lower().startswith(prefix) for column in columns):
            prefix += "_"
        self.row, self._has, self._part, self.turn = (f"{prefix}{name}" for name in ("row", "has", "part", "turn"))
        shapes = {frozenset(shape) for shape in set(map(tuple, rows.rows))}
        self.sparse = [column for column in columns if not all(column in shape for shape in shapes)]
        self._defaults = [column for column in self.sparse if column in defaults]
        self.parts: dict[tuple[str, ...], int] = {}

    @property
    def extra(self) -> tuple[str, str, str, str]:
        """Names of the columns for numbers of rows, for the columns that they have, for parts and for turns."""
        return self.row, self._has, self._part, self.turn

    def fields(self, row: Row, number: int) -> tuple[int, str, int, int]:
        """Return the values of `extra` for a row."""
        has = "".join("1" if column in row else "0" for column in self.sparse)
        lacking = tuple(column for column in self._defaults if column not in row)
        return number, has, self.parts.setdefault(lacking, len(self.parts)), 1

    def create(self, how: str) -> str:
        """Return the statement that creates the temporary table.

        Args:
            how: what begins it, such as `CREATE TEMPORARY TABLE`.
        """
        extra = ", ".join(f"{value} AS {name}" for name, value in zip(self.extra, ("0", "''", "0", "0"), strict=True))
        return f"{how} AS SELECT {self._column_names(self.columns)}, {extra} FROM {self.target} LIMIT 0"  # noqa: S608

    @property
    def find_equal_keys(self) -> str:
        """A query that returns a row if keys are equal."""
        return f"SELECT 1 FROM {self.staged} s GROUP BY {self._key_columns('s')} HAVING count(*) > 1 LIMIT 1"  # noqa: S608

    @property
    def take_turns(self) -> str:
        """The statement that gives turns to rows with equal keys; without it, all have the first one."""
        keys = self._key_columns("s")
        names = [f"{self._key('s', column)} AS k{number}" for number, column in enumerate(self._primary_key)]
        ranked = (
            f"SELECT s.{self.row} AS n, {', '.join(names)},"  # noqa: S608
            f" row_number() OVER (PARTITION BY {keys} ORDER BY s.{self.row}) AS older,"
            f" row_number() OVER (PARTITION BY {keys}, s.{self._has} ORDER BY s.{self.row} DESC) AS newer"
            f" FROM {self.staged} s"
        )
        own = ", ".join(f"k{number}" for number in range(len(self._primary_key)))
        # Rows of a key that count come before the others of their key.
        counted = (
            f"SELECT n, older = 1 OR newer = 1 AS counts, row_number() OVER (PARTITION BY {own},"  # noqa: S608
            f" older = 1 OR newer = 1 ORDER BY n) AS turn FROM ({ranked}) ranked"
        )
        return (
            f"UPDATE {self.staged} SET {self.turn} = CASE WHEN c.counts THEN c.turn ELSE 0 END"  # noqa: S608
            f" FROM ({counted}) c WHERE c.n = {self.staged.rpartition('.')[2]}.{self.row}"
        )

    @property
    def count_turns(self) -> str:
        """A query for the last turn."""
        return f"SELECT max(s.{self.turn}) FROM {self.staged} s"  # noqa: S608

    def inserted(self, lacking: tuple[str, ...]) -> str:
        """Return the quoted names of the columns of a part, which lacks some with a default."""
        return self._column_names([column for column in self.columns if column not in lacking])

    def where(self, part: int, turn: int) -> str:
        """Return the condition for the rows of one statement."""
        return f"s.{self._part} = {part} AND s.{self.turn} = {turn}"

    def updates(self, new: str) -> list[tuple[str, str]]:
        """Return the columns that a row replaces, and their new values: a column that the row lacks stays.

        Args:
            new: the alias of the new row.
        """
        updates = []
        for column in self.columns:
            if column in self._primary_key:
                continue
            name = self._quoted(column)
            value = f"{new}.{name}"
            if column in self.sparse:
                has = f"substr(s.{self._has}, {self.sparse.index(column) + 1}, 1) = '1'"
                value = f"CASE WHEN {has} THEN {value} ELSE t.{name} END"
            updates.append((name, value))
        return updates

    def equal_keys(self, left: str, right: str) -> str:
        """Return the condition that two rows have equal keys."""
        return " AND ".join(f"{self._key(left, column)} = {self._key(right, column)}" for column in self._primary_key)

    def _key_columns(self, table: str) -> str:
        return ", ".join(self._key(table, column) for column in self._primary_key)

    def _column_names(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self._quoted, columns))


def staged_row(staging: Staging, row: Row, number: int) -> dict[str, Any]:
    """Return a row with all columns of the temporary table."""
    return {
        **dict.fromkeys(staging.columns),
        **row,
        **dict(zip(staging.extra, staging.fields(row, number), strict=True)),
    }
