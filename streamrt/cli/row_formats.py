"""Rows of tables as text: what `table scan` and `tail` print, and what `table write` reads."""

import base64
import contextlib
import csv
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from streamrt.cli.output import print_table
from streamrt.errors import ConfigurationError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamrt.schema import Column, Schema
    from streamrt.tables.stream import TableStream

__all__ = ["following", "open_output", "print_rows", "read_rows", "write_rows"]

_PART = 500
"""Rows that are read at once."""
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
# `int` and `float` also read blanks, `_` and the digits of other scripts. The last words are those that are written.
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|-?inf")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Yield the file that rows go to, or stdout.

    Args:
        path: the option `--output`.

    Raises:
        ConfigurationError: if it cannot be written.
    """
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    with file:
        yield file


def write_rows(file: TextIO, row_format: str, names: Sequence[str], batches: "Iterable[pa.RecordBatch]") -> None:
    """Write rows as they come.

    Args:
        file: where they go.
        row_format: "jsonl" or "csv"; csv begins with the names of the columns.
        names: names of the columns.
        batches: the rows.
    """
    writer = csv.writer(file, lineterminator="\n")
    if row_format == "csv":
        writer.writerow(names)
    for batch in batches:
        rows = batch.to_pylist()
        if row_format == "csv":
            writer.writerows([_cell(row[name]) for name in names] for row in rows)
        else:
            file.writelines(f"{_json(row)}\n" for row in rows)
        file.flush()


def print_rows(file: TextIO, names: Sequence[str], batches: "Iterable[pa.RecordBatch]", most: int | None) -> int:
    """Print rows as a table, and return how many there are.

    Args:
        file: where they go.
        names: names of the columns.
        batches: the rows.
        most: rows that are printed; None means all.
    """
    rows = [row for batch in batches for row in batch.to_pylist()]
    cells = [[value if isinstance(value, int) else _cell(value) for value in row.values()] for row in rows[:most]]
    with contextlib.redirect_stdout(file):
        print_table(names, cells)
    return len(rows)


def following(stream: "TableStream", most: int | None) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a stream as they come.

    Args:
        stream: the stream.
        most: rows after which it ends; None means never.
    """
    while most is None or most > 0:
        for each in stream.poll_batches(1.0, None if most is None else min(most, _PART)):
            yield each.batch
            if most is not None:
                most -= each.batch.num_rows


def read_rows(schema: "Schema", arguments: Sequence[str] | None, path: Path | None, row_format: str) -> Iterator[Any]:
    """Yield rows.

    Args:
        schema: what they are to fit.
        arguments: rows as JSON; none for a file or stdin.
        path: the file; None for stdin.
        row_format: "jsonl", "csv" or "parquet".

    Raises:
        SchemaMismatchError: if a line is no row; it names the line.
        ConfigurationError: if the file cannot be read.
    """
    if arguments:
        yield from _objects(arguments, "argument", schema)
        return
    with contextlib.ExitStack() as stack:
        if row_format == "parquet" and path is not None:
            yield from _of_parquet(path)
            return
        lines: Iterable[str] = sys.stdin
        if path is not None:
            lines = stack.enter_context(path.open(encoding="utf-8", newline=""))
        yield from _of_csv(lines, schema) if row_format == "csv" else _objects(lines, "line", schema)


def _objects(lines: Iterable[str], what: str, schema: "Schema") -> Iterator[Any]:
    binary = [each.name for each in schema.fields if _is_binary(each)]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise SchemaMismatchError(f"{what} {number} is not JSON: {error}; earlier ones were written") from None
        if not isinstance(row, dict):
            raise SchemaMismatchError(f"{what} {number} is no JSON object; earlier ones were written")
        for name in binary:
            if isinstance(row.get(name), str):
                row[name] = _bytes(row[name], name, f"{what} {number}")
        yield row


def _of_csv(lines: Iterable[str], schema: "Schema") -> Iterator[dict[str, Any]]:
    reader = csv.reader(lines)
    names = next(reader, [])
    columns = {each.name: each for each in schema.fields}
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise SchemaMismatchError(
            f"the first line names the column {unknown[0]!r}; the columns are {', '.join(columns)}"
        )
    repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if repeated is not None:
        raise SchemaMismatchError(f"the first line names the column {repeated!r} twice")
    readers = [_reader(columns[name]) for name in names]
    for fields in reader:
        if not fields:
            continue
        if len(fields) != len(names):
            raise SchemaMismatchError(
                f"line {reader.line_num} has {len(fields)} fields for {len(names)} columns; earlier ones were written"
            )
        row = {}
        for name, read, field in zip(names, readers, fields, strict=True):
            try:
                row[name] = None if field == "" else read(field)
            except (ValueError, KeyError):
                raise SchemaMismatchError(
                    f"line {reader.line_num}: column {name!r} must be {columns[name].word}; earlier ones were written"
                ) from None
        yield row


def _reader(column: "Column") -> Callable[[str], Any]:
    """Return a function of a text that returns what the row has."""
    import pyarrow as pa

    dtype = column.dtype
    if pa.types.is_integer(dtype):
        return _integer
    if pa.types.is_floating(dtype):
        return _number
    if pa.types.is_boolean(dtype):
        return lambda text: _TRUTH[text.lower()]
    if pa.types.is_nested(dtype):
        return orjson.loads
    if _is_binary(column):
        return lambda text: base64.b64decode(text, validate=True)
    return str


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("it is no integer of ASCII digits")
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is no number of ASCII digits")
    number = float(text)
    if math.isinf(number) and "inf" not in text:
        raise ValueError("a float cannot hold it")
    return number


def _is_binary(column: "Column") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(column.dtype) or pa.types.is_fixed_size_binary(column.dtype))


def _bytes(text: str, name: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SchemaMismatchError(f"{where}: column {name!r} must be base64; earlier ones were written") from None


def _of_parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_PART):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"{path} is no Parquet file: {error}") from None


def _json(value: Any) -> str:
    return orjson.dumps(value, default=_plain, option=_OPTIONS).decode()


def _cell(value: Any) -> str | None:
    """Return a value as a field of CSV."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | Decimal):
        return str(value).lower() if isinstance(value, bool) else str(value)
    text = _json(value)
    return text[1:-1] if text.startswith('"') else text


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)
