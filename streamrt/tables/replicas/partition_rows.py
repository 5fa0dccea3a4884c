"""`PartitionRows`: the current rows of one partition of a table, as bytes, in a store.

Keys in the store are `05` and the key of the record. Values are `00`, the record's timestamp and offset (8 bytes each,
big-endian), and the bytes of the row as they were written: they are decoded when they are read, by the schema of the
reader. Another first byte of a value is refused.

The stamp of the store has the id of the topic, the offset after the last record (`changelog_offset`), and, as
`written_at`, the last time at which the rows were known to be complete, or at which reading began.
"""

import logging
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamrt.errors import StoreCorruptedError, StoreVersionError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.state import Stamp, StoreIdentity
from streamrt.state.snapshots import SnapshotUploads
from streamrt.state.store import Store, StorePartition

__all__ = ["SKEW_MS", "STORE_NAME", "PartitionRows", "StoredRow", "following_bytes"]

logger = logging.getLogger("streamrt.tables")

STORE_NAME = "table"
_SPACE = b"\x05"
_VERSION = 0
_HEAD = struct.Struct(">Bqq")
_CHUNK = 1_000
"""Rows of a scan that are read without letting go of the store."""
SKEW_MS = 60_000
"""Difference of clocks that does not count as a clock that was set back."""


class StoredRow(NamedTuple):
    """A row as bytes.

    Attributes:
        key: key of its record.
        value: value of its record.
        timestamp: time of its record in ms since the Unix epoch.
        offset: offset of its record.
    """

    key: bytes
    value: bytes
    timestamp: int
    offset: int


