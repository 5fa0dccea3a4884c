"""Writes to a maintained table as requests, which the application that maintains it merges; `requests` says their form."""

from collections.abc import Sequence

from streamrt.errors import ArgumentTypeError, InvalidOperationError, SchemaError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.serializers.row_formats import KeyFormat
from streamrt.serializers.rows.json_format import JSONRowFormat
from streamrt.serializers.rows.json_rows import write_json
from streamrt.tables.descriptions.maintenance import Maintenance, SequenceGroups, Versioned
from streamrt.tables.descriptions.requests import make_request_headers
from streamrt.tables.rows.row_encoder import EncodedRow, EncodedRows, RowEncoder

__all__ = ["RequestEncoder", "choose_columns"]

_MOST_SETS = 1_000
"""Sets of columns whose encoders are kept."""


def choose_columns(what: str, table: str, schema: Schema, rules: Maintenance, columns: Sequence[str | int]) -> Schema:
    """Return the schema of the columns that requests give.

    Args:
        what: what gives them, for errors.
        table: name of the table.
        schema: all columns.
        rules: the rules of the table.
        columns: names or numbers.

    Raises:
        ArgumentTypeError: if these are not a list.
        SchemaError: if such requests could not count: a column of the primary key is missing, or one that must not be null
            and has no default, or the one by which the rule decides.
    """
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Sequence):
        raise ArgumentTypeError(f"{what} must be a list of names or numbers, got {type(columns).__name__}")
    given = schema.project(columns)
    for column in schema.fields:
        if column.name not in given.names:
            why = _find_reason(column, schema, rules, given)
            if why is not None:
                raise SchemaError(f"{what} leaves out the column {column.name!r} of table {table!r}, which {why}")
    return given


def _find_reason(column: Column, schema: Schema, rules: Maintenance, given: Schema) -> str | None:
    """Return why requests must give a column; None if they may leave it out."""
    if column.name in schema.primary_key:
        return "is in the primary key"
    if not column.nullable and column.default in (NO_DEFAULT, None):
        return "must not be null and has no default"
    if isinstance(rules.merge, Versioned) and column.name == rules.merge.column:
        return "says which row is newer: without it, none would count"
    if isinstance(rules.merge, SequenceGroups):
        others = [name for name in rules.merge.groups.get(column.name, ()) if name in given.names]
        if others:
            return f"says whether column {others[0]!r} is newer: without it, that would never count"
    return None


class RequestEncoder:
    """Makes requests of the records of rows and of deletes.

    Args:
        table: name of the table.
        topic: topic of the requests.
        schema: all columns of the table.
        schema_version: its number.
        rules: the rules of the table.
        given: the columns that rows give.
        keys_as: format of the keys.
        max_bytes: how many bytes key and value of a record may have.

    Attributes:
        rows: encodes the rows.
    """

    def __init__(
        self,
        table: str,
        topic: str,
        schema: Schema,
        schema_version: int,
        rules: Maintenance,
        given: Schema,
        keys_as: KeyFormat,
        max_bytes: int,
    ) -> None:
        self._table = table
        self._topic = topic
        self._schema = schema
        self._rules = rules
        self._given = given
        self._keys_as = keys_as
        self._max_bytes = max_bytes
        self._is_partial = len(given) < len(schema)
        self._upsert = make_request_headers("u", schema_version)
        self._delete = make_request_headers("d", schema_version)
        self._encoders: dict[tuple[str, ...], RowEncoder] = {}
        self.rows = self._make_rows(given)

    def encoder_for(self, columns: Sequence[str]) -> RowEncoder:
        """Return the encoder of rows with fewer columns than the writer's.

        Raises:
            SchemaError: if such requests could not count.
        """
        names = tuple(name for name in self._given.names if name in columns)
        encoder = self._encoders.get(names)
        if encoder is None:
            given = choose_columns("an update", self._table, self._schema, self._rules, names)
            encoder = self._make_rows(given)
            if len(self._encoders) >= _MOST_SETS:
                self._encoders.clear()
            self._encoders[names] = encoder
        return encoder

    def require_deletes(self) -> None:
        """Refuse deletes where they cannot be done.

        Raises:
            InvalidOperationError: if the table refuses them, or a column that would be null must not be null.
        """
        if self._rules.deletes == "refuse":
            raise InvalidOperationError(f"table {self._table!r} refuses deletes: it was created with deletes='refuse'")
        if not self._is_partial:
            return
        for column in self._given.fields:
            if not column.nullable and column.name not in self._keys_as.columns:
                raise InvalidOperationError(
                    f"a delete by this writer would set the column {column.name!r} of table {self._table!r} to null, which "
                    "must not be null: leave it out of columns=, or delete whole rows by a writer without columns"
                )

    def make_request(self, encoded: EncodedRow) -> EncodedRow:
        """Return the request for a row, or for the delete of one."""
        if encoded.value is not None:
            return encoded._replace(headers=self._upsert)
        return encoded._replace(value=self._null_columns(encoded.key), headers=self._delete)

    def make_requests(self, encoded: EncodedRows) -> EncodedRows:
        """Return the requests for rows, and for the deletes of rows."""
        keys = encoded.keys or ()
        headers = [self._delete if value is None else self._upsert for value in encoded.values]
        values = encoded.values
        if self._is_partial and any(value is None for value in values):
            values = [
                self._null_columns(key) if value is None else value for value, key in zip(values, keys, strict=True)
            ]
        return EncodedRows(values, encoded.keys, encoded.timestamps, headers)

    def _null_columns(self, key: bytes | None) -> bytes | None:
        """Return the value of a delete of the writer's columns; whole rows are deleted without one."""
        if not self._is_partial or key is None:
            return None
        of_key = self._keys_as.decode(key)
        return write_json({name: of_key.get(name) for name in self._given.names})

    def _make_rows(self, given: Schema) -> RowEncoder:
        return RowEncoder(self._table, self._topic, given, JSONRowFormat(given), self._keys_as, None, self._max_bytes)
