"""Rows, keys and changes, in all forms that writers take, as records of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.errors import InvalidOperationError, SchemaMismatchError
from streamrt.schema import Schema
from streamrt.tables.rows.arrow_rows import is_frame
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.rows.row_changes import Change, parse_change, parse_frame
from streamrt.tables.rows.row_encoder import EncodedRow, EncodedRows, RowEncoder

__all__ = ["ChangeEncoder"]


class ChangeEncoder:
    """Encodes what a table takes, and refuses the rest: a log table appends, one with a primary key upserts and deletes.

    Of several rows, all are encoded before any is returned.

    Args:
        table: name of the table.
        rows: encodes its rows.
        keys: encodes its primary keys; None for a log table.
    """

    def __init__(self, table: str, rows: RowEncoder, keys: KeyEncoder | None) -> None:
        self._table = table
        self._rows = rows
        self._keys = keys

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        return self._rows.schema

    def appended(self, row: Mapping[str, Any] | Sequence[Any]) -> EncodedRow:
        """Return the record that appends a row.

        Raises:
            InvalidOperationError: if the table has a primary key.
        """
        self._require_log()
        return self._rows.row(row)

    def all_appended(self, rows: Any) -> EncodedRows:
        """Return the records that append rows: a sequence, or a frame."""
        self._require_log()
        return self._rows.frame(rows) if is_frame(rows) else self._rows.rows(rows)

    def upserted(self, row: Mapping[str, Any] | Sequence[Any]) -> EncodedRow:
        """Return the record that inserts or updates a row.

        Raises:
            InvalidOperationError: if the table is a log table.
        """
        self._require_keys("upserts", "append() adds rows")
        return self._rows.row(row)

    def all_upserted(self, rows: Any) -> EncodedRows:
        """Return the records that insert or update rows: a sequence, or a frame."""
        self._require_keys("upserts", "append() adds rows")
        return self._rows.frame(rows) if is_frame(rows) else self._rows.rows(rows)

    def deleted(self, key: Any) -> EncodedRow:
        """Return the record that deletes the row of a key.

        Raises:
            InvalidOperationError: if the table is a log table.
        """
        return self._rows.tombstone(self._require_keys("deletes", "retention ends its rows").key(key))

    def all_deleted(self, keys: Any) -> EncodedRows:
        """Return the records that delete the rows of keys: a sequence, or a frame with the key columns."""
        encoder = self._require_keys("deletes", "retention ends its rows")
        return self._rows.tombstones(encoder.frame(keys) if is_frame(keys) else encoder.keys(keys))

    def changes(self, changes: Any) -> EncodedRows:
        """Return the records of changes: a sequence of mappings such as `{"insert": row}`, or a frame with `_change_type`."""
        return self._of_frame(changes) if is_frame(changes) else self._of_list(changes)

    def _of_list(self, changes: Sequence[Any]) -> EncodedRows:
        is_keyed = self._keys is not None
        parsed = [parse_change(number, each, self._table, is_keyed=is_keyed) for number, each in enumerate(changes)]
        for number, change in enumerate(parsed):
            self._require_whole(number, change)
        written = [number for number, each in enumerate(parsed) if not each.deletes]
        deleted = [number for number, each in enumerate(parsed) if each.deletes]
        rows = self._rows.rows([parsed[number].row for number in written], written)
        if self._keys is None or not deleted:
            return rows
        keys = self._keys.keys([parsed[number].row for number in deleted], deleted)
        return _interleave(rows, written, self._rows.tombstones(keys, deleted), deleted)

    def _of_frame(self, frame: Any) -> EncodedRows:
        parsed = parse_frame(frame, self.schema, self._table, is_keyed=self._keys is not None)
        written, deleted = parsed.written, parsed.deleted
        if self._keys is None:
            return self._rows.frame(parsed.rows)
        rows = self._rows.frame(parsed.select(written), written) if written else self._rows.rows([])
        if not deleted:
            return rows
        keys = self._keys.frame(parsed.select(deleted), deleted, of_rows=True)
        return _interleave(rows, written, self._rows.tombstones(keys, deleted), deleted)

    def _require_whole(self, number: int, change: Change) -> None:
        """Refuse an update of some columns, which would make the others null."""
        if change.is_whole and isinstance(change.row, Mapping):
            missing = [name for name in self.schema.names if name not in change.row]
            if missing:
                raise SchemaMismatchError(
                    f"row {number}: an update must give all columns, and column {missing[0]!r} is missing, because no one "
                    f"merges rows of table {self._table!r}: 'upsert' sets columns that are missing to their default, or null"
                )

    def _require_log(self) -> None:
        if self._keys is not None:
            raise InvalidOperationError(
                f"table {self._table!r} has a primary key ({', '.join(self._keys.columns)}), so rows are not appended: "
                "upsert() inserts or updates a row, and delete() deletes one"
            )

    def _require_keys(self, what: str, instead: str) -> KeyEncoder:
        if self._keys is None:
            raise InvalidOperationError(f"a log table has no {what}, and {self._table!r} is one: {instead}")
        return self._keys


def _interleave(
    rows: EncodedRows, written: Sequence[int], tombstones: EncodedRows, deleted: Sequence[int]
) -> EncodedRows:
    """Return rows and tombstones in the order of their numbers."""
    if not written:
        return tombstones
    both = EncodedRows.joined([rows, tombstones])
    order = sorted(range(len(both)), key=[*written, *deleted].__getitem__)
    return EncodedRows(
        [both.values[place] for place in order],
        None if both.keys is None else [both.keys[place] for place in order],
        None if both.timestamps is None else [both.timestamps[place] for place in order],
    )
