"""`over` of a table: each row with functions of the rows around it in its group.

The rows of a group are a set of counted values, in their order: the bytes of the columns that order them, and a digest of
the row (16 bytes), so that the order of rows with equal values depends on nothing but the rows. The cell of a value is the
row. The head of a group is the number of its set.

A change of a row is a row that goes and one that comes. It reads the rows that the results may depend on: so many around it,
if each function has a bound, and otherwise the group. Their results are computed without the change and with it, and those
that differ are passed on. Results depend on the rows only, so former ones need not be kept.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Final, NamedTuple, cast

from streamrt.errors import ColumnTypeError
from streamrt.joins.notes import Warnings
from streamrt.operators.ranking import describe_order, make_row_order
from streamrt.records import Headers
from streamrt.relations.change import Change, rows_differ
from streamrt.relations.change_counts import ChangeCounts
from streamrt.relations.exact_keys import DIGEST_BYTES, digest_row
from streamrt.relations.group_aggregate import SKIPPED
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.counted_values import CountedValues
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from streamrt.windows.frames import OrderedRows
from streamrt.windows.over_functions import OverColumn

__all__ = ["OverChanges"]

_MISSING: Final = (
    "%s was to take back a row of the group %s that it has not got: a record was repeated, or a function above gives another "
    "result for the same row than before"
)


class _Place(NamedTuple):
    """A row in its group: its bytes, and its number among equal rows."""

    data: bytes
    copy: int


Section = list[tuple[_Place, Any]]
"""Rows of a group that are next to each other, in order."""


@dataclass(frozen=True)
class OverChanges(Operator):
    """Adds functions of the rows around it to each row of a group. Records without a key are skipped.

    Attributes:
        store: the store of the rows.
        by: the columns by which rows are ordered, the first one first. None comes last, in both directions.
        descending: of each of them, whether the highest values come first.
        columns: the columns that are added; one that the row has is replaced.

    Example:
        >>> from streamrt.windows.frames import ALL_ROWS
        >>> from streamrt.windows.over_functions import RowNumber
        >>> store = StoreSpec("over", transaction=TimedTransaction)
        >>> OverChanges(store, ("at",), (True,), (OverColumn("n", RowNumber(), ALL_ROWS),)).describe()
        'by at descending: n'
    """

    name: ClassVar[str] = "over"
    keeps_rows: ClassVar[bool] = True
    store: StoreSpec
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    columns: tuple[OverColumn, ...]

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, add = context.store(self.store), ChangeCounts(node, context).add
        order_of, radius, add_results = make_row_order(self.by, self.descending), self._radius(), self._add_results
        keyless, missing = Warnings(SKIPPED, node), Warnings(_MISSING, node)

        def data_of(row: Any) -> bytes | None:
            if row is None:
                return None
            if not isinstance(row, dict):
                raise ColumnTypeError(f"over() adds columns to rows that are dicts, got {type(row).__name__}")
            return order_of(row) + digest_row(row)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            gone, added = map(data_of, value)
            if gone == added:
                return
            transaction = cast("TimedTransaction", store())
            prefix, sets, unpack = transaction.prefix(key), transaction.counted, transaction.unpack
            head = transaction.head(prefix)
            number = sets.create(prefix) if head is None else head
            if gone is not None and not sets.count(prefix, number, gone):
                missing.note(key)
                if added is None or sets.count(prefix, number, added):
                    return
                gone = None
            section = _read_section(sets, prefix, number, [data for data in (gone, added) if data is not None], radius)
            former: Section = [(place, unpack(cell)) for place, cell in section]
            present = list(former)
            lost = new = None
            if gone is not None:
                lost = _Place(gone, sets.take(prefix, number, gone) or 0)
                del present[_find(present, lost)]
            if added is not None:
                new = _Place(added, sets.add(prefix, number, added, 1, transaction.pack(value[1])) - 1)
                present.insert(_find(present, new), (new, value[1]))
            if not present and sets.edge(prefix, number) is None:
                transaction.delete_head(prefix)
            elif head is None:
                transaction.set_head(prefix, number)
            transaction.advance(timestamp)
            before, after = add_results(former), add_results(present)
            changes = [(before.pop(lost, None), after.pop(new, None))]
            changes += [(row, after[place]) for place, row in before.items()]
            for change in changes:
                if rows_differ(*change):
                    add(*change, differs=True)
                    child(Change(*change), None, timestamp, None)

        return run

    def _radius(self) -> int | None:
        """Return how many rows before and after a change its results depend on; None for all of the group."""
        reaches = [column.function.reach(column.frame) for column in self.columns]
        sides: list[int] = []
        for side in (0, 1):
            numbers = [reach[side] for reach in reaches]
            if None in numbers:
                return None
            sides.append(max((number for number in numbers if number is not None), default=0))
        # Results so far away change, and depend on rows as far from them. The row before is where reading begins.
        return max(1, sum(sides))

    def _add_results(self, section: Section) -> dict[_Place | None, Any]:
        """Return the rows of a section with their columns."""
        if not section:
            return {}
        rows = [row for _, row in section]
        column, descending = (self.by[-1], self.descending[-1]) if self.by else (None, False)
        orders = [place.data[:-DIGEST_BYTES] for place, _ in section]
        ordered = OrderedRows.of(orders, rows, column, descending=descending)
        results = zip(*(each.function.compute(ordered, each.frame) for each in self.columns), strict=True)
        names = [each.name for each in self.columns]
        return {
            place: {**row, **dict(zip(names, found, strict=True))}
            for (place, row), found in zip(section, results, strict=True)
        }

    def describe(self) -> str:  # noqa: D102
        order = f"by {describe_order(self.by, self.descending)}: " if self.by else ""
        return order + ", ".join(column.name for column in self.columns)

    def keeps(self) -> tuple[str, ...]:
        """Return the order of the rows, and the columns that are added."""
        columns = (f"{column.name}: {column.function!r}, {column.frame}" for column in self.columns)
        return (*super().keeps(), describe_order(self.by, self.descending), *columns)

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return not any(column.name in columns for column in self.columns)

    def multiplies_records(self) -> bool:
        """A row may change the results of all others of its group."""
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def _read_section(
    sets: CountedValues, prefix: bytes, number: int, changed: list[bytes], radius: int | None
) -> list[tuple[_Place, Any]]:
    """Return the rows on which the results depend that a change concerns, as cells, in order.

    Args:
        sets: the counted values of the transaction.
        prefix: the key of the group.
        number: the number of the set.
        changed: the bytes of the rows that go and come.
        radius: how many rows before and after them are read; None for all.
    """
    if radius is None:
        return list(_expand(sets.items(prefix, number)))
    first, last = min(changed), max(changed)
    before: list[tuple[_Place, Any]] = []
    for data, count, cell in sets.items_before(prefix, number, first):
        if len(before) >= radius:
            break
        before += zip(map(_Place, repeat(data), reversed(range(count))), repeat(cell), strict=False)
    section, behind = before[::-1], 0
    for place, cell in _expand(sets.items(prefix, number, after=before[0][0].data if before else None)):
        behind += place.data > last
        if behind > radius:
            break
        section.append((place, cell))
    return section


def _expand(items: Iterable[tuple[bytes, int, Any]]) -> Iterator[tuple[_Place, Any]]:
    """Yield each row as often as it is there."""
    for data, count, cell in items:
        for copy in range(count):
            yield _Place(data, copy), cell


def _find(section: Section, place: _Place) -> int:
    return bisect_left(section, place, key=lambda item: item[0])
