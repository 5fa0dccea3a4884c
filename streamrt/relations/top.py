"""`top`: the first rows of each group in an order, as a table by group and rank.

The rows of a group are a set of counted values, in their order: the bytes of the columns that order them, and then

- of a stream, the number of the row in its group (8 bytes, big-endian): equal rows keep the order of their arrival;
- of a table, a digest of the row (16 bytes): the order of equal rows depends on nothing but the rows.

The cell of a value is the row. The head of a group is `[set, number, bound]`: the number of the set, that of the next row of
a stream, and bytes in hexadecimal above which rows have no rank; None as long as there are fewer rows than ranks. So a row
that gets no rank is recognized without the others.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, cast

from streamrt.joins.notes import Warnings
from streamrt.operators.ranking import Ranking
from streamrt.records import Headers
from streamrt.relations.change import make_pass_on
from streamrt.relations.exact_keys import DIGEST_BYTES, digest_row
from streamrt.relations.group_aggregate import SKIPPED, is_null_group
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["TopRows"]

_NUMBER_BYTES: Final = 8

Places = dict[tuple[int, int], tuple[bytes, Any]]
"""By rank and number in the rank, the bytes and the cell of the row."""


@dataclass(frozen=True)
class TopRows(Operator):
    """Keeps the first rows of each group in an order, and passes on which row each rank has, when that changes.

    Of a stream, to which rows are only added, those are enough that have a rank; of a table, whose rows may be taken back,
    all are kept. A change reads the rows that have a rank, and the next one, unless it concerns other rows only. Records
    without a key are skipped.

    Attributes:
        store: the store of the rows.
        ranking: which rows are the first ones.
        columns: number of columns of which the key of a group is made: a key of several is a list.
        retracts: whether values are the former and the present row of a change.

    Example:
        >>> store = StoreSpec("top", transaction=TimedTransaction)
        >>> TopRows(store, Ranking(10, ("price",), (True,), "row_number", "rank"), 1).describe()
        '10 by price descending, row_number'
    """

    name: ClassVar[str] = "top"
    regroups: ClassVar[bool] = True
    store: StoreSpec
    ranking: Ranking
    columns: int
    retracts: bool = False

    @property
    def keeps_rows(self) -> bool:  # type: ignore[override]
        """Whether its values are those of rows that may be taken back."""
        return self.retracts

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, ranking, retracts = context.store(self.store), self.ranking, self.retracts
        order_of, several, has_ties = ranking.make_order(), self.columns > 1, ranking.has_ties
        tail = DIGEST_BYTES if retracts else _NUMBER_BYTES
        pass_on = make_pass_on(child, context, node)
        keyless = Warnings(SKIPPED, node)

        def data_of(row: Any, number: int) -> bytes:
            """Return the bytes of a row."""
            last = digest_row(row) if retracts else number.to_bytes(_NUMBER_BYTES, "big")
            return order_of(row) + last

        def read_places(transaction: TimedTransaction, prefix: bytes, number: int) -> Places:
            """Return the rows that have a rank, in order."""
            rows = (
                (data[:-tail], (data, cell))
                for data, count, cell in transaction.counted.items(prefix, number)
                for _ in range(count)
            )
            return {(rank, tie): row for rank, tie, row in ranking.rank_rows(rows)}

        def bound_of(places: Places) -> str | None:
            """Return the bytes above which rows have no rank."""
            last = next(reversed(places))
            if not ranking.is_full(*last):
                return None
            data = places[last][0]
            # A row that is equal to the last one has a rank as well.
            return (data[:-tail] + b"\xff" * (tail + 1) if has_ties else data).hex()

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            transaction = cast("TimedTransaction", store())
            prefix, sets = transaction.prefix(key), transaction.counted
            former, present = value if retracts else (None, value)
            if present is not None:
                ranking.check_row(present)
            head = transaction.head(prefix)
            number, arrived, bound = (sets.create(prefix), 0, None) if head is None else head
            gone = None if former is None else data_of(former, 0)
            added = None if present is None else data_of(present, arrived)
            if bound is not None:
                above = bytes.fromhex(bound)
                if (gone is None or gone > above) and (added is None or added > above):
                    if added is not None:
                        ranking.check_order(present, added, above)
                    if retracts:
                        _replace(transaction, prefix, number, gone, added, present)
                    return
            # Nothing is stored before: what cannot be ordered leaves the rows as they were.
            before = read_places(transaction, prefix, number)
            if before and present is not None:
                ranking.check_types(present, transaction.unpack(before[1, 1][1]))
            repeated = _replace(transaction, prefix, number, gone, added, present)
            after = read_places(transaction, prefix, number)
            if not retracts:
                kept = {data for data, _ in after.values()}
                for data in chain((data for data, _ in before.values()), () if added is None else (added,)):
                    if data not in kept:
                        sets.take(prefix, number, data)
            if after:
                transaction.set_head(prefix, [number, arrived + (not retracts), bound_of(after)])
            else:
                transaction.delete_head(prefix)
            for place in sorted(before.keys() | after.keys()):
                old, new = before.get(place), after.get(place)
                if repeated or old is None or new is None or old[0] != new[0]:
                    rows = [None if row is None else transaction.unpack(row[1]) for row in (old, new)]
                    ranked = [None if row is None else ranking.add_rank(row, *place) for row in rows]
                    ranks = place if has_ties else place[:1]
                    group = key if several or is_null_group(key) else [key]
                    pass_on(ranked[0], ranked[1], [*group, *ranks], timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.ranking.describe()

    def keeps(self) -> tuple[str, ...]:
        """Return how many rows are kept, in which order, and whether they may be taken back."""
        return (*super().keeps(), self.describe(), *(("of rows",) if self.retracts else ()))

    def multiplies_records(self) -> bool:
        """A row that gets a rank changes those after it."""
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def _replace(
    transaction: TimedTransaction, prefix: bytes, number: int, gone: bytes | None, added: bytes | None, row: Any
) -> bool:
    """Replace a row of a set by another one; return whether that has been done before, as may be at least once.

    Args:
        transaction: the running transaction.
        prefix: the key of the group.
        number: the number of the set.
        gone: the bytes of the row that is taken out; None for none.
        added: the bytes of the row that is added; None for none.
        row: the row that is added.
    """
    sets = transaction.counted
    missing = gone is not None and sets.take(prefix, number, gone) is None
    if added is not None and sets.add(prefix, number, added, 1, transaction.pack(row)) > 1 and missing:
        sets.take(prefix, number, added)
    return missing
