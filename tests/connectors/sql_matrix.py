"""Behaviour of each column of a SQL database with nasty values: it stores them exactly, or the sink refuses them by name.

Every cell of the matrix, a type of columns and a value, is written among good rows in one commit, as an application with
`on_error="skip"` does it, and again with one commit for each row. Both must give the same.
"""

import datetime
import decimal
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamrt.connectors.sql.sql_sink import SQLSink
from streamrt.errors import SinkError
from tests.connectors.sql_tables import batch_of

LONG = bool(os.environ.get("STREAMRT_LONG_TESTS"))

_PARIS = datetime.timezone(datetime.timedelta(hours=2))
_MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901)

VALUES: dict[str, Any] = {
    "true": True,
    "7": 7,
    "2**53+1": (1 << 53) + 1,
    "2**70": 1 << 70,
    "1.5": 1.5,
    "1e22": 1e22,
    "nan": float("nan"),
    "inf": float("inf"),
    "D(1.50)": decimal.Decimal("1.50"),
    "D(1.123456789012345678901)": decimal.Decimal("1.123456789012345678901"),
    "'7'": "7",
    "'00701'": "00701",
    "'1.50'": "1.50",
    "' 7 '": " 7 ",
    "'1e3'": "1e3",
    "'yes'": "yes",
    "''": "",
    "'x'": "x",
    "'abc   '": "abc   ",
    "'a\\0b'": "a\0b",
    "'\\ud800'": "\ud800",
    "'\\x41'": "\\x41",
    "'ü🚆'": "ü🚆",
    "b'\\0\\xff'": b"\0\xff",
    "date": _MOMENT.date(),
    "datetime": _MOMENT,
    "datetime+02": _MOMENT.replace(tzinfo=_PARIS),
    "midnight": datetime.datetime(2026, 1, 2),
    "time": _MOMENT.time(),
    "time+02": _MOMENT.replace(tzinfo=_PARIS).timetz(),
    "timedelta": datetime.timedelta(hours=100, microseconds=5),
    "'2026-01-02'": "2026-01-02",
    "'2026-01-02 03:04:05'": "2026-01-02 03:04:05",
    "'2026-01-02T03:04:05+02:00'": "2026-01-02T03:04:05+02:00",
    "'…05.1234567'": "2026-01-02 03:04:05.1234567",
    "'03:04:05+02'": "03:04:05+02",
    "uuid": uuid.UUID(int=7),
    "'UUID'": str(uuid.UUID(int=0xABC)).upper(),
    "{'a': 1}": {"a": 1},
    "{date, decimal}": {"when": _MOMENT, "n": decimal.Decimal("1.10"), "id": uuid.UUID(int=7)},
    "{bytes}": {"data": b"\0"},
    "{nan}": {"n": float("nan")},
    "{'\\0'}": {"text": "\0"},
    "{'\\ud800'}": {"text": "\ud800"},
    "[1, 'a']": [1, "a"],
    "[1.5]": [1.5],
    "object": object(),
}
# What a column gets that the sink makes itself: its first value decides the type.
FIRST: dict[str, Any] = {
    "own bool": True,
    "own int": 1,
    "own float": 0.5,
    "own str": "x",
    "own Decimal": decimal.Decimal("0.5"),
    "own datetime": _MOMENT,
    "own date": _MOMENT.date(),
    "own dict": {},
}


