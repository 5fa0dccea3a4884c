"""Types as CAST names them."""

from typing import Final

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_LTZ,
)
from streamrt.sql.expressions.failures import make_analysis_error

__all__ = ["read_type"]

_TYPES: Final = {
    exp.DType.BOOLEAN: BOOLEAN,
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: INT,
    exp.DType.BIGINT: BIGINT,
    exp.DType.FLOAT: FLOAT,
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.CHAR: STRING,
    exp.DType.BINARY: BINARY,
    exp.DType.VARBINARY: BINARY,
    exp.DType.DATE: DATE,
    # Spark's word TIMESTAMP: tables have one without a time zone.
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: TIMESTAMP_LTZ,
    exp.DType.TIME: pa.time32("ms"),
}


def read_type(node: exp.DataType) -> pa.DataType:
    """Return the type that a text names.

    Raises:
        SQLAnalysisError: if values of expressions do not have it.

    Example:
        >>> read_type(exp.DataType.build("ARRAY<DECIMAL(10, 2)>", dialect="spark"))
        ListType(list<item: decimal128(10, 2)>)
    """
    kind, parts = node.this, node.expressions
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == exp.DType.DECIMAL:
        return _read_decimal(node)
    if kind == exp.DType.ARRAY and len(parts) == 1:
        return pa.list_(read_type(parts[0]))
    if kind == exp.DType.MAP and len(parts) == 2:
        return pa.map_(read_type(parts[0]), read_type(parts[1]))
    if kind == exp.DType.STRUCT and parts:
        return pa.struct([pa.field(part.name, read_type(part.args["kind"])) for part in parts])
    raise make_analysis_error(f"there is no type {node.sql(dialect='spark')} to cast to", node)


def _read_decimal(node: exp.DataType) -> pa.DataType:
    numbers = [int(part.name) for part in node.expressions]
    precision, scale = (*numbers, *(10, 0)[len(numbers) :])
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise make_analysis_error("DECIMAL has 1 to 38 digits, and at most as many behind the point", node)
    return pa.decimal128(precision, scale)
