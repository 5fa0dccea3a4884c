"""Text of settings and errors, and text of others as terminals and logs may show them."""

import unicodedata
from hashlib import blake2b

__all__ = ["json_readable", "one_line", "option_text", "readable", "readable_lines", "shorten_name"]

_LONGEST = 300
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories of characters that control terminals, change the order of others, or cannot be seen."""
_SHOWN_AS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


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


def shorten_name(name: str, length: int) -> str:
    """Return a name of some characters at most: a longer one as a digest of the whole, and its end.

    Args:
        name: the name.
        length: how many characters it may have: more than 22.

    Example:
        >>> shorten_name("orders", 40), shorten_name("shop.orders.customer_id.product_id.country", 40)
        ('orders', '26a4aa7c0e0dae8995c6._product_id.country')
    """
    if len(name) <= length:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{digest}._{name[len(digest) + 2 - length :].lstrip('-.')}"


def readable(text: str) -> str:
    r"""Return a text that shows what it has: characters that control a terminal or cannot be seen are escaped.

    Records, headers, topics of others and their errors may have any characters. Escape sequences change what a terminal
    shows, and even what it does; characters for bidirectional text show another order than there is.

    Example:
        >>> readable("a\x1b[2J\n"), readable("pay \u202e001")
        ('a\\x1b[2J\\n', 'pay \\u202e001')
    """
    return text if text.isprintable() else "".join(map(_show_character, text))


def readable_lines(text: str) -> str:
    r"""Return what `readable` returns, with ends of lines and tabs as they are.

    Example:
        >>> readable_lines("a\n\tb\x07")
        'a\n\tb\\x07'
    """
    if text.isprintable():
        return text
    return "".join(character if character in "\n\t" else _show_character(character) for character in text)


def json_readable(text: str) -> str:
    r"""Return JSON with the same meaning whose characters are all to be seen.

    Example:
        >>> json_readable('{"a": "\u202ex"}')
        '{"a": "\\u202ex"}'
    """
    if text.isprintable():
        return text
    # Outside of strings, JSON has no such characters but ends of lines and tabs.
    return "".join(
        character
        if character in "\n\r\t" or unicodedata.category(character) not in _HIDDEN
        else "".join(f"\\u{unit:04x}" for unit in _utf16_units(character))
        for character in text
    )


def _show_character(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    if character in _SHOWN_AS:
        return _SHOWN_AS[character]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _utf16_units(character: str) -> list[int]:
    code = ord(character)
    return [code] if code <= 0xFFFF else [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]
