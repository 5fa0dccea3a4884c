"""What a verification says: how many rows a view has, up to which offsets, and how they differ from those of its query."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from streamrt.common.texts import readable
from streamrt.kafka.completion_token import Offsets

__all__ = ["HIDDEN", "DifferingRow", "InputRecord", "Verification"]

HIDDEN = "***"
"""Stands for the value of a column that is hidden."""
_LONGEST = 100


class InputRecord(NamedTuple):
    """A record of which a row was made, or should have been made.

    Attributes:
        topic: its topic.
        partition: number of the partition.
        offset: its offset.
        key: its key, as text; None without one, or if values are hidden.
    """

    topic: str
    partition: int
    offset: int
    key: str | None

    def __str__(self) -> str:
        key = "" if self.key is None else f" (key {_shorten(self.key)})"
        return f"{self.topic}[{self.partition}] at offset {self.offset}{key}"


class DifferingRow(NamedTuple):
    """A row that only one side has.

    Attributes:
        kind: "missing" if the query has it and the view does not, "surplus" the other way round.
        row: the row.
        records: the newest input records with the values of its columns that come from tables unchanged.
    """

    kind: Literal["missing", "surplus"]
    row: dict[str, Any]
    records: tuple[InputRecord, ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_show(value)}" for name, value in self.row.items())
        made_of = f"; of {', '.join(map(str, self.records))}" if self.records else ""
        return f"{self.kind}: {values}{made_of}"


@dataclass(frozen=True)
class Verification:
    """The outcome of comparing a view with its query.

    Attributes:
        view: name of the view.
        offsets: the next offset of each input partition: all records before it, and no others, are in the comparison.
        rows: number of rows of the view.
        differences: the first rows that differ.
        differing: number of all rows that differ.
        notes: what else is to be known, such as how many records came too late for a window.
        excused: the first rows that differ, and depend on records that may have come too late, or on windows that may be
            open.
        excused_count: number of all of these.

    Example:
        >>> verification = Verification("totals", Offsets({("orders", 0): 7}), 3)
        >>> verification.equal
        True
        >>> print(verification)
        totals: 3 rows, equal to its query over orders[0] to 7
    """

    view: str
    offsets: Offsets
    rows: int
    differences: tuple[DifferingRow, ...] = ()
    differing: int = 0
    notes: tuple[str, ...] = ()
    excused: tuple[DifferingRow, ...] = ()
    excused_count: int = 0

    @property
    def equal(self) -> bool:
        """Whether no row differs, but for those that are excused."""
        return not self.differing

    def hide(self, columns: Collection[str] | None = None) -> "Verification":
        """Return the verification without values.

        Args:
            columns: names of the columns whose values are hidden; None for all.
        """
        return replace(
            self,
            differences=tuple(_hide_values(each, columns) for each in self.differences),
            excused=tuple(_hide_values(each, columns) for each in self.excused),
        )

    def _lines(self) -> Iterator[str]:
        parts = ", ".join(f"{each} to {offset}" for each, offset in sorted(self.offsets.items()))
        verdict = "equal to" if self.equal else f"{_count_rows(self.differing)} from"
        yield f"{self.view}: {self.rows} rows, {verdict} its query over {parts or 'no records'}"
        yield from _list(self.differences, self.differing)
        if self.excused_count:
            yield f"  {_count_rows(self.excused_count)} because of late records or open windows:"
            yield from _list(self.excused, self.excused_count)
        for note in self.notes:
            yield f"  note: {note}"

    def __str__(self) -> str:
        return "\n".join(self._lines())


def _hide_values(row: DifferingRow, columns: Collection[str] | None) -> DifferingRow:
    return DifferingRow(
        row.kind,
        {name: HIDDEN if columns is None or name in columns else value for name, value in row.row.items()},
        # A key may be the value of any column.
        tuple(record._replace(key=None) for record in row.records),
    )


def _count_rows(count: int) -> str:
    return "1 row differs" if count == 1 else f"{count} rows differ"


def _list(rows: Sequence[DifferingRow], count: int) -> Iterator[str]:
    for each in rows:
        yield f"  {each}"
    if count > len(rows):
        yield f"  and {count - len(rows)} more"


def _show(value: Any) -> str:
    return HIDDEN if isinstance(value, str) and value == HIDDEN else _shorten(repr(value))


def _shorten(text: str) -> str:
    text = readable(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