class PartitionRows:
    """The current rows of one partition. It may be used in any thread.

    Args:
        store: the store, which nothing else uses.
        topic_id: Kafka's id of the topic, or None if it is unknown.
        partition: number of the partition.
    """

    def __init__(self, store: Store, topic_id: str | None, partition: int) -> None:
        self._store = store
        self._identity = StoreIdentity("replica", store.topic, partition, STORE_NAME, topic_id, topic_id, 1)
        self._partition = partition
        self._lock = threading.Lock()
        self._data = self._open_store()
        self.position = 0
        # When the rows were known to be complete the last time, or reading began; ms since the Unix epoch.
        self.complete_at = 0
        self._stamped_at = 0

    @property
    def identity(self) -> StoreIdentity:
        """What the rows belong to."""
        return self._identity

    def begin(self, low: int, high: int, now_ms: int, longest_absence_ms: int) -> None:
        """Continue at the position of the store, or, if its rows may be wrong, begin again without any.

        Args:
            low: first offset of the partition.
            high: offset after its last record.
            now_ms: the time.
            longest_absence_ms: age from which on compaction may have removed deletes that were not seen.

        Raises:
            StateError: if the store cannot be used.
        """
        stamp = self._data.stamp
        reason = None if stamp is None else self.find_fault(stamp, low, high, now_ms, longest_absence_ms)
        if stamp is None or stamp.changelog_offset is None or reason is not None:
            if reason is not None:
                logger.warning("The replica of %s[%d] is read again: %s", self._store.topic, self._partition, reason)
            self.clear(low, now_ms)
        else:
            self.position, self.complete_at = stamp.changelog_offset, stamp.written_at

    def clear(self, low: int, now_ms: int) -> None:
        """Forget all rows, and begin at the first offset.

        Args:
            low: that offset.
            now_ms: the time.

        Raises:
            StateError: if the store cannot be used.
        """
        with self._lock:
            if self._data.stamp is not None:
                self._data.close()
                self._store.destroy(self._partition)
                self._data = self._store.open(self._partition)
            self.position, self.complete_at = low, now_ms

    def adopt(self, folder: Path, stamp: Stamp, low: int, now_ms: int) -> bool:
        """Take the files of a snapshot in the place of the rows, or, if they are damaged, begin at the first offset.

        Args:
            folder: the files; they are moved.
            stamp: the stamp that they must have.
            low: first offset of the partition.
            now_ms: when reading begins.

        Returns:
            Whether the rows are those of the snapshot.

        Raises:
            StateError: if the store cannot be used.
        """
        with self._lock:
            self._data.close()
            self._store.destroy(self._partition)
            try:
                self._store.adopt(self._partition, folder)
            finally:
                self._data = self._open_store()
            at = stamp.changelog_offset
            if at is not None and self._data.stamp == stamp:
                self.position, self.complete_at = at, stamp.written_at
                return True
        self.clear(low, now_ms)
        return False

    def offer(self, uploads: SnapshotUploads, folder: Path) -> None:
        """Let a snapshot of the rows be taken, if it is due.

        Args:
            uploads: takes it.
            folder: where its files are until they are uploaded.

        Raises:
            StateError: if the store is damaged, or closed.
        """
        with self._lock:
            uploads.offer(self._identity, self._data, folder)

    def apply(self, records: InputBatch) -> int:
        """Take over records, and return how many had no key and were left out.

        Raises:
            StateError: if they cannot be written.
        """
        pack = _HEAD.pack
        changes = [
            (_SPACE + key, None if value is None else pack(_VERSION, timestamp, offset) + value)
            for offset, key, value, timestamp in zip(
                records.offsets, records.keys, records.values, records.timestamps, strict=True
            )
            if key is not None
        ]
        with self._lock:
            position = records.offsets[-1] + 1
            self._data.write(changes, self._make_stamp(position))
            self.position = position
        return len(records.offsets) - len(changes)

    def keep_stamp(self, interval_ms: int) -> None:
        """Write down since when the rows are complete, if that is much newer than what is written, and begin to flush.

        Args:
            interval_ms: how much newer.

        Raises:
            StateError: if it cannot be written.
        """
        with self._lock:
            if self.complete_at - self._stamped_at >= interval_ms:
                self._data.write([], self._make_stamp(self.position))
            self._data.flush(wait=False)

    def get(self, key: bytes) -> StoredRow | None:
        """Return the row of a key, or None.

        Raises:
            StateError: if the store is damaged, or closed.
        """
        with self._lock:
            value = self._data.get(_SPACE + key)
        return None if value is None else _split_value(key, value)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[StoredRow]:
        """Yield rows in the order of the bytes of their keys. Those that change meanwhile may be old or new.

        Args:
            start: first key.
            end: key before which it ends; None means the last one.

        Raises:
            StateError: if the store is damaged, or closed.
        """
        first = _SPACE + start
        last = following_bytes(_SPACE) if end is None else _SPACE + end
        size = 10
        while True:
            rows = []
            with self._lock:
                for key, value in self._data.scan(first, last):
                    rows.append((key, value))
                    if len(rows) == size:
                        break
            for key, value in rows:
                yield _split_value(key[1:], value)
            if len(rows) < size:
                return
            first, size = rows[-1][0] + b"\x00", _CHUNK

    def approximate_size(self) -> int:
        """Return about how many bytes the rows have in the store."""
        with self._lock:
            return self._data.approximate_size()

    def approximate_count(self) -> int | None:
        """Return about how many rows there are; None if the store cannot say it."""
        with self._lock:
            return self._data.approximate_entries()

    def close(self) -> None:
        """Write down what is not written yet, and close the store.

        Raises:
            StateError: if it cannot be written.
        """
        with self._lock:
            try:
                if self._data.stamp is not None and self._store.persistent:
                    self._data.write([], self._make_stamp(self.position))
            finally:
                self._data.close()

    def _open_store(self) -> StorePartition:
        try:
            return self._store.open(self._partition)
        except StoreVersionError:
            raise
        except StoreCorruptedError as error:
            logger.warning("The replica of %s[%d] is read again: %s", self._store.topic, self._partition, error)
            self._store.destroy(self._partition)
            return self._store.open(self._partition)

    def _make_stamp(self, position: int) -> Stamp:
        self._stamped_at = self.complete_at
        return Stamp(self._identity, position, position, None, self.complete_at)

    def find_fault(self, stamp: Stamp, low: int, high: int, now_ms: int, longest_absence_ms: int) -> str | None:
        """Return why rows with a stamp do not count, or None; the arguments are those of `begin`."""
        at = stamp.changelog_offset
        if stamp.identity != self._identity:
            return "its rows are of a topic that was deleted and created again, or of another cluster"
        if at is None or at > high:
            return f"it is at offset {at}, and the topic ends at {high}"
        if at < low:
            return f"it is at offset {at}, and the topic begins at {low}"
        if now_ms < stamp.written_at - SKEW_MS:
            return "its time is in the future, so its age is unknown: the clock was set back"
        if now_ms - stamp.written_at > longest_absence_ms:
            return "it is so old that compaction may have removed deletes since"
        return None


def following_bytes(prefix: bytes) -> bytes | None:
    r"""Return the first bytes after all that begin with a prefix; None if there are none.

    Example:
        >>> following_bytes(b"ab"), following_bytes(b"a\xff"), following_bytes(b"\xff")
        (b'ac', b'b', None)
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _split_value(key: bytes, value: bytes) -> StoredRow:
    version, timestamp, offset = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise StoreVersionError(
            f"a row of the replica has format version {version}, and this StreamRT knows {_VERSION}: upgrade StreamRT, or "
            "delete the directory of the replica"
        )
    return StoredRow(key, value[_HEAD.size :], timestamp, offset)
