"""Bytes that no one sends on purpose: random, damaged, almost right, and made to do harm. All from one seed."""

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence

Source = Callable[[random.Random], bytes]

_INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff" * 9 + b"\x01",
    b'"',
    b"[",
    b"{",
    b"\\u",
)


def noise(rng: random.Random) -> bytes:
    """Return random bytes: mostly few, sometimes many."""
    return rng.randbytes(
        rng.choice((0, 1, 2, 4, 5, 8, 9, 17, rng.randrange(64), rng.randrange(64), rng.randrange(5_000)))
    )


def damaged(rng: random.Random, valid: Sequence[bytes]) -> bytes:
    """Return bytes that were valid once: cut, flipped, doubled, spliced."""
    data = bytearray(rng.choice(valid))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        other = rng.randrange(len(data) + 1)
        action = rng.randrange(7)
        if action == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            del data[place:]
        elif action == 2:
            del data[min(place, other) : max(place, other)]
        elif action == 3:
            data[place:place] = data[min(place, other) : max(place, other)]
        elif action == 4:
            data[place:place] = rng.choice(_INTERESTING)
        elif action == 5:
            token = rng.choice(_INTERESTING)
            data[place : place + len(token)] = token
        else:
            data[place:] = rng.choice(valid)[other:]
    return bytes(data)


# -- JSON ------------------------------------------------------------------------------------------------------------

_SCALARS = (
    *("0", "-0", "1", "-1", "1.5", "1e5", "1e400", "-1e400", "1E-400", "18446744073709551616", "-9223372036854775809"),
    *(
        "9" * 400,
        "0." + "9" * 400,
        "01",
        "1.",
        ".5",
        "+1",
        "0x1",
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "false",
        "null",
    ),
    *(
        '""',
        '"a"',
        '"id"',
        '"\\u0000"',
        '"\\ud800"',
        '"\\ud800\\udc00"',
        '"\\x"',
        '"\n"',
        "'a'",
        '"\U0001f600"',
        '"' + "a" * 300 + '"',
    ),
    *("nul", "tru", '"', "", "/**/", "\ufeff"),
)
_NAMES = (
    *("id", "tags", "next", "a", "", "Timestamp", "Timestamps", "NumericValues", "StringValues", "BinaryValues"),
    *("TagValues", "Tags", "Id", "Value", "C", "K", "V", "$ref", "__proto__", "\\u0061", "\\ud800"),
)
_QUIX = (
    '"JT"',
    '"J"',
    '"ParameterData"',
    '"EventData"',
    '"EventData[]"',
    '"StreamEnd"',
    "[1,2]",
    '["eA==",null]',
    '"[GZIP]JT"',
)


def json_text(rng: random.Random) -> bytes:
    """Return text that is JSON, or nearly so."""
    return _json(rng, rng.choice((0, 1, 2, 3, 5))).encode("utf-8", "surrogatepass")