@dataclass
class Database:
    """A database as the matrix uses it.

    Attributes:
        name: its name.
        sink: returns a started sink for a table, with options.
        execute: runs statements.
        query: returns the rows of a query.
        types: declarations of columns.
        keys: declarations of key columns, each with keys that are equal in it.
        rounded: cells that are rounded as the documentation says, by type: names of values.
        sparseness: one of how many values a type gets in the short run.
    """

    name: str
    sink: Callable[..., SQLSink]
    execute: Callable[..., None]
    query: Callable[[str], list[Any]]
    types: Sequence[str]
    keys: Sequence[tuple[str, Sequence[Any]]]
    rounded: Mapping[str, Iterable[str]] = field(default_factory=dict)
    sparseness: int = 4
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def table(self) -> str:
        """Return the name of a new table."""
        return f"m{next(self._numbers)}"

    def judge_column(self, kind: str, values: Mapping[str, Any] = VALUES) -> dict[str, str]:
        """Return what a column does with each value: `stored`, `rounded` or the reason of its refusal."""
        together, singly = (self._outcomes(kind, values, commits) for commits in (1, len(values)))
        assert repr(together) == repr(singly), f"{self.name}, {kind}: {together}, {singly}"
        verdicts = {}
        for number, (name, value) in enumerate(values.items()):
            refused, stored = together[number]
            if refused:
                verdicts[name] = refused
                continue
            stored = _plain(stored)
            if kind in ("JSON", "JSONB", "own dict"):
                exact = _is_json(value, stored)
            else:
                exact = is_exact(value, stored, literal=not kind.startswith("own"))
            rounded = name in self.rounded.get(kind, ())
            assert exact or rounded, f"{self.name}, {kind}: {value!r} became {stored!r}"
            verdicts[name] = "stored" if exact else "rounded"
        return verdicts

    def _outcomes(self, kind: str, values: Mapping[str, Any], commits: int) -> dict[int, tuple[str, Any]]:
        table = self.table()
        sink = self.sink(table)
        if kind.startswith("own"):
            sink.write(batch_of({"id": -1, "c": FIRST[kind]}, start=1_000))
        else:
            self.execute(f"CREATE TABLE {table} (id INT, c {kind})")
        rows = {number: {"id": number, "c": value} for number, value in enumerate(values.values())}
        groups = [list(rows)] if commits == 1 else [[number] for number in rows]
        refused: dict[int, str] = {}
        for group in groups:
            refused.update(skip_refused(sink, {number: rows[number] for number in group}))
        sink.close()
        found = dict(self.query(f"SELECT id, c FROM {table} WHERE id >= 0"))
        assert found.keys() | refused.keys() == rows.keys()
        assert not found.keys() & refused.keys()
        return {number: (refused.get(number, ""), found.get(number)) for number in rows}

    def judge(self) -> str:
        """Judge all types and keys; without STREAMRT_LONG_TESTS, each type gets some of the values. Return the matrix."""
        matrix = {}
        for number, kind in enumerate((*self.types, *FIRST)):
            chosen = list(VALUES) if LONG else list(VALUES)[number % self.sparseness :: self.sparseness]
            matrix[kind] = self.judge_column(kind, {name: VALUES[name] for name in chosen})
        for kind, keys in self.keys:
            self.judge_keys(kind, keys)
        return f"{self.name}\n{shown(matrix)}"

    def judge_keys(self, kind: str, keys: Sequence[Any]) -> None:
        """Check that the newest row of equal keys wins, whatever the commits, and that the oldest one does if wanted."""
        for options, winner in ((("upsert_on_primary_key", True), -1), (("on_conflict_do_nothing", True), 0)):
            results = []
            for cuts in ((), range(1, len(keys) * 2)):
                table = self.table()
                self.execute(f"CREATE TABLE {table} (id {kind} NOT NULL PRIMARY KEY, a INT, b INT DEFAULT 5)")
                sink = self.sink(table, primary_key_columns="id", **dict([options]))
                rows: list[dict[str, Any]] = [{"id": key, "a": number} for number, key in enumerate(keys)]
                # With other columns in between: those that a row lacks stay.
                rows += [{"id": key, "b": 10 + number} for number, key in enumerate(keys)]
                for start, end in itertools.pairwise((0, *cuts, len(rows))):
                    sink.write(batch_of(*rows[start:end], start=start))
                sink.close()
                results.append(self.query(f"SELECT id, a, b FROM {table}"))
            assert repr(results[0]) == repr(results[1]), f"{self.name}, {kind}, {options}: {results}"
            a, b = (len(keys) - 1, 10 + len(keys) - 1) if winner else (0, 5)
            assert [row[1:] for row in results[0]] == [(a, b)], f"{self.name}, {kind}, {options}: {results[0]}"


def skip_refused(sink: SQLSink, rows: Mapping[int, Any]) -> dict[int, str]:
    """Write rows in one commit; leave out those that the sink refuses, and return the reasons by number."""
    rows, refused = dict(rows), {}
    while rows:
        batch = batch_of()
        for number, row in rows.items():
            batch.append(row, b"key", 1_000, None, number)
        try:
            sink.write(batch)
        except SinkError as error:
            if error.record is None:
                raise
            number = error.record[2]
            del rows[number]
            refused[number] = str(error).partition(" offset ")[2]
        else:
            break
    return refused


