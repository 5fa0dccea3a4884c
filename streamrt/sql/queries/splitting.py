"""Statements of a text that several of them are in, one after the other, and whether the last one is complete."""

from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from streamrt.errors import SQLSyntaxError
from streamrt.sql.reading.dialect import read_tokens

__all__ = ["SplitText", "is_query", "split_statements"]

_CHANGES = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")


@dataclass(frozen=True)
class SplitText:
    """A text in statements.

    Attributes:
        statements: each statement, without semicolon, and its line, from 1.
        rest: what follows the last semicolon; empty if there is nothing.
    """

    statements: tuple[tuple[str, int], ...]
    rest: str


def split_statements(text: str) -> SplitText:
    """Return the statements of a text; semicolons in quotes and comments separate nothing.

    A quote or a comment without an end is part of the rest.

    Args:
        text: the text.

    Example:
        >>> split_statements("SELECT ';'; SELECT 2")
        SplitText(statements=(("SELECT ';'", 1),), rest='SELECT 2')
    """
    try:
        tokens = read_tokens(text)
    except SQLSyntaxError:
        return SplitText((), text.strip())
    found = []
    start: int | None = None
    end = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if start is not None:
                found.append((text[start:end], text.count("\n", 0, start) + 1))
            start = None
            continue
        if start is None:
            start = token.start
        end = token.end + 1
    return SplitText(tuple(found), "" if start is None else text[start:].strip())


def is_query(statement: str) -> bool:
    """Return whether a statement is one for `query`, and not for `execute`.

    Raises:
        SQLSyntaxError: if it cannot be read.
    """
    tokens = read_tokens(statement)
    return bool(tokens) and tokens[0].text.upper() not in _CHANGES
