"""The check of a row as lines of Python: values that are what their columns keep need no call."""

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

import pyarrow as pa

__all__ = ["ColumnLines", "compile_row_check", "find_test"]

RowFunction = Callable[[Mapping[str, Any]], dict[str, Any]]

_ROW: Final = """
def check_row(row):
    get = row.get
    try:
{lines}
        return {{{items}}}
    except Exception:
        pass
    return check_each(row)
"""
_COLUMN: Final = """\
        {value} = get({name}, missing)
        if {unusual}:
            {value} = {convert}({value}) if {value} is not missing else {default}
"""


@dataclass(frozen=True)
class ColumnLines:
    """What is needed to write the lines of a column.

    Attributes:
        name: name of the column.
        test: true for values that stay as they are: an expression on `{value}`, with `{exact}` for their type.
        exact: that type.
        convert: returns other values as the column keeps them, or raises an error.
        nullable: whether None is a value.
        defaults: the value of rows that do not give one; empty if there is none.
    """

    name: str
    test: str
    exact: type
    convert: Callable[[Any], Any]
    nullable: bool
    defaults: tuple[Any, ...]


def find_test(dtype: pa.DataType, length: int | None, *, from_json: bool, decoded: bool) -> tuple[str, type]:
    """Return the test for values of a type that stay as they are, and the type that it names.

    Args:
        dtype: type of a column.
        length: longest text, in characters.
        from_json: whether values come from JSON.
        decoded: whether all strings are those of UTF-8.
    """
    test = "type({value}) is {exact}"
    if pa.types.is_integer(dtype):
        highest = (1 << (dtype.bit_width - 1)) - 1
        return f"{test} and {~highest} <= {{value}} <= {highest}", int
    if dtype == pa.string():
        ascii_only = "" if decoded else " and {value}.isascii()"
        return test + ascii_only + ("" if length is None else f" and len({{value}}) <= {length}"), str
    if pa.types.is_timestamp(dtype) and not from_json:
        return f"{test} and {{value}}.tzinfo is {'None' if dtype.tz is None else 'utc'}", datetime.datetime
    exact = {pa.bool_(): bool, pa.float64(): float, pa.date32(): datetime.date}.get(dtype)
    if dtype == pa.binary() and not from_json:
        exact = bytes
    return ("False", object) if exact is None else (test, exact)


def compile_row_check(
    columns: Sequence[ColumnLines], missing: object, check_each: RowFunction, *, ignores_others: bool
) -> RowFunction:
    """Return a function with the results and errors of another one, which it calls for rows that may not fit.

    Args:
        columns: the columns, in order.
        missing: an object that never is a value of a row.
        check_each: checks a row column by column.
        ignores_others: whether rows may have other columns.

    Example:
        >>> price = ColumnLines("price", *find_test(pa.float64(), None, from_json=True, decoded=True), float, False, ())
        >>> check = compile_row_check([price], object(), lambda row: {}, ignores_others=True)
        >>> check({"price": 1.5, "more": True}), check({"price": "high"})
        ({'price': 1.5}, {})
    """
    names: dict[str, Any] = {
        "check_each": check_each,
        "missing": missing,
        "refuse": _refuse,
        "utc": datetime.timezone.utc,
    }
    lines = [] if ignores_others else [f"        if len(row) != {len(columns)}: return check_each(row)\n"]
    items = []
    for number, column in enumerate(columns):
        # What users give enters the code as variables, never as text.
        name, value, exact, convert, default = (
            f"{kind}{number}" for kind in ("name", "v", "type", "convert", "default")
        )
        names |= {name: column.name, exact: column.exact, convert: column.convert, default: (*column.defaults, None)[0]}
        unusual = f"not ({column.test.format(value=value, exact=exact)})"
        if column.nullable:
            unusual += f" and {value} is not None"
        given = default if column.defaults and ignores_others else "refuse()"
        lines.append(_COLUMN.format(value=value, name=name, unusual=unusual, convert=convert, default=given))
        items.append(f"{name}: {value}")
    exec(_compile_text(_ROW.format(lines="".join(lines).rstrip("\n"), items=", ".join(items))), names)  # noqa: S102
    check: RowFunction = names["check_row"]
    return check


def _refuse() -> None:
    raise LookupError


@functools.lru_cache(maxsize=1_024)
def _compile_text(text: str) -> CodeType:
    """Compile a text once in each process: tables whose columns have the same types have the same."""
    return compile(text, "<streamrt rows>", "exec")
