"""Rows of an Arrow table from the values of a sink: types of columns are inferred, and unified with those of the target.

The first value of a column, or of a field in it, decides its type. Later ones fit without loss, or are refused with their
record. A table therefore has the same rows however its records are divided into commits: each value is stored as if its
record were committed on its own. What has no type, such as None and an empty list, is null as long as its column has no type.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.files.arrow_types import plain_types, type_of
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import SinkError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["KEY_COLUMN", "TIMESTAMP_COLUMN", "ArrowRows"]

KEY_COLUMN = "_key"
TIMESTAMP_COLUMN = "_timestamp"

_FLEXIBLE = 38
"""Digits of a decimal column."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers have no others."""


class ArrowRows:
    """Turns batches into Arrow tables that can be appended to a table.

    Args:
        target: the table in words, such as "table 'orders'".
        metadata: whether the columns `_timestamp` and `_key` are added.
        extend: whether the target gets columns that it lacks.
        times: whether the target has a type for times of day.
        ignores_case: whether names of columns that differ in their case only are the same in the target.

    Attributes:
        metadata: whether the columns `_timestamp` and `_key` are added.
    """

    def __init__(
        self, target: str, *, metadata: bool, extend: bool, times: bool = False, ignores_case: bool = False
    ) -> None:
        self._target = target
        self.metadata = metadata
        self._extend = extend
        self._times = times
        self._ignores_case = ignores_case

    def table(self, batches: Sequence[SinkBatch], existing: "pyarrow.Schema | None") -> "pyarrow.Table":
        """Return the rows of batches, with the columns that they have values for.

        Args:
            batches: the values.
            existing: the schema of the target; None if it is not there yet.

        Raises:
            SinkError: if a value has no place in the target; the message names its column and its offset.
        """
        import pyarrow

        items = [(batch, item) for batch in batches for item in batch]
        columns: dict[str, list[Any]] = {}
        for number, (batch, item) in enumerate(items):
            for column, field in self._item_fields(batch, item).items():
                values = columns.get(column)
                if values is None:
                    values = columns[column] = [None] * len(items)
                values[number] = field
        if existing is None:
            existing = pyarrow.schema(self.metadata_fields())
        if self._ignores_case:
            self._check_case(columns, items, existing)
        for field in existing:
            if not field.nullable:
                columns.setdefault(field.name, [None] * len(items))
        fields, arrays = [], []
        for column, values in columns.items():
            index = existing.get_field_index(column)
            field = existing.field(index) if index >= 0 else None
            found = self._make_array(column, values, items, field)
            if found is not None:
                fields.append(pyarrow.field(column, found.type, nullable=field is None or field.nullable))
                arrays.append(found)
        if not arrays and len(existing):
            # A table without columns would have no rows.
            fields, arrays = [existing.field(0)], [pyarrow.nulls(len(items), existing.field(0).type)]
        return pyarrow.table(arrays, schema=pyarrow.schema(fields))

    def first_schema(self, batches: Sequence[SinkBatch], needed: Collection[str] = ()) -> "pyarrow.Schema":
        """Return the schema of a table to create: that of the first record, since later ones extend it.

        Args:
            batches: the values.
            needed: columns that the table must have, from any record.

        Raises:
            SinkError: if a value has no place in a table.
        """
        import pyarrow

        fresh = ArrowRows(
            self._target,
            metadata=self.metadata,
            extend=True,
            times=self._times,
            ignores_case=self._ignores_case,
        )
        for batch in batches:
            for item in batch:
                first = SinkBatch(batch.topic, batch.partition)
                first.append(*item)
                schema = fresh.table([first], None).schema
                if len(schema):
                    lacking = [name for name in needed if schema.get_field_index(name) < 0]
                    known = fresh.table(batches, None).schema if lacking else schema
                    return pyarrow.schema(
                        [*schema, *(known.field(name) for name in lacking if known.get_field_index(name) >= 0)]
                    )
        return pyarrow.schema([])

    def metadata_fields(self) -> list["pyarrow.Field"]:
        """Return the columns that are added to those of values."""
        import pyarrow

        if not self.metadata:
            return []
        return [
            pyarrow.field(TIMESTAMP_COLUMN, pyarrow.timestamp("us", "UTC")),
            pyarrow.field(KEY_COLUMN, pyarrow.string()),
        ]

    def _item_fields(self, batch: SinkBatch, item: SinkItem) -> dict[str, Any]:
        if not isinstance(item.value, Mapping):
            raise SinkError(
                f"the value of {_place(batch, item)} is of type {type(item.value).__name__}: rows are made of dicts, so "
                "convert it with apply() before sink()",
                batch.record_of(item),
            )
        row = dict(item.value)
        for column in row:
            if not isinstance(column, str) or not column or "\0" in column or not _is_unicode(column):
                raise SinkError(
                    f"a field of {_place(batch, item)} has no usable name of a column", batch.record_of(item)
                )
        if not self.metadata:
            return row
        for column in (TIMESTAMP_COLUMN, KEY_COLUMN):
            if column in row:
                raise SinkError(
                    f"the value of {_place(batch, item)} has the field {column!r}, which the sink adds: rename it, or pass "
                    "include_metadata=False to the sink",
                    batch.record_of(item),
                )
        return {TIMESTAMP_COLUMN: _Milliseconds(item.timestamp), KEY_COLUMN: _key_text(item.key), **row}

    def _check_case(
        self,
        columns: Mapping[str, list[Any]],
        items: Sequence[tuple[SinkBatch, SinkItem]],
        existing: "pyarrow.Schema",
    ) -> None:
        """Refuse a column whose name differs from that of another one in its case only."""
        spellings = {name.lower(): name for name in existing.names}
        for column, values in columns.items():
            found = next((each for value, each in zip(values, items, strict=True) if value is not None), None)
            if found is None:
                continue
            other = spellings.setdefault(column.lower(), column)
            if other != column:
                batch, item = found
                raise SinkError(
                    f"column {column!r} of {_place(batch, item)} differs from column {other!r} of {self._target} in its case "
                    "only, whose names are case-insensitive: rename the field before sink()",
                    batch.record_of(item),
                )

    def _make_array(
        self, column: str, values: list[Any], items: Sequence[tuple[SinkBatch, SinkItem]], field: "pyarrow.Field | None"
    ) -> "pyarrow.Array | None":
        """Return a column; None if it has no values and the target lacks it."""
        import pyarrow

        if values and isinstance(values[0], _Milliseconds):
            for value, (batch, item) in zip(values, items, strict=True):
                if not _FIRST_MS <= value <= _LAST_MS:
                    raise SinkError(
                        f"the timestamp of {_place(batch, item)} is not in the years 1 to 9999, so {self._target} cannot "
                        "hold it: set another one before sink()",
                        batch.record_of(item),
                    )
            array = pyarrow.array(values, pyarrow.int64()).cast(pyarrow.timestamp("ms", "UTC"))
            return array.cast(pyarrow.timestamp("us", "UTC") if field is None else field.type)
        try:
            target, values = self._decide_type(None if field is None else field.type, values)
            if target is not None:
                self._check_new(column, field, values, items)
                array = pyarrow.array(values, target)
                if field is None or field.nullable or not array.null_count:
                    return array
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
            # Found again below, with its place.
            target = None
        else:
            if target is None:
                return None
        raise self._make_refusal(column, values, items, field)

    def _decide_type(
        self, known: "pyarrow.DataType | None", values: list[Any]
    ) -> "tuple[pyarrow.DataType | None, list[Any]]":
        """Return the type of a column after all values, and each value as the type at its time holds it."""
        plain = plain_types()
        classes = set(map(type, values))
        classes.discard(type(None))
        if len(classes) == 1 and (kind := classes.pop()) in plain:
            return self._unify_types(known, plain[kind]), values
        seen: set[Any] = set()
        changes: list[tuple[int, Any]] = [(0, known)]
        for number, value in enumerate(values):
            found = type_of(value)
            if found in seen:
                continue
            seen.add(found)
            unified = self._unify_types(known, found)
            if unified != known:
                known = unified
                changes.append((number, known))
        ends = [number for number, _ in changes[1:]] + [len(values)]
        if len(changes) > 1:
            values = [
                value if kind == known and known is not None else _hold_value(value, kind)
                for (start, kind), end in zip(changes, ends, strict=True)
                for value in values[start:end]
            ]
        return known, values

    def _make_refusal(
        self, column: str, values: list[Any], items: Sequence[tuple[SinkBatch, SinkItem]], field: "pyarrow.Field | None"
    ) -> SinkError:
        """Return the error that names the first value that a column cannot hold."""
        import pyarrow

        kind = None if field is None else field.type
        for value, (batch, item) in zip(values, items, strict=True):
            where = f"column {column!r} of {self._target} cannot hold the value of {_place(batch, item)}"
            if value is None and field is not None and not field.nullable:
                return SinkError(f"{where}: it is null, and the column is required", batch.record_of(item))
            try:
                unified = self._unify_types(kind, type_of(value))
                if unified is not None:
                    pyarrow.array([value], unified)
                    kind = unified
            except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
                # The messages of these errors quote values.
                holds = "" if kind is None else f", and the column is {kind}"
                return SinkError(
                    f"{where}: it is of type {type(value).__name__}{holds}; convert it with apply() before sink()",
                    batch.record_of(item),
                )
        return SinkError(f"the values of column {column!r} of {self._target} have no common type")

    def _check_new(
        self,
        column: str,
        field: "pyarrow.Field | None",
        values: list[Any],
        items: Sequence[tuple[SinkBatch, SinkItem]],
    ) -> None:
        if field is not None or self._extend:
            return
        batch, item = next(each for value, each in zip(values, items, strict=True) if value is not None)
        raise SinkError(
            f"column {column!r} does not exist in {self._target}, and the sink adds no columns ({_place(batch, item)}): add "
            "it, or drop the field before sink()",
            batch.record_of(item),
        )

    def _unify_types(self, target: "pyarrow.DataType | None", found: "pyarrow.DataType") -> "pyarrow.DataType | None":
        """Return the type of a column that holds values of a found type; None if nothing is known of it.

        Raises:
            TypeError: if the column cannot hold them.
        """
        import pyarrow
        from pyarrow import types

        if types.is_null(found):
            return target
        if types.is_struct(found):
            return self._unified_struct(target, found)
        if types.is_list(found) or types.is_large_list(found):
            if target is not None and not (types.is_list(target) or types.is_large_list(target)):
                raise TypeError
            known = None if target is None else target.value_type
            inner = self._unify_types(known, found.value_type)
            if inner is None or inner == known:
                return target
            return pyarrow.list_(inner)
        if target is not None and not types.is_null(target):
            if any(of(found) and any(of_target(target) for of_target in fitting) for of, fitting in _fitting_kinds()):
                return target
            raise TypeError
        return self._leaf_type(found)

    def _unified_struct(
        self, target: "pyarrow.DataType | None", found: "pyarrow.DataType"
    ) -> "pyarrow.DataType | None":
        import pyarrow

        if target is not None and not pyarrow.types.is_struct(target):
            raise TypeError
        fields = {} if target is None else {field.name: field for field in target}
        for field in found:
            known = fields.get(field.name)
            inner = self._unify_types(None if known is None else known.type, field.type)
            if inner is not None and (known is None or inner != known.type):
                if known is None and target is not None and not self._extend:
                    raise TypeError
                fields[field.name] = pyarrow.field(field.name, inner)
        return pyarrow.struct(list(fields.values())) if fields else None

    def _leaf_type(self, found: "pyarrow.DataType") -> "pyarrow.DataType":
        import pyarrow
        from pyarrow import types

        if types.is_timestamp(found):
            return pyarrow.timestamp("us", "UTC")
        if types.is_decimal(found):
            return pyarrow.decimal128(_FLEXIBLE, max(0, found.scale))
        if types.is_signed_integer(found) or types.is_unsigned_integer(found):
            return pyarrow.int64()
        plain = (types.is_boolean, types.is_floating, types.is_string, types.is_binary, types.is_date32)
        if any(of(found) for of in plain) or (self._times and types.is_time64(found)):
            return found
        raise TypeError


