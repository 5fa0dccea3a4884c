"""Layout of state in the keys and values of a store partition. The format outlives the program.

Keys are ordered by their bytes. The first byte is the *space* of the key:

| space | what is in it | in the changelog |
|-------|---------------|------------------|
| 0x01  | data: space, prefix of the record key, bytes of the state key | yes |
| 0x02  | heads: space, prefix of the record key | yes |
| 0x03  | items of timelines: space, prefix of the record key, time and arrival number (8 bytes each, big-endian) | yes |
| 0x04  | counters of the store: space, name | yes |
| 0x05  | entries of maps: space, prefix of the record key, length and bytes of the map's name, bytes of the map key | yes |
| 0x06  | elements of lists: space, prefix of the record key, length and bytes of the list's name, arrival number | yes |
| 0x07  | timers: space, prefix of the record key, domain (0: event time, 1: processing time), time; values are empty | yes |
| 0x08  | names of handles: space, name; values are the type of state | yes |
| 0x09  | records that wait behind an exchange in memory: space, length and bytes of its topic, number (8 bytes) | yes |
| 0xF0  | expiry index: space, expiry or deadline (8 bytes, big-endian), key of data or of a head; values are empty | no |
| 0xF1  | bounds of the indexes: space, name | no |
| 0xF2  | expiry index of the wall clock: space, expiry (8 bytes, big-endian), key of data; values are empty | no |
| 0xF3  | index of timers: space, domain, time, prefix of the record key; values are empty | no |
| 0xFF  | the position record | in the changelog only |

Arrival numbers and times of timers have 8 bytes, big-endian.

A store has data, maps and lists, by `StoreTransaction`, with timers, by `ProcessTransaction`, or heads and items, by
`TimedTransaction`; all have counters.
The **names of handles** belong to the store, not to a record key. The first use of a name writes its type (`value`,
`list`, `map`, `reducing`, `aggregating`), with flag 0, so that no later program reads one type as another. At most 1,000
names of a store partition are kept. Stores of versions before this space have no names, and get them with the next use.
Such versions keep the entries, and ignore them, except for `streamrt repartition`, which refuses them.

Other spaces are free. 0x02 to 0xEF go into the changelog. 0xF0 to 0xFE are local to the store and can be rebuilt from
the others. No key is empty: a store may use the empty key for its own data.

The **prefix of a record key** is a tag (0: no key, 1: bytes, 2: any other value, as JSON; 3: no record, for the maps of
broadcast state), the length of its bytes as an
unsigned LEB128 varint, and the bytes. It contains its own length, so no prefix is the beginning of another one, and all
entries of a record key are adjacent. A **pane**, one window of a record key, has a prefix of the same form: tag 4, length,
the prefix of the record key, a role (1 byte, see `transactions/panes.py`), and start and end of the window (8 bytes
each, big-endian). So panes have data, lists and timers as record keys do. The **bytes of a state key** are its JSON,
so `5`, `"5"`, `True` and `1.0` are four different keys. Keys of maps have the same bytes. **Names** of maps and lists
are UTF-8; their length in bytes is an unsigned LEB128 varint, so no name is the beginning of another one, and a map or
a list is a range of keys. Values, reducing and aggregating states are data: their name is the state key.

**Values** begin with a flag: 0 is followed by the payload; 1 by the expiry (8 bytes, big-endian, event time in milliseconds)
and the payload. The entry expires when stream time reaches its expiry. 2 is followed by the same, with an expiry by the
wall clock (milliseconds since the Unix epoch). The payload is JSON, or the bytes that `set_bytes` stored.

**Heads** are values as well. A head with a deadline has flag 1 and the deadline, so the expiry index holds the deadlines
of heads as well as the expiry of data. A head does not expire at its deadline; an operator processes it. Its payload is
*exact JSON*: JSON as orjson writes it, or, if that would lose information (NaN, infinities, integers beyond 64 bits),
`~` and JSON with Python's names for them; with dates, times, Decimals or bytes, `@` and JSON with tagged objects
(`typed_values.py`). **Items** have flag 0 and exact JSON, or the output of `RocksDBOptions.dumps`. There is one **counter**,
`arrival`: flag 0 and the arrival number (8 bytes, big-endian) of the next item of any timeline, or of the next element of any
list. It precedes them in each commit, so that no number is used twice if only a part of a commit reaches the changelog.
Sets of **counted values**, which windows and aggregates keep next to their heads, are maps with a number in decimal as
name: keys are those of `ordered_bytes.py`, and the payload is the JSON of a count, or exact JSON of a list of count and cell.
Entries of maps and elements of lists are values that may expire, like data; their payload is JSON, or the output of
`RocksDBOptions.dumps`.

A **timer** is its key; its value is flag 0 without a payload. The index of timers has the same fields in another order, so
it is derived only from the keys.

One **bound of the expiry index**, `first`: 8 bytes, big-endian. No entry of the index is earlier. Without it, reads of the
index start at its beginning and may pass the tombstones of many deleted entries. A restore that writes an earlier
expiry or deadline lowers it. In stores with data it never exceeds stream time plus one, so no commit has to lower it,
and it stays valid under versions of StreamRT that maintain it for heads only. The index of the wall clock has the bound
`first-wall`. A store with entries in that index has it. Wall clocks differ and may be set back, so a commit that writes
an earlier expiry lowers it. The index of timers has a bound for each domain, `timers` and the byte of the domain: 8
bytes, big-endian. No timer of the domain is earlier.

A **record that waits** has flag 0 and JSON: value, key, timestamp and headers; bytes are in base64. Numbers, big-endian, are
in the order of arrival. Versions before this space keep such records, and ignore them.

An expiry below 0 or beyond 2**63 - 1 is clamped to these bounds, so that the order of bytes is the order of time.
"""

