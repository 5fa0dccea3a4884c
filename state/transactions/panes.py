"""Transactions of windows with triggers. A *pane* is one window of one record key.

A pane has a prefix like that of a record key (see `state/layout.py`), so `State` and timers work for panes as they do for
record keys: their order, index and restore need nothing else.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from streamrt.state.access.keyed_state import KeyedState
from streamrt.state.encoding import exact_of, packing_of
from streamrt.state.layout import CONTENT, DATA_SPACE, LIST_SPACE, OPENED, PANE_KEY, pane_prefix, split_pane
from streamrt.state.options import RocksDBOptions
from streamrt.state.store import StorePartition
from streamrt.state.transactions.process_functions import ProcessTransaction

__all__ = ["TRIGGER", "WINDOW", "PaneTransaction", "contents_of"]

TRIGGER: Final = 0
"""Role of a pane's prefix: the state and the timers of the trigger."""
WINDOW: Final = 1
"""The state of the window function."""

Element = tuple[bytes, int, Any]
"""Key in the store, event time in milliseconds, and value."""


def contents_of(prefix: bytes) -> bytes:
    r"""Return the beginning of the store keys of the contents of all panes of a record key.

    Args:
        prefix: prefix of the record key, without a space.

    Example:
        >>> contents_of(b"\x01\x02ab")
        b'\x01\x04\x15\x01\x02ab\x02'
    """
    return _data_prefix(pane_prefix(prefix, CONTENT, 0, 0))[:-16]


class _Packing(NamedTuple):
    """Converts users' values to cells and back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    arrival: Callable[[], int]
    # All of a pane is in its content.
    counted: None = None
    owner: bytes = b""


class PaneTransaction(ProcessTransaction):
    """Keep panes: their content, the elements in them, the state and the timers of triggers.

    Contents are exact JSON. Elements are in lists, which have numbers as names: a pane may have several lists, so that panes
    merge without a copy of their elements.

    Args:
        partition: the open store partition.
        options: as for `StoreTransaction`.
        changelog: whether there is a changelog.

    Attributes:
        packing: converts users' values to cells and back.
    """

    __slots__ = ("_dumps_exact", "_loads_exact", "packing")

    def __init__(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> None:
        super().__init__(partition, options, changelog)
        self.packing = _Packing(*packing_of(self._options), lambda: self.collections.arrival())
        self._dumps_exact, self._loads_exact = exact_of(self._options)

    @property
    def next_processing_deadline(self) -> int | None:
        """A pane is over when the wall clock has passed its last millisecond."""
        time = self.processing_timers.next_time
        return None if time is None else time + 1

    def content(self, prefix: bytes, start: int, end: int) -> Any:
        """Return the content of a pane; None if there is none.

        Args:
            prefix: prefix of the record key, without a space.
            start: start of its window.
            end: its end.
        """
        payload = self.payload(self._content_key(prefix, start, end))
        return None if payload is None else self._loads_exact(payload)

    def set_content(self, prefix: bytes, start: int, end: int, content: Any) -> None:
        """Store the content of a pane; None deletes it."""
        entry = None if content is None else b"".join((self._dumps_exact(content), b""))
        self.put(self._content_key(prefix, start, end), entry)

    def opened(self, prefix: bytes) -> list[list[int]]:
        """Return start and end of the windows that `set_opened` has stored for a record key."""
        payload = self.payload(_data_prefix(pane_prefix(prefix, OPENED, 0, 0)))
        return [] if payload is None else self._loads_exact(payload)

    def set_opened(self, prefix: bytes, windows: list[list[int]]) -> None:
        """Store the open windows of a record key, which may merge."""
        entry = b"".join((self._dumps_exact(windows), b"")) if windows else None
        self.put(_data_prefix(pane_prefix(prefix, OPENED, 0, 0)), entry)

    def encode_element(self, timestamp: int, value: Any) -> bytes:
        """Return the stored form of an element.

        Raises:
            SerializationError: if its value cannot be stored exactly.
        """
        return timestamp.to_bytes(8, "big") + self._dumps_exact(value)

    def append(self, prefix: bytes, number: int | None, element: bytes) -> int:
        """Append an element to a list of a record key.

        Args:
            prefix: prefix of the record key, without a space.
            number: the number of the list; None for a new one.
            element: result of `encode_element`.

        Returns:
            The number of the list.
        """
        if number is None:
            number = self.collections.next_number
        self.collections.append(self._find_list(prefix, number), element)
        return number

    def elements(self, prefix: bytes, number: int) -> list[Element]:
        """Return the elements of a list in the order of their arrival."""
        load = self._loads_exact
        return [
            (key, int.from_bytes(payload[:8], "big"), load(payload[8:]))
            for key, payload in self.collections.items(self._find_list(prefix, number))
        ]

    def drop(self, prefix: bytes, number: int) -> None:
        """Delete a list."""
        self.collections.clear(self._find_list(prefix, number))

    def drop_elements(self, prefix: bytes, number: int, keys: list[bytes]) -> None:
        """Delete elements of a list."""
        overlay = self._find_list(prefix, number)
        for key in keys:
            self.collections.put(overlay, key, None)

    def pane_state(self, pane: bytes, timestamp: int) -> KeyedState:
        """Return the `State` of a pane.

        Args:
            pane: result of `pane_prefix`.
            timestamp: event time for aggregators, in milliseconds.
        """
        return self.state_at(pane, timestamp)

    def clear_pane(self, pane: bytes) -> None:
        """Delete the `State` of a pane."""
        self.collections.clear_all(pane)

    def key_of(self, prefix: bytes) -> Any:
        """Return the record key of its prefix, or of the prefix of a pane."""
        return super().key_of(split_pane(prefix)[0] if prefix[0] == PANE_KEY else prefix)

    def _find_list(self, prefix: bytes, number: int) -> Any:
        return self.collections.overlay(LIST_SPACE, pane_prefix(prefix, OPENED, 0, 0), str(number))

    @staticmethod
    def _content_key(prefix: bytes, start: int, end: int) -> bytes:
        return _data_prefix(pane_prefix(prefix, CONTENT, start, end))


def _data_prefix(prefix: bytes) -> bytes:
    return bytes((DATA_SPACE,)) + prefix
