"""Rows of one call in portions, as senders take them."""

from collections.abc import Iterator

from streamrt.kafka.writing.portion import Portion
from streamrt.tables.rows.row_encoder import EncodedRows
from streamrt.tables.writing.assigner import RoundRobin

__all__ = ["portions_of"]

_ROWS = 1_000
"""Rows of a portion: few enough for outcomes to be handled in between."""


def portions_of(rows: EncodedRows, first: int, assigner: RoundRobin | None) -> Iterator[Portion]:
    """Yield rows in portions of one partition, or of any.

    Args:
        rows: the rows.
        first: number of the first one.
        assigner: chooses the partitions; None leaves them to the keys, or to the client.
    """
    begin = 0
    while begin < len(rows):
        partition, around = (0, 1) if assigner is None else assigner.choose_partition()
        end = min(begin + _ROWS * around, len(rows))
        if assigner is not None:
            assigner.advance(end - begin)
        for turn in range(min(around, end - begin)):
            places = slice(begin + turn, end, around)
            yield Portion(
                rows.values[places],
                None if rows.keys is None else rows.keys[places],
                None if rows.timestamps is None else rows.timestamps[places],
                None if assigner is None else (partition + turn) % around,
                range(first + begin + turn, first + end, around),
                None if rows.headers is None else rows.headers[places],
            )
        begin = end
