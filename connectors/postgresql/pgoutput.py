"""Messages of PostgreSQL's plug-in `pgoutput`, protocol version 1, for `PostgresCdcSource`.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

import struct
from typing import NamedTuple

__all__ = [
    "UNCHANGED",
    "Begin",
    "Column",
    "Commit",
    "Delete",
    "Insert",
    "Keepalive",
    "Relation",
    "Truncate",
    "Unchanged",
    "Update",
    "WALData",
    "decode",
    "frame",
    "lsn_number",
    "lsn_text",
    "milliseconds",
    "status_update",
]

_EPOCH_MS = 946_684_800_000
"""2000-01-01, from which PostgreSQL counts microseconds."""


class Unchanged:
    """A column whose value is stored out of line, and is not sent because it did not change."""


UNCHANGED = Unchanged()

Cell = bytes | Unchanged | None
Cells = tuple[Cell, ...]


class Begin(NamedTuple):
    """Start of a transaction.

    Attributes:
        lsn: position of its commit.
        timestamp: time of the commit, in milliseconds since the Unix epoch.
        xid: its number.
    """

    lsn: int
    timestamp: int
    xid: int


class Commit(NamedTuple):
    """End of a transaction.

    Attributes:
        lsn: position of its commit.
        end: position after it.
    """

    lsn: int
    end: int


class Column(NamedTuple):
    """A column of a relation.

    Attributes:
        name: its name.
        identity: whether it is part of the replica identity.
        type: number of its type.
    """

    name: str
    identity: bool
    type: int


class Relation(NamedTuple):
    """A table, sent before its first change and when it has changed.

    Attributes:
        number: its number.
        schema: name of the schema.
        table: name of the table.
        identity: "d" for the primary key, "i" for an index, "f" for all columns, "n" for none.
        columns: the columns.
    """

    number: int
    schema: str
    table: str
    identity: str
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Cells


class Update(NamedTuple):
    """A changed row; `old` is the old row or its key, as far as the replica identity has it; `whole` tells which."""

    relation: int
    old: Cells | None
    whole: bool
    new: Cells


class Delete(NamedTuple):
    """A deleted row, or its key."""

    relation: int
    old: Cells
    whole: bool


class Truncate(NamedTuple):
    """Emptied tables."""

    relations: tuple[int, ...]


class WALData(NamedTuple):
    """A message of the plug-in, with the position up to which the server has sent."""

    end: int
    message: bytes


class Keepalive(NamedTuple):
    """The position up to which the server has sent, and whether it wants an answer."""

    end: int
    wants_reply: bool


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


def frame(data: bytes) -> WALData | Keepalive:
    """Return what a message of the replication protocol carries.

    Args:
        data: the message.

    Raises:
        ValueError: if it is unknown.
    """
    if data[:1] == b"w":
        return WALData(struct.unpack_from("!Q", data, 9)[0], data[25:])
    if data[:1] == b"k":
        return Keepalive(struct.unpack_from("!Q", data, 1)[0], data[17] == 1)
    raise ValueError(f"unknown message {data[:1]!r} of the replication protocol")


def decode(data: bytes) -> Message | None:
    """Return a message of the plug-in, or None if it does not matter.

    Args:
        data: the message.

    Raises:
        ValueError: if it is unknown.

    Example:
        >>> decode(b"C" + bytes([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]) + bytes(8))
        Commit(lsn=1, end=2)
    """
    kind = data[:1]
    if kind == b"I":
        return Insert(_read_number(data, 1), _read_cells(data, 6)[0])
    if kind == b"U":
        return _read_update(data)
    if kind == b"D":
        return Delete(_read_number(data, 1), _read_cells(data, 6)[0], data[5:6] == b"O")
    if kind == b"B":
        lsn, time, xid = struct.unpack_from("!QqI", data, 1)
        return Begin(lsn, milliseconds(time), xid)
    if kind == b"C":
        return Commit(*struct.unpack_from("!QQ", data, 2))
    if kind == b"R":
        return _read_relation(data)
    if kind == b"T":
        count = _read_number(data, 1)
        return Truncate(struct.unpack_from(f"!{count}I", data, 6))
    # Origins, names of types, and messages that applications write into the log.
    if kind in (b"O", b"Y", b"M"):
        return None
    raise ValueError(f"unknown message {kind!r} of pgoutput")


def status_update(written: int, flushed: int, now_ms: int) -> bytes:
    """Return the message that acknowledges a position and asks for an answer.

    Args:
        written: position up to which data was received.
        flushed: position up to which data is safe; the server may delete its log before it.
        now_ms: the time, in milliseconds since the Unix epoch.
    """
    return b"r" + struct.pack("!QQQqB", written, flushed, flushed, (now_ms - _EPOCH_MS) * 1000, 1)


def milliseconds(time: int) -> int:
    """Return a time of PostgreSQL in milliseconds since the Unix epoch.

    Args:
        time: microseconds since 2000-01-01.
    """
    return time // 1000 + _EPOCH_MS


def lsn_text(lsn: int) -> str:
    """Return a position in PostgreSQL's form.

    Args:
        lsn: the position.

    Example:
        >>> lsn_text(0x1_0000_00FF)
        '1/FF'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


def lsn_number(text: str) -> int:
    """Return a position as a number.

    Args:
        text: the position in PostgreSQL's form.

    Example:
        >>> lsn_number("1/FF") == 0x1_0000_00FF
        True
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _read_number(data: bytes, position: int) -> int:
    number: int = struct.unpack_from("!I", data, position)[0]
    return number


def _read_update(data: bytes) -> Update:
    relation, mark, position = _read_number(data, 1), data[5:6], 6
    old = None
    if mark != b"N":
        old, position = _read_cells(data, position)
        position += 1
    return Update(relation, old, mark == b"O", _read_cells(data, position)[0])


def _read_cells(data: bytes, position: int) -> tuple[Cells, int]:
    (count,) = struct.unpack_from("!H", data, position)
    position += 2
    cells: list[Cell] = []
    for _ in range(count):
        kind = data[position]
        position += 1
        if kind == 0x74:  # t: text
            end = position + 4 + _read_number(data, position)
            cells.append(data[position + 4 : end])
            position = end
        elif kind == 0x6E:  # n: null
            cells.append(None)
        elif kind == 0x75:  # u: unchanged
            cells.append(UNCHANGED)
        else:
            raise ValueError(f"unknown kind {kind:#x} of a value")
    return tuple(cells), position


def _read_relation(data: bytes) -> Relation:
    number = _read_number(data, 1)
    schema, position = _read_text(data, 5)
    table, position = _read_text(data, position)
    identity = chr(data[position])
    (count,) = struct.unpack_from("!H", data, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        flags = data[position]
        name, position = _read_text(data, position + 1)
        columns.append(Column(name, bool(flags & 1), _read_number(data, position)))
        position += 8
    # An empty name stands for the system's schema.
    return Relation(number, schema or "pg_catalog", table, identity, tuple(columns))


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    end = data.index(0, position)
    return data[position:end].decode(), end + 1
