"""Texts of settings and errors."""

__all__ = ["one_line", "option_text"]

_LONGEST = 300


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