from typing import ClassVar, Final

from streamrt.common.varint import varint
from streamrt.errors import StoreCorruptedError, StoreVersionError

__all__ = [
    "ARRIVAL_KEY",
    "DATA_SPACE",
    "EXPIRY_SPACE",
    "FIRST_KEY",
    "FIRST_LOCAL_SPACE",
    "HEAD_SPACE",
    "ITEM_SPACE",
    "LATEST_EXPIRY",
    "LIST_SPACE",
    "MAP_SPACE",
    "NAME_SPACE",
    "POSITION_SPACE",
    "TIMER_SPACE",
    "WALL_EXPIRY_SPACE",
    "WALL_FIRST_KEY",
    "Expiring",
    "WallExpiring",
    "after_prefix",
    "backlog_prefix",
    "collection_prefix",
    "decode_value",
    "encode_value",
    "expiry_bound",
    "expiry_key",
    "following",
    "index_key_of",
    "key_prefix",
    "name_key",
    "owner_of",
    "pane_prefix",
    "record_prefix",
    "split_expiry_key",
    "split_key",
    "split_pane",
    "split_prefix",
    "split_timer_index_key",
    "timer_bound_key",
    "timer_index_key",
    "timer_index_of",
    "timer_key",
]

DATA_SPACE: Final = 0x01
HEAD_SPACE: Final = 0x02
ITEM_SPACE: Final = 0x03
MAP_SPACE: Final = 0x05
LIST_SPACE: Final = 0x06
TIMER_SPACE: Final = 0x07
NAME_SPACE: Final = 0x08
BACKLOG_SPACE: Final = 0x09
EXPIRY_SPACE: Final = 0xF0
WALL_EXPIRY_SPACE: Final = 0xF2
FIRST_LOCAL_SPACE: Final = 0xF0
POSITION_SPACE: Final = 0xFF

