"""Rows and expressions with which scalar functions of SQL are compared with other systems."""

import datetime
import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions import ColumnReference, TypedExpression, make_analysis_error, select_field

__all__ = ["COLUMNS", "Columns", "list_cases", "make_rows", "make_table"]

COLUMNS: dict[str, pa.DataType] = {
    "t": pa.int8(),
    "s": pa.int16(),
    "i": pa.int32(),
    "j": pa.int32(),
    "n": pa.int32(),
    "b": pa.int64(),
    "c": pa.int64(),
    "x": pa.float32(),
    "d": pa.float64(),
    "e": pa.float64(),
    "p": pa.decimal128(10, 2),
    "q": pa.decimal128(38, 10),
    "r": pa.decimal128(38, 0),
    "u": pa.decimal128(7, 5),
    "v": pa.string(),
    "w": pa.string(),
    "k": pa.string(),
    "y": pa.binary(),
    "f": pa.date32(),
    "g": pa.date32(),
    "m": pa.timestamp("us"),
    "o": pa.timestamp("us"),
    "z": pa.timestamp("us", "UTC"),
    "h": pa.bool_(),
    "hh": pa.bool_(),
    "l": pa.list_(pa.int32()),
    "ls": pa.list_(pa.string()),
    "ma": pa.map_(pa.string(), pa.int32()),
    "st": pa.struct([("x", pa.int32()), ("y", pa.string())]),
}


class Columns:
    """Names are columns, or fields of their structs."""

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        first, *path = (part.name for part in column.parts)
        if first not in COLUMNS:
            raise make_analysis_error(f"there is no column {first}", column)
        found: TypedExpression = ColumnReference(first, COLUMNS[first])
        for name in path:
            found = select_field(found, name, column)
        return found


_TEXTS = [
    "",
    " ",
    "a",
    "abc",
    "Hello World",
    "  padded  ",
    "a,b,,c",
    "äöü ÄÖÜ ß",
    "日本語",
    "😀 smile",
    "a.b.c",
    "100%",
    "a_b",
    "line\nbreak",
    "x1y22z333",
    "O'Neil \\ slash",
    "The quick brown fox",
    "aaa",
    "AbAb",
]
_WORDS = [
    "1",
    "-17",
    " 42 ",
    "3.5",
    "1e3",
    "abc",
    "",
    "NaN",
    "Infinity",
    "-inf",
    "true",
    "F",
    "yes",
    "2024-02-29",
    "2023-02-29",
    "1969-12-31",
    "2024-03",
    "2024",
    "2024-03-09 08:05:01.25",
    "2024-3-9T8:5:1",
    "2024-03-09 08:05:01+02:00",
    "2024-03-09 08:05:01 UTC",
    "9223372036854775807",
    "9223372036854775808",
    "-2147483649",
    "128",
    "0x1F",
    "1_000",
    "+5",
    "1.5d",
    ".5",
    "5.",
    "99999999.99",
    "0.005",
    "-0.0",
]


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _integer(bits: int) -> Callable[[random.Random], int]:
    high = (1 << (bits - 1)) - 1

    def make(dice: random.Random) -> int:
        return dice.choice(
            [0, 1, -1, 2, 3, 7, 10, 100, high, ~high, high - 1, dice.randint(-20, 20), dice.randint(~high, high)]
        )

    return make


def _double(dice: random.Random) -> float:
    return dice.choice(
        [
            0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 3.0, 1e10, 1e-10, 1e308, -1e308, 5e-324, 123456.789, math.pi,
            math.nan, math.inf, -math.inf, 1e7, 1e-3, 9007199254740993.0, dice.uniform(-100, 100), dice.gauss(0, 1e6),
            float(dice.randint(-50, 50)),
        ]
    )  # fmt: skip


