"""`NOT NULL` behind the elements of lists and maps, as in `ARRAY<INT NOT NULL>`, which sqlglot does not read."""

from typing import Any

__all__ = ["REQUIRED", "mark_required"]

REQUIRED = "\x01not null"
"""Name of the one field of the struct that stands for an element that is never null."""

_OPEN = ("LT", "L_PAREN")
_CLOSED = ("GT", "R_PAREN")


def mark_required(text: str) -> str:
    """Return a DDL text in which each element that is never null is a struct with one field, `REQUIRED`.

    Example:
        >>> mark_required("a ARRAY<INT NOT NULL>") == f"a ARRAY<STRUCT<`{REQUIRED}`: INT >>"
        True
    """
    if "<" not in text or "null" not in text.lower():
        return text
    import sqlglot

    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        # Whoever parses the text says what is wrong.
        return text
    parts = []
    done = 0
    for begin, end, instead in sorted(_find_changes(tokens)):
        parts += [text[done:begin], instead]
        done = end
    return "".join([*parts, text[done:]])


def _find_changes(tokens: list[Any]) -> list[tuple[int, int, str]]:
    """Return which characters are replaced: their begin, their end, and by what."""
    changes: list[tuple[int, int, str]] = []
    # Of each bracket that is open: whether there are elements in it, and where the present one begins.
    brackets: list[tuple[bool, int]] = []
    for number, token in enumerate(tokens):
        kind = token.token_type.name
        if kind in _OPEN:
            has_elements = kind == "LT" and number > 0 and tokens[number - 1].text.upper() in ("ARRAY", "MAP")
            brackets.append((has_elements, token.end + 1))
        elif brackets and kind in (*_CLOSED, "COMMA"):
            has_elements, begin = brackets.pop()
            last = tokens[number - 2 : number]
            if has_elements and [each.token_type.name for each in last] == ["NOT", "NULL"]:
                changes += [(begin, begin, f"STRUCT<`{REQUIRED}`: "), (last[0].start, last[1].end + 1, ">")]
            if kind == "COMMA":
                brackets.append((has_elements, token.end + 1))
    return changes
