"""Functions of strings and bytes. Positions count from 1, and characters are those of Unicode."""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.calls import Call, FunctionCall, ScalarFunction, define_special, define_strict
from streamrt.sql.expressions.coercion import BIGINT, BINARY, INT, STRING, is_binary, is_integral
from streamrt.sql.expressions.functions.collections import bind_concat_arrays
from streamrt.sql.expressions.nodes import Constant, fold_constants
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS"]

_LONGEST: Final = 100_000_000


def _text_or_bytes(call: Call, number: int = 0) -> TypedExpression:
    argument = call.arguments[number]
    return argument if is_binary(argument.dtype) else call.cast(number, STRING)


# Lengths and parts.


def _bind_length(call: Call) -> TypedExpression:
    return call.make(len, [_text_or_bytes(call)], INT)


def _bind_octets(bits: int) -> Callable[[Call], TypedExpression]:
    return lambda call: call.make(_count_octets, [_text_or_bytes(call)], INT, options=(bits,))


def _count_octets(bits: int, value: Any) -> int:
    return bits * len(value.encode() if isinstance(value, str) else value)


def _bind_substring(call: Call) -> TypedExpression:
    text = _text_or_bytes(call)
    numbers = [call.cast(number, INT) for number in range(1, len(call.arguments))]
    return call.make(_substring, [text, *numbers], BINARY if is_binary(text.dtype) else STRING)


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    # 0 is the first character, and so is 1; negative positions count from the end.
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if length is None:
        return text[max(first, 0) :]
    end = first + length
    return text[max(first, 0) : end] if end > 0 and length > 0 else text[:0]


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    if count < 0:
        return _rsplit_tail(text, delimiter, -count)
    end = -1
    for _ in range(count):
        end = text.find(delimiter, end + 1)
        if end < 0:
            return text
    return text[:end]


def _rsplit_tail(text: str, delimiter: str, count: int) -> str:
    end = len(text)
    for _ in range(count):
        found = text.rfind(delimiter, 0, end + len(delimiter) - 1)
        if found < 0:
            return text
        end = found
    return text[end + len(delimiter) :]


def _bind_left(call: Call) -> TypedExpression:
    text = _text_or_bytes(call)
    return call.make(_left, [text, call.cast(1, INT)], BINARY if is_binary(text.dtype) else STRING)


def _left(text: Any, length: int) -> Any:
    return text[: max(length, 0)]


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _split_part(text: str, delimiter: str, number: int) -> str:
    if not number:
        raise ValueError("split_part(): the number of a part is not 0; 1 is the first, and -1 the last one")
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


# Joining and padding.


def _bind_concat(call: Call) -> TypedExpression:
    arguments = call.arguments
    if not arguments:
        return call.make(str, [], STRING)
    if any(types.is_list(argument.dtype) for argument in arguments):
        return bind_concat_arrays(call)
    if all(is_binary(argument.dtype) for argument in arguments):
        return call.make(_join_bytes, arguments, BINARY)
    texts = [call.cast(number, STRING) for number in range(len(arguments))]
    return call.make(_join, texts, STRING)


def _join(*texts: str) -> str:
    return "".join(texts)


def _join_bytes(*values: bytes) -> bytes:
    return b"".join(values)


def _bind_concat_ws(call: Call) -> TypedExpression:
    separator = call.cast(0, STRING)
    arguments: list[TypedExpression] = []
    for number in range(1, len(call.arguments)):
        dtype = call.arguments[number].dtype
        if types.is_list(dtype) and dtype.value_type != STRING:
            raise call.misfit(number, "STRING or ARRAY<STRING>")
        arguments.append(call.arguments[number] if types.is_list(dtype) else call.cast(number, STRING))
    node = FunctionCall(
        call.name, _join_present, (separator, *arguments), STRING, may_be_null=separator.nullable, strict=False
    )
    return fold_constants(node)


def _join_present(separator: str | None, *values: Any) -> str | None:
    if separator is None:
        return None
    parts: list[str] = []
    for value in values:
        if isinstance(value, list):
            parts += [item for item in value if item is not None]
        elif value is not None:
            parts.append(value)
    return separator.join(parts)


def _lpad(text: str, length: int, padding: str = " ") -> str:
    return _pad(text, length, padding) + text if len(text) < length else text[: max(length, 0)]


def _rpad(text: str, length: int, padding: str = " ") -> str:
    return text + _pad(text, length, padding) if len(text) < length else text[: max(length, 0)]


