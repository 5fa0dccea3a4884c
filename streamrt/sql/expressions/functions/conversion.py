"""Functions that are named after types, and cast to them."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from streamrt.schema.types import SCALARS
from streamrt.sql.expressions.calls import Call, ScalarFunction, define_special
from streamrt.sql.expressions.casts import bind_cast
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS"]

_TYPES: Final[dict[str, pa.DataType]] = {
    **{word.lower(): SCALARS[word] for word in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")},
    "decimal": pa.decimal128(10, 0),
    **{word.lower(): SCALARS[word] for word in ("STRING", "BINARY", "DATE", "TIMESTAMP")},
}


def _bind_type(dtype: pa.DataType) -> Callable[[Call], TypedExpression]:
    return lambda call: bind_cast(call.arguments[0], dtype, call.node)


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = tuple(
    define_special(name, "value ANY", name.upper(), _bind_type(dtype), f"CAST(value AS {name.upper()})")
    for name, dtype in _TYPES.items()
)
