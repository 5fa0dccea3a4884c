"""Numbers as they are written in SQL."""

from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import BIGINT, DOUBLE, INT
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nodes import Constant

__all__ = ["read_number"]


def read_number(node: exp.Literal) -> Constant:
    """Return a number: INT, BIGINT or DECIMAL by its digits, or DOUBLE if it has an exponent.

    Raises:
        SQLAnalysisError: if it has more than 38 digits.

    Example:
        >>> read_number(exp.Literal.number("2.50"))
        Constant(value=Decimal('2.50'), type=Decimal128Type(decimal128(3, 2)))
    """
    text = str(node.this)
    if not text.removeprefix("-").isdigit():
        return _read_fraction(text, node)
    number = int(text) if len(text) < 60 else None
    # The lowest integer is the highest one and one more, with a minus sign.
    most = 1 if isinstance(node.parent, exp.Neg) else 0
    for dtype in (INT, BIGINT):
        end = 1 << (dtype.bit_width - 1)
        if number is not None and -end <= number < end + most:
            return Constant(number, dtype)
    return _read_fraction(text, node)


def _read_fraction(text: str, node: exp.Expr) -> Constant:
    if "e" in text.lower():
        return Constant(float(text), DOUBLE)
    number = Decimal(text)
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    precision = max(len(digits), -exponent)
    if precision > 38:
        raise make_analysis_error("a number has at most 38 digits; write it with an exponent for a DOUBLE", node)
    return Constant(number, pa.decimal128(max(precision, 1), max(-exponent, 0)))