def _pad(text: str, length: int, padding: str) -> str:
    _limit(length)
    missing = length - len(text)
    return (padding * (missing // len(padding) + 1))[:missing] if padding else ""


def _limit(length: int) -> None:
    if length > _LONGEST:
        raise OverflowError(f"a text has at most {_LONGEST:,} characters")


def _repeat(text: str, count: int) -> str:
    _limit(len(text) * count)
    return text * max(count, 0)


def _space(count: int) -> str:
    return _repeat(" ", count)


# Changing characters.


def _trim(text: str, characters: str = " ") -> str:
    return text.strip(characters) if characters else text


def _ltrim(text: str, characters: str = " ") -> str:
    return text.lstrip(characters) if characters else text


def _rtrim(text: str, characters: str = " ") -> str:
    return text.rstrip(characters) if characters else text


def _swapped(function: Callable[[str, str], str]) -> Callable[[Call], TypedExpression]:
    """Bind what Spark calls with the characters first, if there are two arguments."""

    def bind(call: Call) -> TypedExpression:
        arguments = [call.cast(number, STRING) for number in range(len(call.arguments))]
        return call.make(function, arguments[::-1], STRING)

    return bind


def _replace(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _translate(text: str, characters: str, replacements: str) -> str:
    table: dict[int, str | None] = {}
    for number, character in enumerate(characters):
        table.setdefault(ord(character), replacements[number] if number < len(replacements) else None)
    return text.translate(table)


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] if word else word for word in text.lower().split(" "))


def _overlay(text: str, replacement: str, start: int, length: int = -1) -> str:
    count = length if length >= 0 else len(replacement)
    before = _substring(text, 1, start - 1) if start > 1 else ""
    return str(before) + replacement + str(_substring(text, start + count))


# Searching.


def _instr(text: str, search: str) -> int:
    return text.find(search) + 1


def _bind_locate(call: Call) -> TypedExpression:
    search, text = call.cast(0, STRING), call.cast(1, STRING)
    start = call.cast(2, INT) if len(call.arguments) > 2 else Constant(1, INT)
    may_be_null = search.nullable or text.nullable
    node = FunctionCall(call.name, _locate, (search, text, start), INT, may_be_null, strict=False)
    return fold_constants(node)


def _locate(search: str | None, text: str | None, start: int | None) -> int | None:
    if start is None:
        return 0
    if search is None or text is None:
        return None
    if start < 1 or not search:
        return int(start >= 1)
    return text.find(search, start - 1) + 1


def _bind_search(find: Callable[[Any, Any], bool]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        both_bytes = all(is_binary(argument.dtype) for argument in call.arguments)
        arguments = call.arguments if both_bytes else [call.cast(number, STRING) for number in (0, 1)]
        return call.make(find, arguments, pa.bool_())

    return bind


def _contains(text: Any, search: Any) -> bool:
    return search in text


def _starts_with(text: Any, search: Any) -> bool:
    return bool(text.startswith(search))


def _ends_with(text: Any, search: Any) -> bool:
    return bool(text.endswith(search))


def _levenshtein(a: str, b: str) -> int:
    if len(a) < len(b):
        a, b = b, a
    row = list(range(len(b) + 1))
    for number, one in enumerate(a, 1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(b, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (one != other))
    return row[-1]


# Codes and digests.


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _bind_bytes(function: Callable[..., Any], dtype: pa.DataType = STRING) -> Callable[[Call], TypedExpression]:
    """Bind a function of bytes, which are those of UTF-8 if the argument is a text."""
    return lambda call: call.make(function, [_bytes_argument(call)], dtype)


def _bytes_argument(call: Call) -> TypedExpression:
    return call.arguments[0] if is_binary(call.arguments[0].dtype) else call.cast(0, BINARY)


def _write_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _read_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("unbase64(): the text is not base64") from None


def _bind_hex(call: Call) -> TypedExpression:
    argument = call.arguments[0]
    if is_integral(argument.dtype):
        return call.make(_hex_number, [call.cast(0, BIGINT)], STRING)
    return call.make(_hex_bytes, [_bytes_argument(call)], STRING)


def _hex_number(number: int) -> str:
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:X}"


def _hex_bytes(data: bytes) -> str:
    return data.hex().upper()


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex("0" * (len(text) % 2) + text) if text.isalnum() or not text else None
    except ValueError:
        return None


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _bind_sha2(call: Call) -> TypedExpression:
    return call.make(_sha2, [_bytes_argument(call), call.cast(1, INT)], STRING, may_be_null=True)


def _sha2(data: bytes, bits: int) -> str | None:
    make = _SHA2.get(bits)
    return None if make is None else make(data).hexdigest()


_SHA2: Final[dict[int, Callable[[bytes], Any]]] = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}


def _bind_reverse(call: Call) -> TypedExpression:
    argument = call.arguments[0]
    if types.is_list(argument.dtype):
        return call.make(_reverse, [argument], argument.dtype)
    return call.make(_reverse, [call.cast(0, STRING)], STRING)


def _reverse(value: Any) -> Any:
    return value[::-1]


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_special(
        "concat",
        "values... ANY",
        "STRING, BINARY or ARRAY",
        _bind_concat,
        "values one after the other, as by the operator",
    ),
    define_special(
        "concat_ws", "separator STRING[, values... ANY]", "STRING", _bind_concat_ws, "strings that are not NULL, joined"
    ),
    define_special(
        "length",
        "text STRING",
        "INT",
        _bind_length,
        "number of characters, or of bytes of BINARY",
        aliases=("char_length", "character_length", "len"),
    ),
    define_special("octet_length", "text STRING", "INT", _bind_octets(1), "number of bytes in UTF-8"),
    define_special("bit_length", "text STRING", "INT", _bind_octets(8), "number of bits in UTF-8"),
    define_strict("upper", "text STRING", "STRING", str.upper, "text in upper case", aliases=("ucase",)),
    define_strict("lower", "text STRING", "STRING", str.lower, "text in lower case", aliases=("lcase",)),
    define_strict("initcap", "text STRING", "STRING", _initcap, "text with words that begin in upper case"),
    define_special(
        "trim",
        "characters STRING[, text STRING]",
        "STRING",
        _swapped(_trim),
        "text without blanks, or characters, at its ends",
    ),
    define_special(
        "ltrim", "characters STRING[, text STRING]", "STRING", _swapped(_ltrim), "as trim, at the beginning"
    ),
    define_special("rtrim", "characters STRING[, text STRING]", "STRING", _swapped(_rtrim), "as trim, at the end"),
    define_strict("btrim", "text STRING[, characters STRING]", "STRING", _trim, "as trim, with the text first"),
    define_special(
        "substring",
        "text STRING, start INT[, length INT]",
        "STRING or BINARY",
        _bind_substring,
        "part of a text; a negative start counts from the end",
        aliases=("substr", "mid"),
    ),
    define_strict(
        "substring_index",
        "text STRING, delimiter STRING, count INT",
        "STRING",
        _substring_index,
        "text before so many delimiters; after them, if the count is negative",
    ),
    define_special("left", "text STRING, length INT", "STRING", _bind_left, "beginning of a text"),
    define_strict("right", "text STRING, length INT", "STRING", _right, "end of a text"),
    define_strict(
        "lpad", "text STRING, length INT[, padding STRING]", "STRING", _lpad, "text filled up at its beginning"
    ),
    define_strict("rpad", "text STRING, length INT[, padding STRING]", "STRING", _rpad, "text filled up at its end"),
    define_strict(
        "replace", "text STRING, search STRING[, replacement STRING]", "STRING", _replace, "text with parts replaced"
    ),
    define_strict(
        "translate",
        "text STRING, characters STRING, replacements STRING",
        "STRING",
        _translate,
        "text with characters replaced",
    ),
    define_strict(
        "overlay",
        "text STRING, replacement STRING, start INT[, length INT]",
        "STRING",
        _overlay,
        "text with a part replaced",
    ),
    define_strict(
        "split_part",
        "text STRING, delimiter STRING, number INT",
        "STRING",
        _split_part,
        "part between delimiters, from 1",
    ),
    define_strict(
        "instr", "text STRING, search STRING", "INT", _instr, "place of a text in another one; 0 if it is not there"
    ),
    define_special(
        "locate",
        "search STRING, text STRING[, start INT]",
        "INT",
        _bind_locate,
        "as instr, from a place",
        aliases=("position",),
    ),
    define_special(
        "startswith", "text STRING, search STRING", "BOOLEAN", _bind_search(_starts_with), "whether it begins so"
    ),
    define_special("endswith", "text STRING, search STRING", "BOOLEAN", _bind_search(_ends_with), "whether it ends so"),
    define_special(
        "contains", "text STRING, search STRING", "BOOLEAN", _bind_search(_contains), "whether it is in the text"
    ),
    define_special("reverse", "value ANY", "STRING or ARRAY", _bind_reverse, "text or list from its end"),
    define_strict("repeat", "text STRING, count INT", "STRING", _repeat, "text so many times"),
    define_strict("space", "count INT", "STRING", _space, "so many blanks"),
    define_strict("levenshtein", "a STRING, b STRING", "INT", _levenshtein, "characters in which two strings differ"),
    define_strict("ascii", "text STRING", "INT", _ascii, "code of the first character; 0 without one"),
    define_strict("chr", "code BIGINT", "STRING", _chr, "character with a code, modulo 256", aliases=("char",)),
    define_special("base64", "data BINARY", "STRING", _bind_bytes(_write_base64), "bytes as base64"),
    define_strict("unbase64", "text STRING", "BINARY", _read_base64, "bytes that are in base64"),
    define_special("hex", "value ANY", "STRING", _bind_hex, "number, text or bytes in hexadecimal"),
    define_strict("unhex", "text STRING", "BINARY", _unhex, "bytes that are in hexadecimal, or NULL", may_be_null=True),
    define_special("md5", "data BINARY", "STRING", _bind_bytes(_md5), "digest MD5 in hexadecimal"),
    define_special(
        "sha1", "data BINARY", "STRING", _bind_bytes(_sha1), "digest SHA-1 in hexadecimal", aliases=("sha",)
    ),
    define_special("sha2", "data BINARY, bits INT", "STRING", _bind_sha2, "digest SHA-2 of 224, 256, 384 or 512 bits"),
    define_special("crc32", "data BINARY", "BIGINT", _bind_bytes(zlib.crc32, BIGINT), "checksum"),
)
