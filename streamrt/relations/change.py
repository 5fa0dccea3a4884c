"""Changes of rows, and rows in stores."""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from streamrt.records import Headers
from streamrt.relations.change_counts import ChangeCounts
from streamrt.state.encoding import dumps_exact, loads_exact
from streamrt.topology import Node, OperatorContext, RecordHandler

__all__ = [
    "TIME_BYTES",
    "Change",
    "ChangeKind",
    "PassOn",
    "decode_row",
    "drop_unchanged",
    "encode_row",
    "holds_same_row",
    "is_same_key",
    "make_pass_on",
    "row_time",
    "rows_differ",
]

ChangeKind = Literal["+I", "+U", "-D"]
"""What happened to a row: inserted, updated, deleted."""

PassOn = Callable[[Any, Any, Any, int, Headers | None], None]
"""Function of the former and the present row, and of key, timestamp and headers."""

TIME_BYTES: Final = 8
"""Length of the time before a row in a store."""


class Change(NamedTuple):
    """What the row of a key was, and what it is now; None stands for no row.

    Both are equal, or None, only at least once: see `make_pass_on`.

    Attributes:
        before: the former row.
        after: the present row.

    Example:
        >>> Change(None, {"total": 5}).kind, Change({"total": 5}, {"total": 7}).kind, Change({"total": 7}, None).kind
        ('+I', '+U', '-D')
    """

    before: Any
    after: Any

    @property
    def kind(self) -> ChangeKind:
        """What happened to the row."""
        return "+I" if self.before is None else "-D" if self.after is None else "+U"


def encode_row(row: Any, timestamp: int) -> bytes:
    """Return a row with its time, as stores keep it: 8 bytes of the time, and exact JSON of the row.

    Args:
        row: the row.
        timestamp: time of the row in milliseconds.

    Raises:
        SerializationError: if the row cannot be stored exactly.

    Example:
        >>> data = encode_row({"a": 1}, 5)
        >>> data[8:], row_time(data), decode_row(data)
        (b'{"a":1}', 5, {'a': 1})
    """
    return timestamp.to_bytes(TIME_BYTES, "big", signed=True) + dumps_exact(row)


def decode_row(data: bytes | None) -> Any:
    """Return the row of bytes of `encode_row`, as a new object; None for None."""
    return None if data is None else loads_exact(data[TIME_BYTES:])


def row_time(data: bytes) -> int:
    """Return the time of a row in milliseconds."""
    return int.from_bytes(data[:TIME_BYTES], "big", signed=True)


def holds_same_row(data: bytes | None, other: bytes) -> bool:
    """Return whether two encoded rows are equal, whatever their times are."""
    return data is not None and data[TIME_BYTES:] == other[TIME_BYTES:]


def is_same_key(one: Any, other: Any) -> bool:
    """Return whether two keys have the same bytes, and so the same partition: 1, 1.0 and True are equal, and other keys.

    Example:
        >>> is_same_key("a", "a"), is_same_key(1, 1.0)
        (True, False)
    """
    return one == other and (type(one) is type(other) is str or dumps_exact(one) == dumps_exact(other))


def rows_differ(before: Any, after: Any) -> bool:
    """Return whether two rows differ, also in what compares as equal.

    Example:
        >>> rows_differ({"a": 1}, {"a": 1}), rows_differ({"a": 1}, {"a": True})
        (False, True)
    """
    return before != after or (before is not after and repr(before) != repr(after))


def make_pass_on(child: RecordHandler, context: OperatorContext, counted: Node | None = None) -> PassOn:
    """Return the function that passes a former and a present row to the operators below, unless nothing has changed.

    At least once, it passes on equal rows as well. After a crash, the store of this operator may have what a record has
    changed, and a store below not: the record is repeated, and is the news that is missing there. Outputs are durable before
    any store, so operators that write drop them: `drop_unchanged`.

    Args:
        child: the operators below.
        context: the services of the task.
        counted: the operator, if it keeps the rows of a table: its changes are counted for metrics.
    """
    repeats = context.repeats_records
    if counted is not None:
        add = ChangeCounts(counted, context).add

        def count_and_pass_on(before: Any, after: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            differs = rows_differ(before, after)
            add(before, after, differs=differs)
            if repeats or differs:
                child(Change(before, after), key, timestamp, headers)

        return count_and_pass_on

    def pass_on(before: Any, after: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if repeats or rows_differ(before, after):
            child(Change(before, after), key, timestamp, headers)

    return pass_on


def drop_unchanged(run: RecordHandler, context: OperatorContext) -> RecordHandler:
    """Return the function of an operator that writes changes, without rows that stay the same.

    Args:
        run: the function.
        context: the services of the task.
    """
    if not context.repeats_records:
        return run

    def run_changed(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if rows_differ(*value):
            run(value, key, timestamp, headers)

    return run_changed
