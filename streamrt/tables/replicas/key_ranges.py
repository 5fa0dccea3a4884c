"""`KeyPrefix`: the first columns of a primary key, as a range of the bytes of keys."""

from collections.abc import Mapping
from typing import Any

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.serializers.row_formats import KeyFormat, key_format
from streamrt.tables.replicas.partition_rows import following_bytes

__all__ = ["KeyPrefix"]


class KeyPrefix:
    """Returns the range of keys that begin with some values.

    In JSON and Avro, the bytes of the first columns are the first bytes of a key, and each value says where it ends. So the
    keys that begin with these bytes are those with these values, and an ordered store has them next to each other.

    Args:
        table: name of the table, for errors.
        keys_as: format of the keys.

    Example:
        >>> from streamrt.schema import Schema
        >>> schema = Schema("country STRING, city STRING, id BIGINT, PRIMARY KEY (country, city, id)")
        >>> prefix = KeyPrefix("shop.customers", key_format("json", schema, schema.primary_key))
        >>> prefix.bounds({"country": "FR"}), prefix.bounds(("FR", "Lyon"))
        ((b'["FR",', b'["FR"-'), (b'["FR","Lyon",', b'["FR","Lyon"-'))
    """

    def __init__(self, table: str, keys_as: KeyFormat) -> None:
        self._table = table
        self._keys_as = keys_as

    def bounds(self, key: Any) -> tuple[bytes, bytes | None]:
        """Return the first key, and the one before which the range ends.

        Args:
            key: values of the first columns: a mapping in any order, a list or tuple in the order of the key, or one value.

        Raises:
            SchemaMismatchError: if these are not the first columns of the key, or all; it names the column.
            SerializationError: if a value does not fit its column; the message names the column, and no value.
        """
        values = self._name_values(key)
        columns = tuple(values)
        form = key_format(self._keys_as.name, self._keys_as.schema, columns)
        part = self._keys_as.schema.project(list(columns))
        try:
            encoded = form.encode(part.check(values))
        except (SchemaMismatchError, SerializationError) as error:
            raise type(error)(f"prefix() of table {self._table!r}: {error}") from None
        if self._keys_as.name == "json":
            encoded = (b"[" + encoded if len(columns) == 1 else encoded[:-1]) + b","
        return encoded, following_bytes(encoded)

    def _name_values(self, key: Any) -> dict[str, Any]:
        """Return the values by column, in the order of the key."""
        columns = self._keys_as.columns
        if not isinstance(key, Mapping):
            given = list(key) if isinstance(key, list | tuple) else [key]
            if len(given) > len(columns):
                raise self._make_error(f"it has {len(given)} values, and the primary key {len(columns)} columns")
            key = dict(zip(columns, given, strict=False))
        for name in key:
            if name not in columns:
                is_column = name in self._keys_as.schema.names
                raise self._make_error(
                    f"column {name!r} is not in the primary key" if is_column else f"there is no column {name!r}"
                )
        if not key:
            raise self._make_error("it names no column: scan() returns all rows")
        for place, name in enumerate(columns[: len(key)]):
            if name not in key:
                other = next(each for each in columns[place:] if each in key)
                raise self._make_error(f"column {name!r} is missing, which comes before {other!r}")
        if len(key) == len(columns):
            raise self._make_error(f"it has all columns ({', '.join(columns)}): get() returns the row of a key")
        return {name: key[name] for name in columns[: len(key)]}

    def _make_error(self, reason: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"prefix() of table {self._table!r} needs the first columns of its primary key "
            f"({', '.join(self._keys_as.columns)}): {reason}"
        )
