"""Tables of the kind `maintained` on Fluss. It imports nothing of StreamRT."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

__all__ = ["create_table"]

_CREATE_TABLE = 1005
_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "BOOLEAN"},
    "int8": {"type": "TINYINT"},
    "int16": {"type": "SMALLINT"},
    "int32": {"type": "INTEGER"},
    "int64": {"type": "BIGINT"},
    "float64": {"type": "DOUBLE"},
    "string": {"type": "STRING"},
    "date": {"type": "DATE"},
    "timestamp": {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 6},
    "decimal(10,2)": {"type": "DECIMAL", "precision": 10, "scale": 2},
}
_ENGINES = {"last": None, "first": "first_row", "versioned": "versioned", "aggregate": "aggregation"}
_BEHAVIOURS = {"allow": "allow", "ignore": "ignore", "refuse": "disable"}


async def create_table(address: str, database: str, table: str, case: dict[str, Any]) -> None:
    """Create the table of a case.

    The client of Fluss for Python cannot say functions of columns, so the request is written here.
    """
    host, port = address.split(":")
    path = _field(1, database.encode()) + _field(2, table.encode())
    message = _field(1, path) + _field(2, json.dumps(_describe_table(case)).encode()) + b"\x18\x00"
    header = struct.pack(">hhi", _CREATE_TABLE, 0, 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(header) + len(message)) + header + message)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        response = await reader.readexactly(length)
    finally:
        writer.close()
    if response[0] != 0:
        raise RuntimeError(f"the table was not created: {response!r}")


def _describe_table(case: dict[str, Any]) -> dict[str, Any]:
    engine = _ENGINES[case["merge"]]
    properties = {"table.replication.factor": "1"}
    if engine is not None:
        properties["table.merge-engine"] = engine
    if case["merge"] == "versioned":
        properties["table.merge-engine.versioned.ver-column"] = case["version"]
    if case["deletes"] is not None:
        properties["table.delete.behavior"] = _BEHAVIOURS[case["deletes"]]
    columns = []
    for number, (name, word, nullable) in enumerate(case["columns"]):
        column: dict[str, Any] = {"name": name, "id": number, "data_type": {**_TYPES[word], "nullable": nullable}}
        if name in case["functions"]:
            column["agg_function"] = {"type": case["functions"][name]}
        columns.append(column)
    schema = {
        "version": 1,
        "columns": columns,
        "primary_key": case["primary_key"],
        "highest_field_id": len(columns) - 1,
    }
    return {
        "version": 1,
        "schema": schema,
        "partition_key": [],
        "bucket_key": case["primary_key"],
        "bucket_count": case["partitions"],
        "properties": properties,
        "custom_properties": {},
    }


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a Protobuf message, of bytes."""
    length, size = len(content), b""
    while length > 0x7F:
        size += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content
