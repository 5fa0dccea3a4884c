"""Random cases, from seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from tests.oracle.fluss.maintained_cases import make_maintained_case
from tests.oracle.fluss.values import encode

__all__ = ["KINDS", "generate"]

Case = dict[str, Any]
Column = list[Any]

SIMPLE = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal(10,2)",
)
"""Types of columns of log tables. The kind `types` has all."""
STARTS = ("list", "tuple", "dict")
WRONG = ("short", "long", "unknown", "misfit")
UTC = timezone.utc

CANDIDATES: dict[str, list[Any]] = {
    "bool": [True, False, None, 1, 0, "true", 1.0],
    "int8": [0, 127, -128, 128, -129, None, True, 1.0, "1", Decimal(1)],
    "int16": [0, 32767, -32768, 32768, None, False, 2.5],
    "int32": [0, 2**31 - 1, -(2**31), 2**31, None, True, 1.0, "7"],
    "int64": [0, 2**63 - 1, -(2**63), None, True, 1.0, b"1"],
    "float32": [0.0, 1.5, -0.25, 3, None, True, "1.5", Decimal("1.5")],
    "float64": [0.0, 0.1, -1e300, 3, 2**53, None, True, "0.1", Decimal("0.1")],
    "string": ["", "plain", "ünï→😀", "a\x00b", 'quote " and \\ and \n', None, 1, b"bytes", True],
    "binary": [b"", b"\x00\xff", bytes(range(20)), None, "text", 1],
    "binary(3)": [b"abc", b"\x00\x00\x00", b"ab", b"abcd", None, "abc"],
    "date": [
        date(1970, 1, 1),
        date(1969, 12, 31),
        date(2024, 2, 29),
        date(1, 1, 1),
        date(9999, 12, 31),
        None,
        1,
        "2024-02-29",
        "nonsense",
    ],
    "time": [time(0), time(23, 59, 59, 999_000), time(12, 30, 15), None, "12:30:15.500", "nonsense", 5],
    "timestamp": [
        datetime(1970, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(2024, 2, 29, 12, 30, 15, 123_456),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
        None,
        "2024-02-29T12:30:15.500",
        "nonsense",
        3.5,
    ],
    "timestamp_ltz": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        None,
        "2024-02-29T12:30:15Z",
        "nonsense",
    ],
    "decimal(10,2)": [
        Decimal("0.00"),
        Decimal("1.5"),
        Decimal("-99999999.99"),
        Decimal("100000000.00"),
        Decimal("1E+2"),
        7,
        None,
        "1.50",
        "nonsense",
        True,
    ],
    "list<int32>": [[], [1, 2, 3], [None, 5], None, ["x"], 5],
    "list<string>": [[], ["a", ""], [None], None, [1], "text"],
    "struct": [{"n": 1, "s": "x"}, {"n": None, "s": None}, None, 5, {"n": "x", "s": "y"}],
    "map": [{}, {"a": 1, "b": -1}, {"a": None}, None, 5, {"a": "x"}],
}
REFUSED = ("uint8", "duration", "float16", "null")


def generate(kind: str, seed: int) -> Case:
    """Return the case of a seed."""
    return {"kind": kind, "seed": seed, **_MAKERS[kind](random.Random(f"{kind} {seed}"), seed)}


def _value(chance: random.Random, word: str, nullable: bool) -> Any:
    if nullable and chance.random() < 0.2:
        return None
    makers: dict[str, Callable[[], Any]] = {
        "bool": lambda: chance.random() < 0.5,
        "int8": lambda: chance.randint(-128, 127),
        "int16": lambda: chance.randint(-(2**15), 2**15 - 1),
        "int32": lambda: chance.randint(-(2**31), 2**31 - 1),
        "int64": lambda: chance.randint(-(2**63), 2**63 - 1),
        "float64": lambda: chance.choice([0.0, -1.5, 0.1, 1e-300, chance.uniform(-1e6, 1e6)]),
        "string": lambda: "".join(chance.choices('ab "\\\nüñ→😀', k=chance.randint(0, 8))),
        "binary": lambda: chance.randbytes(chance.randint(0, 6)),
        "date": lambda: date(1970, 1, 1) + timedelta(days=chance.randint(-20_000, 40_000)),
        "timestamp": lambda: datetime(1970, 1, 1) + timedelta(microseconds=chance.randint(0, 4 * 10**15)),
        "decimal(10,2)": lambda: Decimal(chance.randint(-(10**10) + 1, 10**10 - 1)).scaleb(-2),
    }
    return makers[word]()


def _columns(chance: random.Random, number: int) -> list[Column]:
    return [[f"c{index}", chance.choice(SIMPLE), chance.random() < 0.7] for index in range(number)]


def _row(chance: random.Random, columns: list[Column]) -> list[Any]:
    return [encode(_value(chance, word, nullable)) for _, word, nullable in columns]


def _append(chance: random.Random, columns: list[Column]) -> list[Any]:
    row = _row(chance, columns)
    form = chance.choice(STARTS)
    if chance.random() < 0.15:
        return ["append", *_wrong(chance, columns, row)]
    if form != "dict":
        return ["append", form, row]
    pairs = [[name, value] for (name, _, _), value in zip(columns, row, strict=True)]
    # What may be null may be left out, and the order does not count.
    kept = [
        pair for pair, (_, _, nullable) in zip(pairs, columns, strict=True) if not nullable or chance.random() < 0.8
    ]
    chance.shuffle(kept)
    return ["append", form, {"dict": kept}]


def _wrong(chance: random.Random, columns: list[Column], row: list[Any]) -> list[Any]:
    pairs = [[name, value] for (name, _, _), value in zip(columns, row, strict=True)]
    match chance.choice(WRONG):
        case "short":
            return ["list", row[:-1]]
        case "long":
            return ["tuple", [*row, None]]
        case "unknown":
            return ["dict", {"dict": [*pairs, ["nowhere", None]]}]
        case _:
            # A list fits none of these types.
            place = chance.randrange(len(row))
            return ["list", [*row[:place], [1], *row[place + 1 :]]]


def _projection(chance: random.Random, columns: list[Column]) -> Any:
    names = [name for name, _, _ in columns]
    chosen = chance.sample(range(len(names)), chance.randint(1, len(names)))
    match chance.randrange(8):
        case 0 | 1 | 2:
            return None
        case 3 | 4:
            return chosen
        case 5 | 6:
            return [names[index] for index in chosen]
        case _:
            return chance.choice([["nowhere"], [len(names)], [names[0], "nowhere"], [-1]])


def _log(chance: random.Random, _seed: int) -> Case:
    columns = _columns(chance, chance.randint(1, 4))
    steps: list[list[Any]] = []
    written = 0
    marks = 0
    following: list[str] = []
    for _ in range(chance.randint(4, 14)):
        # Records are looked at where all are delivered, so that both sides have the same.
        for _ in range(chance.randint(0, 3)):
            step = chance.choice(("append", "append", "append", "arrow_rows", "pandas_rows"))
            rows = [_row(chance, columns) for _ in range(chance.randint(1, 3))]
            steps.append(_append(chance, columns) if step == "append" else [step, rows])
            written += len(rows)
        steps.append(["flush"])
        match chance.randrange(10):
            case 0:
                steps.append(["mark"])
                marks += 1
            case 1:
                specs: list[Any] = ["earliest", "latest", "future", *(["mark", mark] for mark in range(marks))]
                steps.append(["offsets", chance.choice(specs)])
            case 2 | 3:
                steps.append(["scan", _projection(chance, columns), chance.randint(0, max(1, written // 4))])
            case 4:
                steps.append(["records", _projection(chance, columns), chance.randint(0, max(1, written // 4))])
            case 5:
                steps.append(["batches", 0])
            case 6:
                steps.append(["limit", chance.randint(1, 4)])
            case 7:
                name = f"s{len(following)}"
                following.append(name)
                steps.append(["follow", name, None, 0])
                steps.append(["take", name])
            case 8 if following:
                name = chance.choice(following)
                steps += chance.choice(
                    [
                        [["take", name]],
                        [["seek", name, 0], ["take", name]],
                        [["pause", name], ["append", "list", _row(chance, columns)], ["flush"], ["take", name]],
                        [["resume", name], ["take", name]],
                    ]
                )
            case 9:
                steps.append(chance.choice([["misuse"], ["pandas", None, 0]]))
    steps += [["flush"], ["offsets", "earliest"], ["offsets", "latest"], ["scan", None, 0], ["records", None, 0]]
    return {"columns": columns, "partitions": 1, "key": [], "steps": steps}


def _keyed(chance: random.Random, _seed: int) -> Case:
    key = chance.sample(["k0", "k1"], chance.randint(1, 2))
    types = {name: chance.choice(("int32", "int64", "string")) for name in ("k0", "k1")}
    columns = [["k0", types["k0"], "k0" not in key], ["k1", types["k1"], "k1" not in key], ["n", "int32", False]]
    pools = {word: [encode(_value(chance, word, False)) for _ in range(3)] for word in ("int32", "int64", "string")}
    steps: list[list[Any]] = []
    for number in range(chance.randint(5, 30)):
        row = [chance.choice(pools[types["k0"]]), chance.choice(pools[types["k1"]]), number]
        steps.append(["append", "list", row] if chance.random() < 0.7 else ["arrow_rows", [row]])
        if chance.random() < 0.2:
            steps.append(["flush"])
    steps += [["flush"], ["keys"]]
    return {"columns": columns, "partitions": 3, "key": key, "steps": steps}


_KEY_TYPES = ("bool", "int8", "int16", "int32", "int64", "string", "binary", "date", "timestamp", "decimal(10,2)")


def _primary(chance: random.Random, _seed: int) -> Case:
    names = [f"c{index}" for index in range(chance.randint(1, 5))]
    primary_key = chance.sample(names, chance.randint(1, min(3, len(names))))
    bucket_key = primary_key[: chance.randint(1, len(primary_key))]
    columns: list[Column] = []
    for name in names:
        in_key = name in primary_key
        nullable = not in_key and chance.random() < 0.7
        columns.append([name, chance.choice(_KEY_TYPES if in_key else SIMPLE), nullable])
    words = {name: word for name, word, _ in columns}
    # Few values, so that keys are written again, and share their first columns.
    pools = {name: [_value(chance, words[name], False) for _ in range(2)] for name in primary_key}
    keys = [[encode(chance.choice(pools[name])) for name in primary_key] for _ in range(5)]
    steps: list[list[Any]] = []
    for _ in range(chance.randint(3, 12)):
        for _ in range(chance.randint(1, 4)):
            steps.append(_primary_write(chance, columns, primary_key, chance.choice(keys)))
        steps.append(["flush"])
        match chance.randrange(6):
            case 0 | 1:
                steps.append(["lookup", *_key_in_a_form(chance, primary_key, chance.choice(keys))])
            case 2:
                steps.append(["lookup", *_wrong_key(chance, primary_key, chance.choice(keys))])
            case 3 if len(bucket_key) < len(primary_key):
                steps.append(["prefix", bucket_key, chance.choice(keys)[: len(bucket_key)]])
            case 4:
                steps.append(["changes"])
            case 5:
                steps.append(["misuse"])
    steps += [["flush"], *(["lookup", "list", key] for key in keys), ["changes"]]
    return {"columns": columns, "partitions": 3, "key": bucket_key, "primary_key": primary_key, "steps": steps}


def _primary_write(chance: random.Random, columns: list[Column], primary_key: list[str], key: list[Any]) -> list[Any]:
    if chance.random() < 0.3:
        chosen = _wrong_key if chance.random() < 0.2 else _key_in_a_form
        return ["delete", *chosen(chance, primary_key, key)]
    _, form, row = _append(chance, columns)
    forgotten = chance.choice(primary_key)
    if isinstance(row, dict):
        row = {"dict": [[name, _of_key(name, value, primary_key, key)] for name, value in row["dict"]]}
        if chance.random() < 0.1:
            row["dict"] = [pair for pair in row["dict"] if pair[0] != forgotten]
    else:
        names = [name for name, _, _ in columns]
        row = [_of_key(name, value, primary_key, key) for name, value in zip(names, row, strict=False)] + row[
            len(names) :
        ]
        if chance.random() < 0.1 and len(row) == len(names):
            row[names.index(forgotten)] = None
    return ["upsert", form, row]


def _of_key(name: str, value: Any, primary_key: list[str], key: list[Any]) -> Any:
    # A list stands for a value of the wrong type.
    return key[primary_key.index(name)] if name in primary_key and not isinstance(value, list) else value


def _key_in_a_form(chance: random.Random, primary_key: list[str], key: list[Any]) -> list[Any]:
    form = chance.choice(STARTS)
    if form != "dict":
        return [form, key]
    pairs = [[name, value] for name, value in zip(primary_key, key, strict=True)]
    chance.shuffle(pairs)
    return [form, {"dict": pairs}]


def _wrong_key(chance: random.Random, primary_key: list[str], key: list[Any]) -> list[Any]:
    pairs = [[name, value] for name, value in zip(primary_key, key, strict=True)]
    place = chance.randrange(len(key))
    match chance.choice(WRONG):
        case "short":
            return (
                ["list", key[:-1]] if chance.random() < 0.5 else ["dict", {"dict": pairs[:place] + pairs[place + 1 :]}]
            )
        case "long":
            return ["tuple", [*key, None]]
        case "unknown":
            return ["dict", {"dict": [*pairs, ["nowhere", None]]}]
        case _:
            return ["list", [*key[:place], chance.choice([None, [1]]), *key[place + 1 :]]]


def _types(_chance: random.Random, seed: int) -> Case:
    word = [*CANDIDATES][seed % len(CANDIDATES)]
    nullable = seed < len(CANDIDATES)
    steps: list[list[Any]] = [["append", "list", [encode(value)]] for value in CANDIDATES[word]]
    steps += [["flush"], ["scan", None, 0], ["records", None, 0]]
    return {"columns": [["v", word, nullable]], "partitions": 1, "key": [], "steps": steps}


_NAMES = ("shop", "city", "a-b", "_x")
_BAD_NAMES = ("", "x y", "ünï", "a/b")


def _admin(chance: random.Random, _seed: int) -> Case:
    first: list[list[Any]] = [
        ["create_database", name, None, {}, True] for name in chance.sample(_NAMES, chance.randint(0, 2))
    ]
    return {"steps": [*first, *(_admin_step(chance) for _ in range(chance.randint(10, 40)))]}


def _admin_step(chance: random.Random) -> list[Any]:
    database = chance.choice(_NAMES[: chance.randint(1, 4)])
    table = f"{database}.{chance.choice(('t', 'u'))}"
    comment = chance.choice([None, "what it is for"])
    properties = chance.choice([{}, {"owner": "ann"}])
    ignore = chance.random() < 0.4
    match chance.choices(range(12), (6, 3, 2, 2, 2, 9, 4, 3, 3, 6, 1, 2))[0]:
        case 0:
            return ["create_database", database, comment, properties, ignore]
        case 1:
            return ["drop_database", database, ignore, chance.random() < 0.5]
        case 2:
            return ["databases"]
        case 3:
            return ["database_exists", database]
        case 4:
            return ["database_info", database]
        case 5:
            return ["create_table", table, *_table(chance), ignore]
        case 6:
            return ["drop_table", table, ignore]
        case 7:
            return ["tables", database]
        case 8:
            return ["table_exists", table]
        case 9:
            return ["table_info", table]
        case 10:
            return ["create_database", chance.choice(_BAD_NAMES), None, {}, ignore]
        case _:
            name = f"{database}.{chance.choice(_BAD_NAMES)}"
            return ["create_table", name, *_table(chance), ignore]


def _table(chance: random.Random) -> list[Any]:
    columns = [["id", "int64", False], ["name", "string", True], ["n", "int32", True]]
    primary_key = chance.choice([[], [], ["id"]])
    key: list[str] = [] if primary_key else chance.choice([[], ["name"], ["name", "n"]])
    match chance.randrange(12):
        case 0:
            columns = [*columns, ["name", "string", True]]
        case 1:
            primary_key = ["nowhere"]
        case 2:
            columns = [*columns, ["odd", chance.choice(REFUSED[1:]), True]]
    options = {
        "partitions": chance.randint(1, 3),
        "key": key,
        "comment": chance.choice([None, "what a row means"]),
        "properties": chance.choice([{}, {"team": "x"}]),
    }
    return [columns, primary_key, options]


_MAKERS = {
    "log": _log,
    "keyed": _keyed,
    "primary": _primary,
    "maintained": make_maintained_case,
    "types": _types,
    "admin": _admin,
}
KINDS = tuple(_MAKERS)
TYPES_CASES = 2 * len(CANDIDATES)
"""How many seeds of the kind `types` differ."""
