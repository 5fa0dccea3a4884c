"""Arithmetic of Decimals: Python's own context rounds to 28 digits, where columns have up to 38."""

import decimal
from typing import Final

__all__ = ["EXACT", "QUOTIENTS"]

EXACT: Final = decimal.Context(
    prec=1_000,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.InvalidOperation, decimal.Inexact, decimal.Overflow],
)
"""Adds and multiplies Decimals without rounding."""

QUOTIENTS: Final = decimal.Context(prec=38)
"""Divides Decimals."""
