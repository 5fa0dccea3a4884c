"""Changes of rows, and rows in stores."""

from typing import Any, Final, Literal, NamedTuple

from streamrt.records import Headers
from streamrt.state.encoding import dumps_exact, loads_exact
from streamrt.topology import RecordHandler

__all__ = ["Change", "ChangeKind", "decode_row", "encode_row", "holds_same_row", "pass_on", "row_time"]

ChangeKind = Literal["+I", "+U", "-D"]
"""What happened to a row: inserted, updated, deleted."""

_TIME_BYTES: Final = 8


class Change(NamedTuple):
    """What the row of a key was, and what it is now; None stands for no row. At most one of them is None.

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
    return timestamp.to_bytes(_TIME_BYTES, "big", signed=True) + dumps_exact(row)


def decode_row(data: bytes | None) -> Any:
    """Return the row of bytes of `encode_row`, as a new object; None for None."""
    return None if data is None else loads_exact(data[_TIME_BYTES:])


def row_time(data: bytes) -> int:
    """Return the time of a row in milliseconds."""
    return int.from_bytes(data[:_TIME_BYTES], "big", signed=True)


def holds_same_row(data: bytes | None, other: bytes) -> bool:
    """Return whether two encoded rows are equal, whatever their times are."""
    return data is not None and data[_TIME_BYTES:] == other[_TIME_BYTES:]


def pass_on(child: RecordHandler, before: Any, after: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Pass a change to the operators below, unless nothing has changed."""
    if before != after:
        child(Change(before, after), key, timestamp, headers)
