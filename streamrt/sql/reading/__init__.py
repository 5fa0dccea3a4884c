"""Statements of SQL, read from text, with the place of each word."""

from streamrt.sql.expressions.positions import position_of
from streamrt.sql.reading.dialect import StreamSQL
from streamrt.sql.reading.statements import Statement, ViewKind, parse_query, parse_statements

__all__ = ["Statement", "StreamSQL", "ViewKind", "parse_query", "parse_statements", "position_of"]