ARRIVAL_KEY: Final = b"\x04arrival"
"""Key of the counter of arrival numbers."""
FIRST_KEY: Final = b"\xf1first"
"""Key of the bound of the index."""
WALL_FIRST_KEY: Final = b"\xf1first-wall"
"""Key of the bound of the index of the wall clock."""
LATEST_EXPIRY: Final = (1 << 63) - 1
"""The latest possible expiry or deadline."""

NO_KEY, BYTES_KEY, JSON_KEY, BROADCAST_KEY, PANE_KEY = 0, 1, 2, 3, 4
PLAIN: Final = b"\x00"
_PLAIN_FLAG, _EXPIRING_FLAG, _WALL_FLAG = 0, 1, 2
# Beginnings of the keys in the expiry indexes, by the flags of values.
_INDEX_OF_FLAG: Final = {_EXPIRING_FLAG: bytes((EXPIRY_SPACE,)), _WALL_FLAG: bytes((WALL_EXPIRY_SPACE,))}

# Beginnings of prefixes for keys whose length fits into one byte, as almost all do: one look-up instead of three steps.
SHORT_BYTES_HEADS: Final = tuple(bytes((DATA_SPACE, BYTES_KEY, length)) for length in range(128))
NO_KEY_PREFIX: Final = bytes((DATA_SPACE, NO_KEY, 0))


class Expiring:
    """A value that expires in event time.

    Args:
        expiry: stream time, in milliseconds, at which it expires.
        payload: its bytes.
    """

    __slots__ = ("expiry", "payload")
    flag: ClassVar[int] = _EXPIRING_FLAG

    def __init__(self, expiry: int, payload: bytes) -> None:
        self.expiry = min(max(expiry, 0), LATEST_EXPIRY)
        self.payload = payload

    def index_key(self, key: bytes) -> bytes:
        """Return the key in the index for the data key of this value."""
        return _INDEX_OF_FLAG[self.flag] + self.expiry.to_bytes(8, "big") + key


class WallExpiring(Expiring):
    """A value that expires by the wall clock: its expiry is in milliseconds since the Unix epoch."""

    __slots__ = ()
    flag: ClassVar[int] = _WALL_FLAG


def key_prefix(tag: int, key: bytes) -> bytes:
    r"""Return the prefix of a record key, without a space.

    Example:
        >>> key_prefix(BYTES_KEY, b"ab")
        b'\x01\x02ab'
    """
    return bytes((tag,)) + varint(len(key)) + key


_PANE_BYTES = 17
"""Bytes of the role, start and end."""
CONTENT: Final = 2
"""Role of a pane's prefix: what the operator keeps, the content of the pane."""
OPENED: Final = 3
"""Role of what the operator keeps for all panes of a record key: open windows, and the elements. The window is empty."""


def pane_prefix(prefix: bytes, role: int, start: int, end: int) -> bytes:
    r"""Return the prefix of a pane, without a space.

    Args:
        prefix: prefix of the record key, without a space.
        role: what the entries are for.
        start: start of the window in milliseconds, 0 or more.
        end: its end, at most 2**63.

    Example:
        >>> pane_prefix(key_prefix(BYTES_KEY, b"ab"), 0, 5, 9)
        b'\x04\x15\x01\x02ab\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\t'
    """
    return key_prefix(PANE_KEY, prefix + bytes((role,)) + start.to_bytes(8, "big") + end.to_bytes(8, "big"))


def split_pane(prefix: bytes) -> tuple[bytes, int, int, int]:
    r"""Return the prefix of the record key, the role, start and end of the window, for the prefix of a pane.

    Example:
        >>> split_pane(pane_prefix(key_prefix(BYTES_KEY, b"ab"), 0, 5, 9))
        (b'\x01\x02ab', 0, 5, 9)
    """
    pane = split_prefix(prefix)[1]
    if len(pane) < _PANE_BYTES:
        raise StoreCorruptedError(f"a key in the store is truncated: {prefix[:80]!r}")
    return pane[:-17], pane[-17], int.from_bytes(pane[-16:-8], "big"), int.from_bytes(pane[-8:], "big")