class _Milliseconds(int):
    """The event time of a record."""


def _hold_value(value: Any, kind: "pyarrow.DataType | None") -> Any:
    """Return what a column of a type holds of a value: fields and lists without a type are not there yet."""
    from pyarrow import types

    if kind is None:
        return None
    if types.is_struct(kind) and isinstance(value, Mapping):
        known = {field.name: field.type for field in kind}
        return {name: _hold_value(inner, known[name]) for name, inner in value.items() if name in known}
    if types.is_list(kind) and isinstance(value, list | tuple):
        return [_hold_value(element, kind.value_type) for element in value]
    return value


def _fitting_kinds() -> Collection[tuple[Any, tuple[Any, ...]]]:
    """Return each kind of values with the kinds of columns that hold it without loss."""
    from pyarrow import types

    texts = (types.is_string, types.is_large_string)
    binaries = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return (
        (types.is_boolean, (types.is_boolean,)),
        (types.is_integer, (types.is_integer, types.is_floating, types.is_decimal)),
        (types.is_floating, (types.is_floating,)),
        (types.is_decimal, (types.is_decimal,)),
        (types.is_string, texts),
        (types.is_binary, binaries),
        (types.is_date32, (types.is_date,)),
        (types.is_timestamp, (types.is_timestamp,)),
        (types.is_time64, (types.is_time64,)),
    )


def _place(batch: SinkBatch, item: SinkItem) -> str:
    return f"{batch.topic}[{batch.partition}] at offset {item.offset}"


def _key_text(key: Any) -> str | None:
    if key is None or isinstance(key, str):
        return key
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
