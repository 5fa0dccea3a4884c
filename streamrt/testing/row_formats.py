"""Conformance suite for formats of rows, StreamRT's and yours.

Subclass `RowFormatConformance` in a test module, give the subclass a name that begins with `Test`, and define what it
tests. pytest collects the inherited tests. The suite needs the packages pytest and hypothesis.

Example:
    ```python
    class TestCSVRows(RowFormatConformance):
        types = ("BIGINT", "STRING")
        refused = (b"",)

        def make(self, schema: Schema) -> RowFormat:
            return CSVRows(schema)
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import datetime
import math
import pickle
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import SerializationError
from streamrt.schema import Schema
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.row_formats import RowFormat

__all__ = ["ROW_EXAMPLES", "ROW_VALUES", "RowFormatConformance"]

_TOPIC = "conformance"
_CONTEXT = SerializationContext(_TOPIC, MessageField.VALUE)

_thoroughly = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))

_WIDE = Context(prec=60)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
_MOMENTS = st.datetimes() | st.sampled_from(
    [datetime.datetime.min, datetime.datetime.max, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)]
)
ROW_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(1 << 15), (1 << 15) - 1),
    "INT": st.integers(-(1 << 31), (1 << 31) - 1),
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "STRING": _TEXTS,
    "VARCHAR(8)": _TEXTS,
    "BINARY": st.binary(max_size=8),
    "BINARY(3)": st.binary(min_size=3, max_size=3),
    "DATE": st.dates(),
    "TIME": st.integers(0, 86_399_999).map(
        lambda ms: (datetime.datetime.min + datetime.timedelta(milliseconds=ms)).time()
    ),
    "TIMESTAMP": _MOMENTS,
    "TIMESTAMP_LTZ": _MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.timezone.utc)),
    "DECIMAL(9, 3)": st.decimals(-999_999, 999_999, places=3),
    "DECIMAL(38, 10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10, _WIDE)),
    "ARRAY<INT>": st.lists(st.integers(0, 9), max_size=3),
    "ARRAY<STRUCT<a: BIGINT, b: ARRAY<STRING>>>": st.lists(
        st.fixed_dictionaries({"a": st.integers(0, 9) | st.none(), "b": st.lists(_TEXTS, max_size=2)}), max_size=3
    ),
    "STRUCT<x: DOUBLE, y: STRUCT<at: TIMESTAMP_LTZ>>": st.fixed_dictionaries(
        {
            "x": st.floats(-9, 9) | st.none(),
            "y": st.none()
            | st.fixed_dictionaries({"at": st.datetimes(timezones=st.just(datetime.timezone.utc)) | st.none()}),
        }
    ),
    "MAP<STRING, INT>": st.dictionaries(_TEXTS, st.integers(0, 9), max_size=3),
    "MAP<BIGINT, STRING>": st.dictionaries(st.integers(-9, 9), _TEXTS, max_size=3),
}
"""Strategies of values, by the types that the suite knows; None is not among them, except within structs."""

_DAY = datetime.datetime(2026, 3, 29, 8, 30, 0, 5_000)
ROW_EXAMPLES: Mapping[str, Any] = {
    "BOOLEAN": True,
    "TINYINT": -1,
    "SMALLINT": 2,
    "INT": 3,
    "BIGINT": 4,
    "FLOAT": 0.5,
    "DOUBLE": 0.1,
    "STRING": "ä",
    "VARCHAR(8)": "b",
    "BINARY": b"\0\xff",
    "BINARY(3)": b"abc",
    "DATE": _DAY.date(),
    "TIME": _DAY.time(),
    "TIMESTAMP": _DAY,
    "TIMESTAMP_LTZ": _DAY.replace(tzinfo=datetime.timezone.utc),
    "DECIMAL(9, 3)": Decimal("-0.500"),
    "DECIMAL(38, 10)": Decimal("1234567890.0123456789"),
    "ARRAY<INT>": [1, 2],
    "ARRAY<STRUCT<a: BIGINT, b: ARRAY<STRING>>>": [{"a": 1, "b": ["x"]}],
    "STRUCT<x: DOUBLE, y: STRUCT<at: TIMESTAMP_LTZ>>": {"x": 1.5, "y": None},
    "MAP<STRING, INT>": {"a": 1},
    "MAP<BIGINT, STRING>": {1: "a"},
}
"""A value of each type in `ROW_VALUES`."""


def _row_strategy(
    columns: Sequence[tuple[str, bool]], names: Sequence[str]
) -> st.SearchStrategy[tuple[Schema, list[dict[str, Any]]]]:
    named = [*zip(names or [f"c{number}" for number in range(len(columns))], columns, strict=False)]
    described = [{"name": name, "type": word, "nullable": nullable} for name, (word, nullable) in named]
    values = {name: ROW_VALUES[word] | st.none() if nullable else ROW_VALUES[word] for name, (word, nullable) in named}
    return st.tuples(st.just(Schema(described)), st.lists(st.fixed_dictionaries(values), max_size=5))


class RowFormatConformance:
    """The contract of every `RowFormat`.

    Attributes:
        types: types that the format carries, of those in `ROW_VALUES`.
        max_columns: maximum number of columns.
        nullable: whether columns may be null.
        refused: bytes that are not a row of any schema.
        names: names of the columns, if the format knows no others.
    """

    types: ClassVar[Sequence[str]] = tuple(ROW_VALUES)
    max_columns: ClassVar[int] = 4
    nullable: ClassVar[bool] = True
    refused: ClassVar[Sequence[bytes]] = ()
    names: ClassVar[Sequence[str]] = ()

    def make(self, schema: Schema) -> RowFormat:
        """Return the format under test for rows of a schema."""
        raise NotImplementedError

    def one_column(self, word: str) -> RowFormat:
        """Return the format for rows with one column, the first one, that is never null."""
        return self.make(Schema([{"name": self._first, "type": word, "nullable": False}]))

    def same_row(self, row: dict[str, Any], read: dict[str, Any]) -> bool:
        """Whether a row that was read is the one that was written."""
        return row == read

    @given(st.data())
    @_thoroughly
    def test_rows_come_back(self, data: st.DataObject) -> None:
        """Any row of any schema, one by one and in batches; and both ways agree."""
        schema, rows = data.draw(self._schemas())
        made = self.make(schema)
        written = [made.encode(row, _TOPIC) for row in rows]
        assert all(type(each) is bytes for each in written)
        read = [made.decode(each, _TOPIC) for each in written]
        for row, back in zip(rows, read, strict=True):
            assert list(back) == list(schema.names)
            assert self.same_row(row, back)
        batch = made.decode_batch(written, _TOPIC)
        batch.validate(full=True)
        assert batch.schema.equals(schema.arrow, check_metadata=True)
        assert _rows_of(schema, batch) == read
        assert [made.decode(each, _TOPIC) for each in made.encode_batch(batch, _TOPIC)] == read

    @given(st.data())
    @_thoroughly
    def test_some_columns_of_a_batch(self, data: st.DataObject) -> None:
        """Columns come in the order in which they are asked for."""
        schema, rows = data.draw(self._schemas())
        made = self.make(schema)
        values = [made.encode(row, _TOPIC) for row in rows]
        columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
        batch = made.decode_batch(values, _TOPIC, columns)
        assert batch.schema.names == columns
        assert batch.equals(made.decode_batch(values, _TOPIC).select(columns))

    @given(st.data())
    @_thoroughly
    def test_hostile_bytes(self, data: st.DataObject) -> None:
        """Bytes are a row or a `SerializationError`, and the same in a batch, whatever stands next to them."""
        schema, rows = data.draw(self._schemas())
        made = self.make(schema)
        values = [made.encode(row, _TOPIC) for row in rows]
        values.insert(data.draw(st.integers(0, len(values))), data.draw(_damage_values(values)))
        _check_agreement(made, values)

    def test_bytes_that_are_no_rows(self) -> None:
        """The error of a batch names the row."""
        for word in self.types:
            made = self.one_column(word)
            for value in self.refused:
                with pytest.raises(SerializationError) as caught:
                    made.decode(value, _TOPIC)
                with pytest.raises(SerializationError) as of_batch:
                    made.decode_batch([value], _TOPIC)
                assert str(of_batch.value) == f"row 0: {caught.value}"

    def test_rows_that_do_not_fit(self) -> None:
        """Errors name the column and no value; in a batch, the row."""
        secret, name = object(), self._first
        for word in self.types:
            made = self.one_column(word)
            for row in ({name: secret}, {name: None}, {}, {name: secret, "c1": 1}, [secret, 1], [], "secret"):
                with pytest.raises(SerializationError) as caught:
                    made.encode(row, _TOPIC)
                assert "object at" not in str(caught.value)
            nulls = pa.RecordBatch.from_arrays([pa.nulls(2, made.schema.arrow.field(0).type)], [name])
            with pytest.raises(SerializationError, match=rf"^row 0: .*{name}"):
                made.encode_batch(nulls, _TOPIC)

    def test_serializers_agree_with_the_format(self) -> None:
        """Tasks use them, after they were pickled."""
        for word in self.types:
            made: RowFormat = pickle.loads(cloudpickle.dumps(self.one_column(word)))
            row = {self._first: ROW_EXAMPLES[word]}
            value = made.encode(row, _TOPIC)
            assert made.serializer(row, _CONTEXT) == made.serializer.bind(_TOPIC, _CONTEXT.field)(row, None) == value
            read = made.decode(value, _TOPIC)
            assert made.deserializer(value, _CONTEXT) == read
            assert made.deserializer.bind(_TOPIC, _CONTEXT.field)(value, None) == read
            again: RowFormat = pickle.loads(pickle.dumps(made))
            assert (again.name, again.schema, dict(again.options)) == (made.name, made.schema, dict(made.options))
            assert again.decode_batch([value], _TOPIC).equals(made.decode_batch([value], _TOPIC))

    def test_empty_batches(self) -> None:
        """They also have the types of the schema."""
        for word in self.types:
            made = self.one_column(word)
            batch = made.decode_batch([], _TOPIC)
            assert (batch.num_rows, batch.schema) == (0, made.schema.arrow)
            assert made.encode_batch(batch, _TOPIC) == []

    @property
    def _first(self) -> str:
        return self.names[0] if self.names else "c0"

    def _schemas(self) -> st.SearchStrategy[tuple[Schema, list[dict[str, Any]]]]:
        column = st.tuples(st.sampled_from(sorted(self.types)), st.booleans() if self.nullable else st.just(False))
        return st.lists(column, min_size=1, max_size=self.max_columns).flatmap(
            lambda columns: _row_strategy(columns, self.names)
        )


def _check_agreement(made: RowFormat, values: Sequence[bytes]) -> None:
    rows: list[dict[str, Any]] = []
    fault = None
    try:
        rows.extend(made.decode(value, _TOPIC) for value in values)
    except SerializationError as error:
        fault = f"row {len(rows)}: {error}"
    if fault is not None:
        with pytest.raises(SerializationError) as caught:
            made.decode_batch(values, _TOPIC)
        assert str(caught.value) == fault
        return
    batch = made.decode_batch(values, _TOPIC)
    batch.validate(full=True)
    assert _are_alike(_rows_of(made.schema, batch), rows)


def _rows_of(schema: Schema, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [schema.check(row) for row in batch.to_pylist()]


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return type(one) is type(other) and bool(one == other)


@st.composite
def _damage_values(draw: st.DrawFn, values: Sequence[bytes]) -> bytes:
    value = draw(st.sampled_from([*values, b""]))
    at = draw(st.integers(0, len(value)))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=16))
    if kind == 1:
        return value[:at]
    if kind == 2:
        return value[:at] + draw(st.binary(min_size=1, max_size=3)) + value[at:]
    return value[:at] + draw(st.binary(min_size=1, max_size=2)) + value[at + 1 :]
