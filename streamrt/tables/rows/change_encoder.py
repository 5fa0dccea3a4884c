"""Rows, keys and changes, in all forms that writers take, as records of a table."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streamrt.errors import InvalidOperationError, SchemaError, SchemaMismatchError
from streamrt.schema import Schema
from streamrt.tables.rows.arrow_rows import is_frame
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.rows.request_encoder import RequestEncoder
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
        requests: makes requests of them, for a maintained table.
    """

    def __init__(
        self, table: str, rows: RowEncoder, keys: KeyEncoder | None, requests: RequestEncoder | None = None
    ) -> None:
        self._table = table
        self._rows = rows
        self._keys = keys
        self._requests = requests

    @property
    def schema(self) -> Schema:
        """The columns of rows."""
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
        return self._finish(self._rows.row(row))

    def all_upserted(self, rows: Any) -> EncodedRows:
        """Return the records that insert or update rows: a sequence, or a frame."""
        self._require_keys("upserts", "append() adds rows")
        return self._finish_all(self._rows.frame(rows) if is_frame(rows) else self._rows.rows(rows))

    def deleted(self, key: Any) -> EncodedRow:
        """Return the record that deletes the row of a key.

        Raises:
            InvalidOperationError: if the table is a log table, or refuses deletes.
        """
        encoder = self._require_deletes()
        return self._finish(self._rows.tombstone(encoder.key(key)))

    def all_deleted(self, keys: Any) -> EncodedRows:
        """Return the records that delete the rows of keys: a sequence, or a frame with the key columns."""
        encoder = self._require_deletes()
        return self._finish_all(self._rows.tombstones(encoder.frame(keys) if is_frame(keys) else encoder.keys(keys)))

    def changes(self, changes: Any) -> EncodedRows:
        """Return the records of changes: a sequence of mappings such as `{"insert": row}`, or a frame with `_change_type`."""
        return self._finish_all(self._encode_frame(changes) if is_frame(changes) else self._encode_list(changes))

    def _finish(self, encoded: EncodedRow) -> EncodedRow:
        return encoded if self._requests is None else self._requests.make_request(encoded)

    def _finish_all(self, encoded: EncodedRows) -> EncodedRows:
        return encoded if self._requests is None else self._requests.make_requests(encoded)

    def _encode_list(self, changes: Sequence[Any]) -> EncodedRows:
        is_keyed = self._keys is not None
        parsed = [parse_change(number, each, self._table, is_keyed=is_keyed) for number, each in enumerate(changes)]
        partial = [number for number, each in enumerate(parsed) if self._misses_columns(number, each)]
        if any(each.deletes for each in parsed):
            self._require_deletes()
        if partial and self._requests is not None:
            return self._encode_partial(parsed, self._requests, frozenset(partial))
        written = [number for number, each in enumerate(parsed) if not each.deletes]
        deleted = [number for number, each in enumerate(parsed) if each.deletes]
        rows = self._rows.rows([parsed[number].row for number in written], written)
        if self._keys is None or not deleted:
            return rows
        keys = self._keys.keys([parsed[number].row for number in deleted], deleted)
        return _interleave(rows, written, self._rows.tombstones(keys, deleted), deleted)

    def _encode_frame(self, frame: Any) -> EncodedRows:
        parsed = parse_frame(frame, self.schema, self._table, is_keyed=self._keys is not None)
        written, deleted = parsed.written, parsed.deleted
        if self._keys is None:
            return self._rows.frame(parsed.rows)
        if deleted:
            self._require_deletes()
        rows = self._rows.frame(parsed.select(written), written) if written else self._rows.rows([])
        if not deleted:
            return rows
        keys = self._keys.frame(parsed.select(deleted), deleted, of_rows=True)
        return _interleave(rows, written, self._rows.tombstones(keys, deleted), deleted)

    def _encode_partial(
        self, parsed: Sequence[Change], requests: RequestEncoder, partial: Collection[int]
    ) -> EncodedRows:
        """Return the records of changes of which some are updates of some columns."""
        keys = self._require_keys("updates", "append() adds rows")
        made: list[EncodedRows] = []
        for number, change in enumerate(parsed):
            if change.deletes:
                made.append(self._rows.tombstones(keys.keys([change.row], [number]), [number]))
                continue
            rows = self._rows
            if number in partial:
                try:
                    rows = requests.encoder_for(list(change.row))
                except SchemaError as error:
                    raise SchemaMismatchError(f"row {number}: {error}") from None
            made.append(rows.rows([change.row], [number]))
        return EncodedRows(
            [value for each in made for value in each.values],
            [key for each in made for key in each.keys or ()],
            # Rows without the column of the event time get the time of the moment.
            [None if each.timestamps is None else each.timestamps[0] for each in made],
        )

    def _misses_columns(self, number: int, change: Change) -> bool:
        """Return whether a change updates some columns; refuse it where it would make the others null."""
        if not change.is_whole or not isinstance(change.row, Mapping):
            return False
        missing = [name for name in self.schema.names if name not in change.row]
        if missing and self._requests is None:
            raise SchemaMismatchError(
                f"row {number}: an update must give all columns, and column {missing[0]!r} is missing, because no one "
                f"merges rows of table {self._table!r}: 'upsert' sets columns that are missing to their default, or null"
            )
        return bool(missing)

    def _require_deletes(self) -> KeyEncoder:
        encoder = self._require_keys("deletes", "retention ends its rows")
        if self._requests is not None:
            self._requests.require_deletes()
        return encoder

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