def is_exact(value: Any, stored: Any, *, literal: bool) -> bool:
    """Return whether a stored value is the one that was written.

    Args:
        value: what was written.
        stored: what the database returns.
        literal: whether a text may be a literal of the column's type, as '07' is one of 7.
    """
    if isinstance(value, float) and value != value:
        return str(stored).lower().strip() == "nan"
    if isinstance(value, bool):
        # MySQL and SQLite have no booleans.
        return stored in (True, 1) and not isinstance(stored, str)
    if isinstance(value, str):
        return _is_text(value, stored, literal)
    if isinstance(value, int | float | decimal.Decimal):
        return bool(stored == value or _number(stored) == _number(value))
    if isinstance(value, datetime.datetime):
        return bool(_moment(stored) == _moment(value))
    if isinstance(value, datetime.date):
        return str(stored)[:10] == value.isoformat() and str(stored)[10:].strip(" T0:+Z") == ""
    if isinstance(value, datetime.time):
        return (
            stored == value
            or str(stored) == value.isoformat()
            or (isinstance(stored, datetime.timedelta) and str(stored) == value.isoformat().removeprefix("0"))
            or (isinstance(stored, datetime.time) and stored.replace(tzinfo=None) == value)
        )
    if isinstance(value, dict | list):
        return bool((_json(stored) if isinstance(stored, str) else stored) == _json(json.dumps(value, default=_shown)))
    return bool(str(stored) == str(value) or stored == value)


def _is_text(value: str, stored: Any, literal: bool) -> bool:
    if isinstance(stored, str):
        # Columns of CHAR(n) fill up with spaces, or drop them.
        return stored == value or (literal and stored.rstrip() == value.rstrip()) or stored == value.lower()
    if isinstance(stored, bytes):
        return bool(stored == value.encode())
    if isinstance(stored, bool):
        return literal or value.lower() == str(stored).lower()
    if isinstance(stored, int | float | decimal.Decimal):
        shown = value.strip() if literal else value
        plain = shown == shown.lstrip("0+ ") or (not literal and shown[:2] == "0.")
        return _number(stored) == _number(shown) and (literal or plain)
    if isinstance(stored, datetime.datetime | datetime.date):
        return bool(_moment(stored) == _moment(datetime.datetime.fromisoformat(value)))
    if isinstance(stored, datetime.time | datetime.timedelta):
        return str(stored).removesuffix(":00").zfill(8)[:8] == value.strip().removesuffix(":00").zfill(8)[:8]
    return str(stored).lower() == value.lower()


def _is_json(value: Any, stored: Any) -> bool:
    if isinstance(value, str | bytes | float | datetime.time) and is_exact(value, stored, literal=False):
        return True
    expected = _json(value if isinstance(value, str) else json.dumps(value, default=_shown))
    # Some drivers return JSON as text, others what it means.
    return bool(stored == expected or _json(stored if isinstance(stored, str) else json.dumps(stored)) == expected)


def _json(text: str) -> Any:
    return json.loads(text, parse_float=decimal.Decimal)


def _shown(part: Any) -> str:
    return str(part.isoformat() if isinstance(part, datetime.date | datetime.time) else part)


def _number(value: Any) -> Any:
    try:
        return decimal.Decimal(repr(value) if isinstance(value, float) else str(value))
    except decimal.InvalidOperation:
        return None


def _moment(value: Any) -> Any:
    """Return a time in UTC, in which those without a zone are."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return zoned.astimezone(datetime.timezone.utc)


def _plain(stored: Any) -> Any:
    return bytes(stored) if isinstance(stored, bytearray | memoryview) else stored


def shown(matrix: Mapping[str, Mapping[str, str]]) -> str:
    """Return a matrix as a table: `+` is stored, `~` rounded as documented, `.` refused."""
    marks = {"stored": "+", "rounded": "~", "": " "}
    columns = list(matrix)
    lines = [f"{number:>2} {column}" for number, column in enumerate(columns)]
    lines.append(" " * 28 + " ".join(f"{number:>2}" for number in range(len(columns))))
    for name in VALUES:
        verdicts = (matrix[column].get(name, "") for column in columns)
        lines.append(f"{name:<28}" + " ".join(f" {marks.get(verdict, '.')}" for verdict in verdicts))
    return "\n".join(lines)
