"""Rows of tables as text: what `table scan` and `tail` print."""

import contextlib
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from streamrt.cli.output import print_table
from streamrt.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamrt.tables.reading.stream import TableStream

__all__ = ["following", "open_output", "print_rows", "write_rows"]

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
    from streamrt.serializers.rows import name_infinite, write_json

    writer = csv.writer(file, lineterminator="\n")
    if row_format == "csv":
        writer.writerow(names)
    for batch in batches:
        rows = batch.to_pylist()
        if row_format == "csv":
            writer.writerows([_write_cell(row[name]) for name in names] for row in rows)
        else:
            file.writelines(f"{write_json(name_infinite(row)).decode()}\n" for row in rows)
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


def _write_cell(value: Any) -> str | None:
    """Return a value as a field of CSV."""
    from streamrt.serializers.csv import field_text

    return None if value is None else field_text(value)
