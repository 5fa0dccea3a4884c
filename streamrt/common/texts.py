"""Texts of settings and errors."""

import re

__all__ = ["one_line", "option_text", "whole_number"]

_LONGEST = 300
_DIGITS = re.compile(r"[0-9]{1,18}")


def one_line(value: object) -> str:
    r"""Return the text of an object for a message: on one line and not long. An object without text gives its type.

    Example:
        >>> one_line("is not\n  JSON"), one_line(KeyError())
        ('is not JSON', 'KeyError')
    """
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def option_text(value: object) -> str:
    """Return the value of an option as Kafka and Spark write it.

    Example:
        >>> option_text(True), option_text(5)
        ('true', '5')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def whole_number(text: str) -> int | None:
    """Return the number of a text of ASCII digits, 18 at most, or None if it is none.

    `int` also reads signs, blanks, `_` and the digits of other scripts, and fails with thousands of digits.

    Example:
        >>> whole_number("12"), whole_number("1_2"), whole_number("-1"), whole_number("9" * 5_000)
        (12, None, None, None)
    """
    return int(text) if _DIGITS.fullmatch(text) else None
