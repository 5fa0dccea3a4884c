"""Rows of a schema as bytes; `row_formats` finds the formats by name."""

from streamrt.serializers.rows.json_rows import RowDeserializer, RowSerializer, json_value, name_infinite, write_json

__all__ = ["RowDeserializer", "RowSerializer", "json_value", "name_infinite", "write_json"]
