"""Each format of rows keeps the contract."""

import pytest

from streamrt.schema import Schema
from streamrt.serializers.row_formats import RowFormat, row_format
from streamrt.testing.row_formats import ROW_VALUES, RowFormatConformance

pytestmark = pytest.mark.slow


@pytest.mark.rows("FL-121")
class TestJSONRows(RowFormatConformance):
    refused = (b"", b"null", b"[1]", b'"x"', b"{", b'{"c0": {"x"}', b'{"c0": 1}{"c0": 2}', b"\xff", b'{"c0": NaN}')

    def make(self, schema: Schema) -> RowFormat:
        return row_format("json", schema)


@pytest.mark.rows("FL-121")
class TestAvroRows(RowFormatConformance):
    types = tuple(word for word in ROW_VALUES if word != "MAP<BIGINT, STRING>")

    def make(self, schema: Schema) -> RowFormat:
        return row_format("avro", schema)


class TestRowsOfOneColumn(RowFormatConformance):
    max_columns = 1
    nullable = False

    def make(self, schema: Schema) -> RowFormat:
        return row_format("single", schema)


class TestRowsOfOneColumnInJSON(RowFormatConformance):
    max_columns = 1
    refused = (b"", b"null", b"{", b"1 2", b"\xff", b"NaN")

    def make(self, schema: Schema) -> RowFormat:
        return row_format("single", schema, {"serializer": "json"})


class TestTexts(RowFormatConformance):
    types = ("STRING", "VARCHAR(8)")
    max_columns = 1
    nullable = False
    refused = (b"\xff", b"a\xed\xa0\x80")

    def make(self, schema: Schema) -> RowFormat:
        return row_format("string", schema)


@pytest.mark.rows("FL-121")
class TestRawRows(RowFormatConformance):
    types = ("BINARY",)
    max_columns = 1
    nullable = False
    names = ("value",)

    def make(self, schema: Schema) -> RowFormat:
        return row_format("raw", schema)


class TestProtobufRows(RowFormatConformance):
    nullable = False

    def make(self, schema: Schema) -> RowFormat:
        return row_format("protobuf", schema)


class TestProtobufRowsWithNulls(RowFormatConformance):
    types = tuple(word for word in ROW_VALUES if not word.startswith(("ARRAY", "MAP")))

    def make(self, schema: Schema) -> RowFormat:
        return row_format("protobuf", schema)