def _decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    highest = _scale(10**precision - 1, scale)

    def make(dice: random.Random) -> Decimal:
        digits = dice.randint(1, precision)
        number = dice.randint(-(10**digits) + 1, 10**digits - 1)
        small = dice.randint(-999, 999) * 10**scale
        chosen = dice.choice([number, number, small if scale + 3 <= precision else number, 0, None])
        return dice.choice([highest, highest.copy_negate()]) if chosen is None else _scale(chosen, scale)

    return make


def _scale(digits: int, scale: int) -> Decimal:
    # Python's own operations round to 28 digits.
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def _date(dice: random.Random) -> datetime.date:
    fixed = [(1970, 1, 1), (1969, 12, 31), (2024, 2, 29), (2023, 12, 31), (1900, 3, 1), (1600, 1, 31), (2024, 1, 31)]
    if dice.random() < 0.4:
        return datetime.date(*dice.choice(fixed))
    return datetime.date(1600, 1, 1) + datetime.timedelta(days=dice.randrange(220_000))


def _moment(dice: random.Random) -> datetime.datetime:
    day = _date(dice)
    micros = dice.choice([0, 1, 999_999, 500_000, 250_000, dice.randrange(1_000_000)])
    hour = dice.choice([0, 23, dice.randrange(24)])
    return datetime.datetime(day.year, day.month, day.day, hour, dice.randrange(60), dice.randrange(60), micros)


def _maybe(dice: random.Random, value: Any, share: float = 0.15) -> Any:
    return None if dice.random() < share else value


_MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "t": _integer(8),
    "s": _integer(16),
    "i": _integer(32),
    "j": _integer(32),
    "n": lambda dice: dice.randint(-6, 12),
    "b": _integer(64),
    "c": _integer(64),
    "x": lambda dice: _float32(number) if abs(number := _double(dice)) < 3e38 or number != number else math.inf,
    "d": _double,
    "e": _double,
    "p": _decimal(10, 2),
    "q": _decimal(38, 10),
    "r": _decimal(38, 0),
    "u": _decimal(7, 5),
    "v": lambda dice: dice.choice(_TEXTS),
    "w": lambda dice: dice.choice(_WORDS),
    "k": lambda dice: dice.choice(["", "a", "b", ",", "l", "o", "ö", "aa", " ", "World", ".", "日"]),
    "y": lambda dice: dice.choice([b"", b"abc", b"\x00\x7f", "ä".encode(), b"abcdef"]),
    "f": _date,
    "g": _date,
    "m": _moment,
    "o": _moment,
    "z": lambda dice: _moment(dice).replace(tzinfo=datetime.timezone.utc),
    "h": lambda dice: dice.random() < 0.5,
    "hh": lambda dice: dice.random() < 0.5,
    "l": lambda dice: [_maybe(dice, dice.randint(-3, 3)) for _ in range(dice.randrange(5))],
    "ls": lambda dice: [_maybe(dice, dice.choice(_TEXTS)) for _ in range(dice.randrange(4))],
    "ma": lambda dice: {
        key: _maybe(dice, dice.randint(0, 5)) for key in dice.sample(["a", "b", "abc", ""], dice.randrange(4))
    },
    "st": lambda dice: {"x": _maybe(dice, dice.randint(-3, 3)), "y": _maybe(dice, dice.choice(_TEXTS))},
}


def make_rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Return rows with NULL, extremes, NaN, both zeros, many scripts, and dates before 1970."""
    dice = random.Random(seed)
    return [{name: _maybe(dice, make(dice), 0.1) for name, make in _MAKERS.items()} for _ in range(count)]


def make_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table of Arrow, each with its number in the column `id`."""
    fields = [pa.field("id", pa.int32()), *(pa.field(name, dtype) for name, dtype in COLUMNS.items())]
    listed = [
        {**row, "id": number, "ma": None if row["ma"] is None else list(row["ma"].items())}
        for number, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(listed, pa.schema(fields))


def list_cases() -> list[str]:
    """Return the expressions: those of sql_expressions.txt, one in each line."""
    return Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
