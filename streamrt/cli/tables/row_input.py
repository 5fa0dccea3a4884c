"""Rows and keys of tables that commands read: arguments, files, and standard input."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from streamrt.common.csv_rows import rows_of
from streamrt.errors import ConfigurationError, SchemaMismatchError

if TYPE_CHECKING:
    from streamrt.schema import Schema

__all__ = ["parse_key", "read_keys", "read_rows"]

_PART = 500
"""Rows that are read at once."""


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


def read_keys(schema: "Schema", arguments: Sequence[str] | None, path: Path | None) -> Iterator[Any]:
    """Yield primary keys.

    Args:
        schema: that of the table.
        arguments: the keys; none for a file or stdin, with one in each line.
        path: the file; None for stdin.

    Raises:
        SchemaMismatchError: if a key cannot be read; it names the argument or the line.
    """
    with contextlib.ExitStack() as stack:
        texts: Iterable[str] = arguments or ()
        if not arguments:
            lines = sys.stdin if path is None else stack.enter_context(path.open(encoding="utf-8", newline=""))
            texts = (line.rstrip("\r\n") for line in lines)
        for number, text in enumerate(texts, 1):
            if text or arguments:
                try:
                    yield parse_key(schema, text)
                except SchemaMismatchError as error:
                    where = f"{'argument' if arguments else 'line'} {number}"
                    raise SchemaMismatchError(f"{where}: {error}; earlier ones were deleted") from None


def parse_key(schema: "Schema", text: str) -> Any:
    """Return a primary key as writers and lookups take it.

    JSON arrays, objects and quoted strings are JSON. Other text is the value of the one key column, so `7` is a number where
    the column has numbers, and a string where it has strings.

    Args:
        schema: that of the table.
        text: the key.

    Raises:
        SchemaMismatchError: if there are several key columns and the text is not JSON, or bytes are not base64.
    """
    from streamrt.schema.values import ValueMismatchError

    names = schema.primary_key
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        read = None
    if not isinstance(read, (str, list, dict)):
        if len(names) > 1:
            raise SchemaMismatchError(f"a key must be a JSON array or object with the columns {', '.join(names)}")
        read = read if isinstance(read, int) and not _takes_text(schema, names[0]) else text
    binary = _binary_readers(schema)

    def value_of(name: str, value: Any) -> Any:
        try:
            return binary[name](value) if name in binary and isinstance(value, str) else value
        except ValueMismatchError:
            raise SchemaMismatchError(f"column {name!r} must be base64") from None

    if isinstance(read, dict):
        return {name: value_of(name, value) for name, value in read.items()}
    if not isinstance(read, list):
        return value_of(names[0], read)
    # Prefixes have fewer; the table refuses more.
    return read if len(read) > len(names) else list(map(value_of, names, read))


def _takes_text(schema: "Schema", name: str) -> bool:
    """Return whether the text of a value is one of the column, and not a number or a bool."""
    import pyarrow as pa

    dtype = schema.arrow.field(name).type
    return not (pa.types.is_integer(dtype) or pa.types.is_boolean(dtype))


def _read_objects(lines: Iterable[str], what: str, schema: "Schema") -> Iterator[Any]:
    from streamrt.schema.values import ValueMismatchError

    binary = _binary_readers(schema)
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


def _binary_readers(schema: "Schema") -> "dict[str, Callable[[str], Any]]":
    """Return what reads the columns of bytes, which JSON does not have; the table checks everything else."""
    import pyarrow as pa

    from streamrt.serializers.csv import field_reader

    return {
        each.name: field_reader(each)
        for each in schema.fields
        if pa.types.is_binary(each.dtype) or pa.types.is_fixed_size_binary(each.dtype)
    }
