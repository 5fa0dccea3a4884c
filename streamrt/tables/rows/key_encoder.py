"""Keys of rows, as users give them, as the keys of records."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.schema import RowCheck, Schema
from streamrt.serializers.row_formats import KeyFormat
from streamrt.tables.rows.arrow_rows import Frame

__all__ = ["KeyEncoder"]


class KeyEncoder:
    """Checks primary keys of a table, and encodes them.

    A key is the value of the one key column; or a list or tuple with those of all, in the order of the primary key; or a
    mapping with the key columns. A mapping may also be a whole row, whose other columns are ignored.

    Args:
        table: name of the table.
        keys_as: format of the keys.

    Example:
        >>> from streamrt.serializers.row_formats import key_format
        >>> schema = Schema("id BIGINT, country STRING, name STRING, PRIMARY KEY (country, id)")
        >>> encoder = KeyEncoder("shop.customers", key_format("json", schema, schema.primary_key))
        >>> encoder.key({"id": 7, "country": "FR"}), encoder.key(("FR", 7))
        (b'["FR",7]', b'["FR",7]')
    """

    def __init__(self, table: str, keys_as: KeyFormat) -> None:
        self.columns = keys_as.columns
        self._table = table
        self._keys_as = keys_as
        self._names = keys_as.schema.names
        self._part: Schema = keys_as.schema.project(list(self.columns))
        self._check = RowCheck(self._part.fields)

    def key(self, key: Any) -> bytes:
        """Return a key as bytes.

        Raises:
            SchemaMismatchError: if it is not one of the table; the message names column, type and rule, and no value.
            SerializationError: if the format cannot carry it.
        """
        try:
            return self._encode(key)
        except (SchemaMismatchError, SerializationError) as error:
            raise self._locate_error(error) from None

    def keys(self, keys: Sequence[Any], numbers: Sequence[int] | None = None) -> list[bytes]:
        """Return keys as bytes; errors, as those of `key`, name the number of the key.

        Args:
            keys: the keys.
            numbers: their numbers, for errors; by default from 0 on.
        """
        encoded: list[bytes] = []
        try:
            for key in keys:
                encoded.append(self._encode(key))
        except (SchemaMismatchError, SerializationError) as error:
            number = len(encoded) if numbers is None else numbers[len(encoded)]
            raise self._locate_error(error, f"row {number}: ") from None
        return encoded

    def frame(self, rows: Any, numbers: Sequence[int] | None = None, *, of_rows: bool = False) -> list[bytes]:
        """Return the keys of a table or batch of Arrow, or a data frame of pandas or polars; errors as in `keys`.

        Args:
            rows: columns with the keys, or whole rows.
            numbers: the numbers of the rows, for errors; by default from 0 on.
            of_rows: whether the frame may have some of the other columns, which it has for other rows.
        """
        try:
            frame = Frame.of(rows, self._part)
            self._require_columns(frame.columns, some_others=of_rows)
            chosen = Frame({name: frame.columns[name] for name in self.columns}, frame.whole_floats)
        except SchemaMismatchError as error:
            raise self._locate_error(error) from None
        with contextlib.suppress(SchemaMismatchError, SerializationError):
            # The check of single keys finds the same error, and the number of the row.
            table = chosen.fitted(self._part, self.columns)
            if table is not None:
                return [
                    key for batch in table.combine_chunks().to_batches() for key in self._keys_as.encode_batch(batch)
                ]
        return self.keys(chosen.rows(self._part), numbers)

    def _encode(self, key: Any) -> bytes:
        if isinstance(key, Mapping):
            self._require_columns(key)
            key = [key[name] for name in self.columns]
        elif not isinstance(key, (list, tuple)):
            if len(self.columns) > 1:
                raise SchemaMismatchError(
                    f"a key has {len(self.columns)} columns ({', '.join(self.columns)}), so it must be a mapping, a list or "
                    f"a tuple, not {type(key).__name__}"
                )
            key = [key]
        elif len(key) != len(self.columns):
            raise SchemaMismatchError(
                f"a key must have a value for each column of the primary key ({', '.join(self.columns)}), got {len(key)}"
            )
        return self._keys_as.encode(self._check(key))

    def _require_columns(self, given: Mapping[str, Any], *, some_others: bool = False) -> None:
        missing = [name for name in self.columns if name not in given]
        if missing:
            raise SchemaMismatchError(f"column {missing[0]!r} is in the primary key, and is missing")
        others = [name for name in given if name not in self.columns]
        if others and not some_others and set(given) != set(self._names):
            raise SchemaMismatchError(
                f"column {others[0]!r} is not in the primary key ({', '.join(self.columns)}): give these columns, or all "
                "of the row"
            )

    def _locate_error(self, error: Exception, where: str = "") -> Exception:
        return type(error)(f"{where}{error} (table {self._table!r})")
