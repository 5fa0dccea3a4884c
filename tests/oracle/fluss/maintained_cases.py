"""Random cases of the kind `maintained`: tables with merge rules, written in parts and in whole rows."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.oracle.fluss.values import encode

__all__ = ["make_maintained_case"]

_MERGES = ("last", "aggregate", "versioned", "last", "aggregate", "first", "aggregate")
_ANY = ("first_value", "first_value_ignore_nulls", "last_value", "last_value_ignore_nulls", None)
_ORDERED = ("min", "max", *_ANY)
_NUMERIC = ("sum", "sum", "product", *_ORDERED)
_FUNCTIONS: dict[str, tuple[str | None, ...]] = {
    "bool": ("bool_and", "bool_or", *_ANY),
    "int8": _NUMERIC,
    "int32": _NUMERIC,
    "int64": _NUMERIC,
    "float64": _NUMERIC,
    "decimal(10,2)": _NUMERIC,
    "string": ("listagg", "listagg", *_ORDERED),
    "date": _ORDERED,
    "timestamp": _ORDERED,
}
_VERSIONS = ("int32", "int64", "timestamp")


def make_maintained_case(chance: random.Random, seed: int) -> dict[str, Any]:
    """Return a case: few keys and values, so that rows meet former ones."""
    merge = _MERGES[seed % len(_MERGES)]
    primary_key = ["k0", "k1"][: chance.randint(1, 2)]
    columns: list[list[Any]] = [[name, chance.choice(("int32", "string")), False] for name in primary_key]
    # Fluss refuses partial updates of tables with columns that must not be null, and of these engines.
    in_parts = merge in ("last", "aggregate") and chance.random() < 0.8
    for number in range(chance.randint(1, 4)):
        columns.append([f"c{number}", chance.choice([*_FUNCTIONS]), in_parts or chance.random() < 0.8])
    version = None
    if merge == "versioned":
        version = columns[-1][0]
        columns[-1][1] = chance.choice(_VERSIONS)
    functions = {}
    if merge == "aggregate":
        chosen = {name: chance.choice(_FUNCTIONS[word]) for name, word, _ in columns[len(primary_key) :]}
        # StreamRT wants one function or more.
        functions = {name: function for name, function in chosen.items() if function} or dict.fromkeys(
            chosen, "last_value"
        )
    deletes = chance.choice(
        (None, None, "ignore", "refuse", *(("allow",) * 3 if merge in ("last", "aggregate") else ()))
    )
    words = {name: word for name, word, _ in columns}
    keys = [[[name, _value(chance, words[name])] for name in primary_key] for _ in range(3)]
    steps: list[list[Any]] = []
    for _ in range(chance.randint(4, 16)):
        steps.append(_make_write(chance, columns, primary_key, chance.choice(keys), in_parts))
        if chance.random() < 0.1:
            steps.append(["changes"])
    steps.append(["changes"])
    return {
        "columns": columns,
        "partitions": chance.randint(1, 3),
        "primary_key": primary_key,
        "merge": merge,
        "version": version,
        "functions": functions,
        "deletes": deletes,
        "steps": steps,
    }


def _make_write(
    chance: random.Random, columns: list[list[Any]], primary_key: list[str], key: list[list[Any]], in_parts: bool
) -> list[Any]:
    """Return a step: the names of the columns that are written or null, whether it is a delete, and the values."""
    names = None
    if in_parts and chance.random() < 0.7:
        others = [name for name, _, _ in columns if name not in primary_key]
        names = [*primary_key, *chance.sample(others, chance.randint(0, len(others)))]
        chance.shuffle(names)
        if chance.random() < 0.05:
            names = [name for name in names if name != primary_key[0]] + chance.choice([[], ["nowhere"]])
    if chance.random() < 0.25:
        return ["write", names, "d", {"dict": key}]
    pairs = list(key)
    for name, word, nullable in columns:
        if name not in primary_key and (names is None or name in names):
            absent = chance.random() < (0.25 if nullable else 0.05)
            pairs.append([name, None if absent else _value(chance, word)])
    return ["write", names, "u", {"dict": pairs}]


def _value(chance: random.Random, word: str) -> Any:
    """Return one of few values, of which no column gets too many to keep their sum or product."""
    number = chance.randint(-2, 2)
    values: dict[str, Any] = {
        "bool": number > 0,
        "int8": number // 2,
        "int32": number,
        "int64": number,
        "float64": number / 2,
        "string": chance.choice(("", "a", "b", "é")),
        "date": date(2024, 2, 28) + timedelta(days=number),
        "timestamp": datetime(2024, 2, 28) + timedelta(microseconds=number + 2),
        "decimal(10,2)": Decimal(number * 75).scaleb(-2),
    }
    return encode(values[word])