def _json(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(6) if depth else 0
    if kind <= 1:
        return rng.choice(_SCALARS if rng.randrange(4) else _QUIX)
    items = [_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    comma = rng.choice((",", ",", ",", ", ", ",,", "", ";"))
    if kind <= 3:
        return f"[{comma.join(items)}{rng.choice((']', ']', ']', ',]', '', '}'))}"
    colon = rng.choice((":", ":", ":", ": ", "", "::"))
    fields = comma.join(f'"{rng.choice(_NAMES)}"{colon}{item}' for item in items)
    return f"{{{fields}{rng.choice(('}', '}', '}', ',}', '', ']'))}"


def json_bomb(rng: random.Random) -> bytes:
    """Return JSON that is deep, wide, or has a number or a name without end."""
    n = rng.choice((500, 1_000, 1_025, 5_000, 100_000))
    return rng.choice(
        (
            lambda: b"[" * n,
            lambda: b"[" * n + b"]" * n,
            lambda: b'{"id":' * n + b"1" + b"}" * n,
            lambda: b'{"id":1,"next":' * n + b"null" + b"}" * n,
            lambda: b'{"id":1,"tags":[' + b"{}," * n + b"{}]}",
            lambda: b'{"id":1,"tags":[' + b",".join(b'{"a":%d}' % i for i in range(min(n, 20_000))) + b"]}",
            lambda: b'{"id":' + b"9" * n + b"}",
            lambda: b'{"id":1e' + b"9" * n + b"}",
            lambda: b'"' + b"\\" * n,
            lambda: b'{"' + b"a" * n + b'":1}',
            lambda: b"{" + b",".join(b'"%d":1' % i for i in range(min(n, 20_000))) + b"}",
        )
    )()


def compressed(inner: Source) -> Source:
    """Return a source of compressed bytes: whole, damaged, or with something behind them."""

    def make(rng: random.Random) -> bytes:
        kind = rng.randrange(40)
        if kind == 0:
            return _gzip_bomb()
        data = gzip.compress(inner(rng), 1, mtime=0)
        if kind == 1:
            return data + rng.randbytes(3)
        if kind == 2:
            return gzip.compress(data, 1, mtime=0)
        return data if kind % 2 else damaged(rng, [data])

    return make


_bombs: list[bytes] = []


def _gzip_bomb() -> bytes:
    if not _bombs:
        # Piece by piece, since the process that makes it may not be large.
        maker = zlib.compressobj(1, wbits=31)
        pieces = [maker.compress(b'{"Timestamps":['), *(maker.compress(b"1," * 500_000) for _ in range(300))]
        _bombs.append(b"".join([*pieces, maker.compress(b"1]}"), maker.flush()]))
    return _bombs[0]


def quix_text(rng: random.Random) -> bytes:
    """Return time series data or events, sometimes with something wrong."""
    if not rng.randrange(3):
        return json_text(rng)
    count = rng.randrange(4)

    def column() -> object:
        items: list[object] = [
            rng.choice((1, 1.5, None, "eA==", "x", True, [], {}))
            for _ in range(rng.choice((count, count, count + 1, 0)))
        ]
        return items if rng.randrange(8) else rng.choice((None, 5, "xy", {"0": 1}))

    def columns() -> object:
        made = {rng.choice(_NAMES): column() for _ in range(rng.randrange(3))}
        return made if rng.randrange(10) else rng.choice((None, [], 5))

    event: dict[str, object] = {
        "Id": "i",
        "Value": "v",
        "Tags": {"t": "x"},
        "Timestamp": rng.choice((1, None, 2**63, "x")),
    }
    event.pop(rng.choice(("Id", "Value", "Tags", "Timestamp", "")), None)
    series: dict[str, object] = {"Timestamps": list(range(count))}
    series.update(
        {part: columns() for part in ("NumericValues", "StringValues", "BinaryValues", "TagValues") if rng.randrange(3)}
    )
    value: object = rng.choice((series, event, [event, event], [series]))
    if rng.randrange(2):
        value = {
            "C": rng.choice(("JT", "J", "X", 5, None, ["JT"])),
            "K": rng.choice(
                ("ParameterData", "TimeseriesData", "EventData", "EventData[]", "StreamEnd", "X", None, [], {})
            ),
            "V": value,
        }
    return json.dumps(value, separators=(",", ":")).encode()


def quix_bomb(rng: random.Random) -> bytes:
    """Return a value that stands for very many records."""
    n = rng.choice((99_999, 100_001, 2_000_000))
    return b'{"Timestamps":[' + b"1," * n + b"1]}" if rng.randrange(2) else b"[" + b"{}," * n + b"{}]"


# -- Protobuf and Avro -------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Return a base-128 varint."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _number(rng: random.Random) -> int:
    return rng.choice(
        (0, 1, 2, rng.randrange(128), 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, rng.getrandbits(64))
    )


def protobuf_fields(rng: random.Random) -> bytes:
    """Return tagged fields, most of them with plausible numbers and types."""
    return _protobuf(rng, rng.choice((0, 1, 2, 4)))


def _protobuf(rng: random.Random, depth: int) -> bytes:
    parts = []
    for _ in range(rng.randrange(5)):
        field = rng.choice((*range(1, 14), 0, 15, 16, 536_870_911, 2**29))
        wire = rng.choice((0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7))
        if not rng.randrange(3):
            wire = {1: 0, 3: 0, 5: 1, 13: 0}.get(field, 2)
        parts.append(varint(field << 3 | wire))
        if wire == 0:
            parts.append(varint(_number(rng)) if rng.randrange(20) else b"\xff" * rng.randrange(12))
        elif wire == 1:
            parts.append(struct.pack("<d", rng.choice((0.0, 1.5, float("nan"), float("inf"), 1e308))))
        elif wire == 2:
            inner = (
                _protobuf(rng, depth - 1)
                if depth and rng.randrange(2)
                else rng.choice((b"", b"a", b"\xff", "ä€".encode(), rng.randbytes(5)))
            )
            length = len(inner) if rng.randrange(12) else _number(rng)
            parts.append(varint(length) + inner)
        elif wire == 5:
            parts.append(rng.randbytes(4))
    return b"".join(parts)


def protobuf_bomb(rng: random.Random) -> bytes:
    """Return messages that are deep, or have very many parts."""
    n = rng.choice((50, 99, 101, 500, 3_000))

    def nested(tag: bytes) -> bytes:
        data = b""
        for _ in range(n):
            data = tag + varint(len(data)) + data
            if len(data) > 50_000:
                break
        return data

    return rng.choice(
        (
            lambda: nested(b"\x5a"),  # parent
            lambda: nested(b"\x32"),  # values in lists
            lambda: b"\x0b" * n,  # groups
            lambda: b"\x32\x00" * n,
            lambda: b"\x62" + varint(n * 10) + b"\0" * n * 10,  # packed
            lambda: b"\x62" + varint(2**31 - 1) + b"\0",
            lambda: b"\x42\x0a\x08" + b"\xff" * 8 + b"\x7f",  # year 292,277,026,596
            lambda: b"".join(
                b"\x52" + varint(len(k) + 2) + b"\n" + varint(len(k)) + k for k in (b"%d" % i for i in range(n))
            ),
        )
    )()


def avro_numbers(rng: random.Random) -> bytes:
    """Return zigzag numbers and short strings, as Avro's encodings are made of."""
    parts = []
    for _ in range(rng.randrange(12)):
        kind = rng.randrange(6)
        if kind <= 2:
            parts.append(varint(rng.choice((0, 1, 2, 3, 4, 6, 8, 20))))
        elif kind == 3:
            parts.append(varint(_number(rng)))
        elif kind == 4:
            text = rng.choice((b"", b"a", b"\xff", "ä".encode()))
            parts.append(varint(len(text) * 2) + text)
        else:
            parts.append(rng.randbytes(rng.choice((1, 4, 8))))
    return b"".join(parts)


def avro_bomb(rng: random.Random) -> bytes:
    """Return blocks of very many items, and very long chains."""
    n = rng.choice((1_000, 5_001, 100_000))
    count = varint(rng.choice((10**6, 5 * 10**7, 2**31, 2**62)) << 1)
    return rng.choice(
        (
            lambda: count,
            lambda: count + b"\0",
            lambda: varint((n << 1) - 1) + count + b"\0",
            lambda: b"\x02" * n,
            lambda: b"\x02\x02" * n + b"\0",
            lambda: b"\xff" * 9 + b"\x01" + b"\0" * 8,
            lambda: b"\x02" + count + b"a",
            lambda: count * 100,
        )
    )()


def behind(prefixes: Sequence[bytes], inner: Source) -> Source:
    """Return a source whose bytes begin with the id of a schema, or with something like it."""

    def make(rng: random.Random) -> bytes:
        kind = rng.randrange(12)
        if kind == 0:
            return inner(rng)
        if kind == 1:
            return damaged(rng, [rng.choice(prefixes)]) + inner(rng)
        if kind == 2:
            return b"\x01" + rng.randbytes(rng.choice((3, 16))) + inner(rng)
        return rng.choice(prefixes) + inner(rng)

    return make
