"""Answers that StreamRT must give, derived from those of Fluss.

Differences that are meant are applied to Fluss's answers here, each with its reason. They are the same as in
docs/coming-from-fluss.md.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

__all__ = ["differences"]

Case = dict[str, Any]
Difference = tuple[Any, Any, Any]
"""A step, what was expected, and what StreamRT answered."""

_ERRORS = {
    "DATABASE_ALREADY_EXIST": "DatabaseExistsError",
    "DATABASE_NOT_EMPTY": "DatabaseNotEmptyError",
    "DATABASE_NOT_EXIST": "DatabaseNotFoundError",
    "INVALID_DATABASE_EXCEPTION": "ArgumentValueError",
    "INVALID_TABLE_EXCEPTION": "ArgumentValueError",
    "TABLE_ALREADY_EXIST": "TableExistsError",
    "TABLE_NOT_EXIST": "TableNotFoundError",
}
# Whatever Fluss's client finds by itself has one code; Python's own errors also come from it.
_FOUND_BY_CLIENT = ("CLIENT_ERROR", "KeyError", "OverflowError", "TypeError")
_OF_STEPS = {
    "append": "SchemaMismatchError",
    "create_table": "SchemaError",
    "delete": "SchemaMismatchError",
    "lookup": "SchemaMismatchError",
    "misuse": "InvalidOperationError",
    "pandas": "SchemaError",
    "records": "SchemaError",
    "scan": "SchemaError",
    "upsert": "SchemaMismatchError",
}


def differences(case: Case, fluss: list[Any], ours: list[Any]) -> list[Difference]:
    """Return where StreamRT's answers are not those that Fluss's lead to."""
    # As JSON has it: tuples and keys of dicts become what they are in recorded answers.
    ours = json.loads(json.dumps(ours))
    if case["kind"] == "types":
        return _differences_of_values(case, fluss, ours)
    found = []
    end = 0
    for step, wanted, answer in zip(case["steps"], fluss, ours, strict=True):
        if step[0] == "flush":
            end = wanted
        if case["kind"] == "maintained":
            wanted, answer = _expected_of_maintained(case, step, wanted), _numbers(answer)
            if wanted != answer:
                found.append((step, wanted, answer))
            continue
        wanted = _expected(step, wanted, end)
        if _plain(step, wanted) != _plain(step, answer):
            found.append((step, wanted, answer))
    return found


def _expected(step: list[Any], wanted: Any, end: int) -> Any:
    if step[0] in ("scan", "records", "pandas") and step[2] > end and not _is_error(wanted):
        # Fluss waits for records at an offset beyond the end; here none can be there.
        return ["error", "OffsetOutOfRangeError"]
    if step == ["offsets", "future"]:
        # Fluss refuses a time to come; here no record is at or after it yet, so it is the end.
        return {"0": end}
    if _is_error(wanted):
        return ["error", _OF_STEPS[step[0]] if wanted[1] in _FOUND_BY_CLIENT else _ERRORS[wanted[1]]]
    return wanted


def _expected_of_maintained(case: Case, step: list[Any], wanted: Any) -> Any:
    if _is_error(wanted):
        # What the table refuses by its rule for deletes has a code of its own.
        if wanted[1] not in _FOUND_BY_CLIENT:
            return ["error", "InvalidOperationError"]
        columns = step[1]
        refused = columns is not None and ("nowhere" in columns or not {*case["primary_key"]} <= {*columns})
        return ["error", "SchemaError" if refused else "SchemaMismatchError"]
    if step[0] == "changes":
        # An upsert that changes nothing is an update in Fluss's log, and writes nothing here.
        return {key: _leave_equal_updates_out(_numbers(changes)) for key, changes in wanted.items()}
    return _numbers(wanted)


def _leave_equal_updates_out(changes: list[Any]) -> list[Any]:
    return [
        change
        for place, change in enumerate(changes)
        if not (change[0] == "-U" and changes[place + 1][1] == change[1])
        and not (change[0] == "+U" and changes[place - 1][1] == change[1])
    ]


def _plain(step: list[Any], answer: Any) -> Any:
    if step[0] in ("records", "take") and not _is_error(answer):
        # Fluss's records have zero without digits behind the point; its batches have them.
        return [[offset, change, _numbers(row)] for offset, change, row in answer]
    return answer


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        if "decimal" in value:
            return {"decimal": str(Decimal(value["decimal"]).normalize())}
        return {word: _numbers(content) for word, content in value.items()}
    return [_numbers(each) for each in value] if isinstance(value, list) else value


def _is_error(answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) == 2 and answer[0] == "error"


REFUSED = "refused"
_ONE_AS_FLOAT = {"true": REFUSED}
_TIMES = ("1969-12-31T23:59:59.999999", "9999-12-31T23:59:59.999999")
MEANT: dict[str, dict[str, Any]] = {
    # A bool is not a number.
    "float32": _ONE_AS_FLOAT,
    "float64": _ONE_AS_FLOAT,
    # An integer is a decimal without digits behind the point. Strings of dates, times and decimals are what they say.
    "decimal(10,2)": {"7": {"decimal": "7.00"}, '"1.50"': {"decimal": "1.50"}},
    "date": {'"2024-02-29"': {"date": "2024-02-29"}},
    "time": {'"12:30:15.500"': {"time": "12:30:15.500000"}},
    # Times before 1970 are times; Fluss takes them only in columns with a time zone.
    "timestamp": {
        **{json.dumps({"timestamp": each}): {"timestamp": each} for each in _TIMES},
        '"2024-02-29T12:30:15.500"': {"timestamp": "2024-02-29T12:30:15.500000"},
    },
    "timestamp_ltz": {'"2024-02-29T12:30:15Z"': {"timestamp": "2024-02-29T12:30:15+00:00"}},
}
"""By type of column, and value as JSON: what StreamRT does otherwise, a value or `REFUSED`."""


def _differences_of_values(case: Case, fluss: list[Any], ours: list[Any]) -> list[Difference]:
    ((_, word, nullable),) = case["columns"]
    found = []
    for (given, wanted), (_, answer) in zip(_values(case, fluss), _values(case, ours), strict=True):
        wanted = MEANT.get(word, {}).get(json.dumps(given), wanted)
        if wanted != answer:
            found.append(([word, nullable, given], wanted, answer))
    for answers in (fluss, ours):
        if not _same_rows(*answers[-2:]):
            found.append(([word, "records are rows of the scan"], answers[-2], answers[-1]))
    for place in (0, 1):
        if ours[-2][("columns", "types")[place]] != fluss[-2][("columns", "types")[place]]:
            found.append(([word, "scan"], fluss[-2], ours[-2]))
    return found


def _values(case: Case, answers: list[Any]) -> list[tuple[Any, Any]]:
    """Return each value that was appended, with what was read, or `REFUSED`."""
    rows = iter(answers[-2]["rows"])
    appended = [
        (step[2][0], answer) for step, answer in zip(case["steps"], answers, strict=True) if step[0] == "append"
    ]
    return [(given, REFUSED if _is_error(answer) else next(rows)[0]) for given, answer in appended]


def _same_rows(scan: Any, records: Any) -> bool:
    # A map is pairs in Arrow and in Fluss's records, and a dict in StreamRT's.
    pairs = scan["types"] == ["map"]
    rows = [[_numbers(value) for value in row] for row in scan["rows"]]
    return rows == [[_numbers(_pairs(value) if pairs else value) for _, value in row["dict"]] for _, _, row in records]


def _pairs(value: Any) -> Any:
    return value["dict"] if isinstance(value, dict) else value