def split_prefix(prefix: bytes) -> tuple[int, bytes]:
    r"""Return the tag and the bytes of the record key in a prefix.

    Example:
        >>> split_prefix(b"\x01\x02ab")
        (1, b'ab')
    """
    at = 1
    try:
        while prefix[at] > 0x7F:
            at += 1
    except IndexError:
        raise StoreCorruptedError(f"a key in the store is truncated: {prefix[:80]!r}") from None
    return prefix[0], prefix[at + 1 :]


def split_key(key: bytes) -> tuple[int, bytes, bytes]:
    r"""Return the tag and the bytes of the record key in a store key, and the rest, such as the bytes of the state key.

    Example:
        >>> split_key(record_prefix(BYTES_KEY, b"ab") + b'"total"')
        (1, b'ab', b'"total"')
    """
    begin, end = _record_key(key)
    return key[1], key[begin:end], key[end:]


def record_prefix(tag: int, key: bytes) -> bytes:
    r"""Return the common prefix of all data keys of a record key.

    Example:
        >>> record_prefix(BYTES_KEY, b"ab")
        b'\x01\x01\x02ab'
    """
    return b"\x01" + key_prefix(tag, key)


def collection_prefix(space: int, prefix: bytes, name: str) -> bytes:
    r"""Return the common prefix of all keys of a map or list.

    Args:
        space: `MAP_SPACE` or `LIST_SPACE`.
        prefix: prefix of the record key, without a space.
        name: name of the map or list.

    Example:
        >>> collection_prefix(MAP_SPACE, key_prefix(BYTES_KEY, b"ab"), "m")
        b'\x05\x01\x02ab\x01m'
    """
    data = name.encode()
    return bytes((space,)) + prefix + varint(len(data)) + data


def name_key(name: str) -> bytes:
    r"""Return the key of the type of a name.

    Example:
        >>> name_key("orders")
        b'\x08orders'
    """
    return bytes((NAME_SPACE,)) + name.encode("utf-8", "surrogatepass")


def backlog_prefix(name: str) -> bytes:
    r"""Return the common prefix of the keys of records that wait behind an exchange.

    Example:
        >>> backlog_prefix("g")
        b'\t\x01g'
    """
    data = name.encode()
    return bytes((BACKLOG_SPACE,)) + varint(len(data)) + data


def owner_of(key: bytes) -> bytes:
    r"""Return the prefix of the record key, without a space, in a key of data, a map or a list.

    Example:
        >>> owner_of(collection_prefix(MAP_SPACE, key_prefix(BYTES_KEY, b"ab"), "m") + b"5")
        b'\x01\x02ab'
    """
    return key[1 : _record_key(key)[1]]


def _record_key(key: bytes) -> tuple[int, int]:
    """Return where the bytes of the record key begin and end in a store key."""
    at, length, shift = 2, 0, 0
    try:
        while True:
            length |= (key[at] & 0x7F) << shift
            at += 1
            if key[at - 1] <= 0x7F:
                return at, at + length
            shift += 7
    except IndexError:
        raise StoreCorruptedError(f"a key in the store is truncated: {key[:80]!r}") from None


def following(prefix: bytes) -> bytes:
    r"""Return the first key, in the order of bytes, after all keys with a prefix; the prefix must not be all 0xFF.

    Example:
        >>> following(b"\x05a"), following(b"\x05\xff")
        (b'\x05b', b'\x06')
    """
    prefix = prefix.rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def after_prefix(prefix: bytes) -> bytes | None:
    r"""Return the same as `following`; None if no key is after all keys with the prefix.

    Example:
        >>> after_prefix(b"ab"), after_prefix(b"\xff")
        (b'ac', None)
    """
    return following(prefix) if prefix.rstrip(b"\xff") else None


