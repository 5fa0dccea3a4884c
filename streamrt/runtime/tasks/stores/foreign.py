"""Handling of changelog records from writers that had lost the partition, with at-least-once.

Such writers are not fenced: a process that was suspended may deliver its produced records later. Each record has the
*epoch* of its writer (`streamrt.state.changelog`). Therefore

- a restore skips records with a lower epoch than a record before them in the log;
- a writer that finds records with a higher epoch knows that it is no longer the owner;
- the owner rewrites the values of all keys that others have written, from its own store.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from streamrt.errors import TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.records.headers import EPOCH_HEADER, Headers
from streamrt.runtime.tasks.task_clients import ChangelogRecords, RecordWriter, TaskClients
from streamrt.state import StorePartition
from streamrt.state.changelog import POSITION_KEY, Position

__all__ = ["EpochFilter", "check_ownership", "epoch_headers", "refuse_later_owner", "restore_overwritten_keys"]

logger = logging.getLogger("streamrt")

_TRIALS = 5


class EpochFilter:
    """Skips the records of writers that had lost the partition.

    Args:
        newest: highest epoch of earlier records.

    Attributes:
        newest: highest epoch so far; None if no record had one.
        passed_over: the keys of the skipped records.
    """

    def __init__(self, newest: bytes | None = None) -> None:
        self.newest = newest
        self.passed_over: set[bytes] = set()

    def filter(self, records: ChangelogRecords) -> Iterable[tuple[bytes, bytes | None]]:
        """Return keys and values of the records that are not skipped."""
        pairs = zip(records.keys, records.values, strict=True)
        epochs: Sequence[bytes | None] = records.epochs
        if not any(epoch is not None and epoch != self.newest for epoch in set(epochs)):
            return pairs
        kept = []
        for pair, epoch in zip(pairs, epochs, strict=True):
            if epoch is not None:
                if self.newest is not None and epoch < self.newest:
                    self.passed_over.add(pair[0])
                    continue
                self.newest = epoch
            kept.append(pair)
        return kept


def epoch_headers(epoch: bytes | None) -> Headers | None:
    """Return the headers of a writer's changelog records."""
    return None if epoch is None else [(EPOCH_HEADER, epoch)]


def refuse_later_owner(partition: TopicPartition, found: bytes | None, own: bytes | None) -> None:
    """Raise if another process has claimed the partition later.

    Args:
        partition: the partition.
        found: highest epoch in the changelog.
        own: epoch of this process; None with exactly-once, where only the owner can write.

    Raises:
        TransactionError: if `found` is higher than `own`.
    """
    if own is not None and found is not None and found > own:
        raise TransactionError(
            f"{partition} was reassigned to another process, which has written to its changelog; if there is no such "
            "process, the clock of this machine is slow: correct it",
            fenced=True,
        )


def keys_of_others(clients: TaskClients, log: TopicPartition, start: int, end: int, own: bytes) -> set[bytes]:
    """Return the keys of all records in a changelog range that contains records of other writers.

    Raises:
        TransactionError: if one of these writers has claimed the partition later.
    """
    keys: set[bytes] = set()
    for records in clients.changelog(log, start, end):
        refuse_later_owner(log, max((epoch for epoch in records.epochs if epoch is not None), default=None), own)
        keys.update(records.keys)
    return keys - {POSITION_KEY}


def write_again(
    clients: TaskClients,
    writer: RecordWriter,
    log: TopicPartition,
    end: int,
    keys: Collection[bytes],
    value_of: Callable[[bytes], bytes | None],
    position: bytes | None,
    own: bytes,
) -> int:
    """Rewrite keys that others have written to a changelog, until no record of theirs follows those of this process.

    Args:
        clients: the Kafka clients of this process.
        writer: the writer of changelog records.
        log: the changelog partition.
        end: end offset of the changelog range that was checked.
        keys: the keys.
        value_of: returns the value of a key; None deletes.
        position: the position record of these values; None if there is none.
        own: epoch of this process.

    Returns:
        The new end offset of the changelog.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if records were not delivered.
    """
    headers, now = epoch_headers(own), clients.now()
    for _ in range(_TRIALS):
        records = [(key, value_of(key)) for key in sorted(keys)]
        if position is not None:
            records.append((POSITION_KEY, position))
        for key, value in records:
            writer.produce(log.topic, value, key, now, headers, log.partition)
        errors = writer.flush()
        if errors:
            raise KafkaRequestError(f"changelog {log} was not repaired: {errors[0]}", retriable=True)
        expected = end + len(records)
        _, high = clients.bounds(log)
        if high == expected:
            return high
        refuse_loss(log, expected, high)
        keys, end = keys_of_others(clients, log, end, high, own), high
    raise TransactionError(f"other processes keep writing to changelog {log}", fenced=True)


def check_ownership(
    clients: TaskClients,
    writer: RecordWriter,
    log: TopicPartition,
    high: int,
    written: tuple[int, int],
    prepared: Sequence[tuple[bytes, bytes | None]],
    partition: StorePartition,
    position: bytes,
    own: bytes,
) -> int:
    """Make a changelog match its store: if others have written since the last commit, rewrite their keys.

    Args:
        clients: the Kafka clients of this process.
        writer: the writer of changelog records; it is flushed.
        log: the changelog partition.
        high: its end, behind what was produced.
        written: start and end offset of the commit's records, if there is no other writer.
        prepared: keys and values of the commit's changes.
        partition: the store partition without these changes.
        position: the position record of the commit.
        own: epoch of this process.

    Returns:
        The number of offsets from the start of the commit to the end of the changelog.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if the changelog cannot be checked or repaired.
    """
    start, expected = written
    if high == expected:
        return expected - start
    refuse_loss(log, expected, high)
    keys = keys_of_others(clients, log, start, high, own)
    logger.warning(
        "changelog %s: another writer added %d records, such as a process that has not noticed the loss of the "
        "partition; rewriting the values of this process",
        log,
        high - expected,
    )
    changes = dict(prepared)

    def value_of(key: bytes) -> bytes | None:
        return changes[key] if key in changes else partition.get(key)

    return write_again(clients, writer, log, high, keys, value_of, position, own) - start


def restore_overwritten_keys(
    clients: TaskClients,
    writer: RecordWriter,
    log: TopicPartition,
    end: int,
    passed_over: Collection[bytes],
    partition: StorePartition,
    own: bytes,
) -> int:
    """Rewrite the keys whose last records in a changelog were skipped.

    Args:
        clients: the Kafka clients of this process.
        writer: the writer of changelog records.
        log: the changelog partition.
        end: end offset of the changelog.
        passed_over: the keys.
        partition: the restored store partition.
        own: epoch of this process.

    Returns:
        The new end offset of the changelog.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if records were not delivered.
    """
    keys = set(passed_over) - {POSITION_KEY}
    logger.warning(
        "changelog %s: the last records of %d keys are from a writer that had lost the partition; rewriting the values",
        log,
        len(keys),
    )
    # The last position record may precede the replayed range, and compaction replaces it by that of a stale writer.
    position = None if partition.stamp is None else Position.of(partition.stamp)
    encoded = None if position is None else position.encode()
    return write_again(clients, writer, log, end, keys, partition.get, encoded, own)


def refuse_loss(log: TopicPartition, expected: int, high: int) -> None:
    """Raise if a changelog ends before delivered records.

    Raises:
        KafkaRequestError: if `high` is below `expected`.
    """
    if high < expected:
        raise KafkaRequestError(
            f"changelog {log} ends at offset {high}, but {expected - high} more records were delivered to it",
            retriable=True,
        )
