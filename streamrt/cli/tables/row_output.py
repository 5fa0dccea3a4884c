"""Rows of tables as text: what `table scan` and `tail` print, and what `table write` reads."""

import contextlib
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from streamrt.cli.output import print_table
from streamrt.common.csv_rows import rows_of
from streamrt.errors import ConfigurationError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamrt.schema import Schema
    from streamrt.tables.reading.stream import TableStream

__all__ = ["following", "open_output", "print_rows", "read_rows", "write_rows"]

_PART = 500
"""Rows that are read at once."""


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
    from streamrt.serializers.rows import write_json

    writer = csv.writer(file, lineterminator="\n")
    if row_format == "csv":
        writer.writerow(names)
    for batch in batches:
        rows = batch.to_pylist()
        if row_format == "csv":
            writer.writerows([_write_cell(row[name]) for name in names] for row in rows)
        else:
            file.writelines(f"{write_json(row).decode()}\n" for row in rows)
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
    cells = [[value if isinstance(value, int) else _write_cell(value) for value in row.values()] for row in rows[:most]]
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
        SchemaMismatchError: if a line is not a row; it names the line.
        ConfigurationError: if the file cannot be read.
    """
    if arguments:
        yield from _read_objects(arguments, "argument", schema)
        return
    with contextlib.ExitStack() as stack:
        if row_format == "parquet" and path is not None:
            yield from _of_parquet(path)
            return
        lines: Iterable[str] = sys.stdin
        if path is not None:
            lines = stack.enter_context(path.open(encoding="utf-8", newline=""))
        yield from _of_csv(lines, schema) if row_format == "csv" else _read_objects(lines, "line", schema)


def _read_objects(lines: Iterable[str], what: str, schema: "Schema") -> Iterator[Any]:
    import pyarrow as pa

    from streamrt.schema.values import ValueMismatchError
    from streamrt.serializers.csv import field_reader

    # JSON has no bytes; the table checks everything else.
    binary = {
        each.name: field_reader(each)
        for each in schema.fields
        if pa.types.is_binary(each.dtype) or pa.types.is_fixed_size_binary(each.dtype)
    }
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise SchemaMismatchError(f"{what} {number} is not JSON: {error}; earlier ones were written") from None
        if not isinstance(row, dict):
            raise SchemaMismatchError(f"{what} {number} is not a JSON object; earlier ones were written")
        for name in binary.keys() & row.keys():
            try:
                row[name] = binary[name](row[name]) if isinstance(row[name], str) else row[name]
            except ValueMismatchError:
                raise SchemaMismatchError(
                    f"{what} {number}: column {name!r} must be base64; earlier ones were written"
                ) from None
        yield row


def _of_csv(lines: Iterable[str], schema: "Schema") -> Iterator[dict[str, Any]]:
    reader = rows_of(lines, {})
    names: list[str] = next(reader, [])
    columns = {each.name: each for each in schema.fields}
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise SchemaMismatchError(
            f"the first line names the column {unknown[0]!r}; the columns are {', '.join(columns)}"
        )
    repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if repeated is not None:
        raise SchemaMismatchError(f"the first line names the column {repeated!r} twice")
    from streamrt.schema.values import ValueMismatchError
    from streamrt.serializers.csv import field_reader

    readers = [field_reader(columns[name]) for name in names]
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
            except (ValueMismatchError, ValueError):
                raise SchemaMismatchError(
                    f"line {reader.line_num}: column {name!r} must be {columns[name].word}; earlier ones were written"
                ) from None
        yield row


def _of_parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_PART):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"{path} is not a Parquet file: {error}") from None


def _write_cell(value: Any) -> str | None:
    """Return a value as a field of CSV."""
    from streamrt.serializers.csv import field_text

    return None if value is None else field_text(value)