def encode_value(value: "bytes | Expiring") -> bytes:
    """Return the stored bytes of a payload."""
    if isinstance(value, Expiring):
        return bytes((value.flag,)) + value.expiry.to_bytes(8, "big") + value.payload
    return PLAIN + value


def decode_value(data: bytes) -> "bytes | Expiring":
    """Return the payload of stored bytes.

    Raises:
        StoreCorruptedError: if the bytes are too short to be a value.
        StoreVersionError: if their flag is unknown.
    """
    flag = data[0] if data else -1
    if flag == _PLAIN_FLAG:
        return data[1:]
    if flag == _EXPIRING_FLAG and len(data) >= 9:
        return Expiring(int.from_bytes(data[1:9], "big"), data[9:])
    if flag == _WALL_FLAG and len(data) >= 9:
        return WallExpiring(int.from_bytes(data[1:9], "big"), data[9:])
    if flag <= _WALL_FLAG:
        raise StoreCorruptedError(f"a value in the store is truncated: {data!r}")
    raise StoreVersionError(
        f"a value in the store has the unknown flag {flag}: a newer version wrote the state; upgrade StreamRT"
    )


def expiry_key(expiry: int, key: bytes, space: int = EXPIRY_SPACE) -> bytes:
    """Return the expiry index key of a data key."""
    return bytes((space,)) + expiry.to_bytes(8, "big") + key


def index_key_of(key: bytes, value: bytes) -> bytes | None:
    r"""Return the key in an expiry index for a key and its stored bytes; None if the value does not expire.

    Example:
        >>> index_key_of(b"\x01a", encode_value(WallExpiring(5, b"1")))
        b'\xf2\x00\x00\x00\x00\x00\x00\x00\x05\x01a'
    """
    index = _INDEX_OF_FLAG.get(value[0])
    return None if index is None else index + value[1:9] + key


def split_expiry_key(key: bytes) -> tuple[int, bytes]:
    """Return the expiry and the data key of an expiry index key."""
    return int.from_bytes(key[1:9], "big"), key[9:]


def expiry_bound(time: int, space: int = EXPIRY_SPACE) -> bytes:
    """Return an exclusive upper bound for the index keys of entries that are expired at a time of the index."""
    return bytes((space,)) + min(max(time, -1) + 1, 1 << 63).to_bytes(8, "big")


def timer_key(prefix: bytes, domain: int, time: int) -> bytes:
    r"""Return the key of a timer.

    Args:
        prefix: prefix of the record key, without a space.
        domain: 0 for event time, 1 for processing time.
        time: its time in milliseconds, 0 or more.

    Example:
        >>> timer_key(key_prefix(BYTES_KEY, b"ab"), 0, 5)
        b'\x07\x01\x02ab\x00\x00\x00\x00\x00\x00\x00\x00\x05'
    """
    return b"\x07" + prefix + bytes((domain,)) + time.to_bytes(8, "big")


def timer_index_key(domain: int, time: int, prefix: bytes) -> bytes:
    """Return the key of a timer in the index; the beginning of it for a prefix of `b""`."""
    return b"\xf3" + bytes((domain,)) + time.to_bytes(8, "big") + prefix


def timer_index_of(key: bytes) -> bytes:
    r"""Return the key in the index for the key of a timer.

    Example:
        >>> timer_index_of(timer_key(b"\x01\x02ab", 0, 5)) == timer_index_key(0, 5, b"\x01\x02ab")
        True
    """
    return b"\xf3" + key[-9:] + key[1:-9]


def split_timer_index_key(key: bytes) -> tuple[int, bytes]:
    """Return the time and the prefix of the record key for a key in the index of timers."""
    return int.from_bytes(key[2:10], "big"), key[10:]


def timer_bound_key(domain: int) -> bytes:
    """Return the key of the bound for the index of timers."""
    return b"\xf1timers" + bytes((domain,))
