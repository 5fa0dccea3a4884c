"""At least once: what becomes of changelog records whose writers had lost the partition.

Nothing fences these writers: a process that stood still for a while may deliver what it had produced before. Each record
tells the *epoch* of its writer (`streamrt.state.changelog`), so that

- restores pass over records of a lower epoch than one before them in the log;
- a writer that meets records of a higher epoch knows that it is not the owner any more;
- the owner writes the values of all keys again that others have touched, from its own store.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from streamrt.errors import TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.models.headers import EPOCH_HEADER, Headers
from streamrt.runtime.clients import ChangelogRecords, RecordWriter, TaskClients
from streamrt.state import POSITION_KEY, Position, StorePartition

__all__ = ["EpochFilter", "defend", "epoch_headers", "refuse_later_owner", "set_right"]

logger = logging.getLogger("streamrt")

_TRIALS = 5


class EpochFilter:
    """Passes over records of writers that had lost the partition.

    Args:
        newest: highest epoch of the records before.

    Attributes:
        newest: highest epoch so far; None if no record had one.
        passed_over: the keys of the records that do not count.
    """

    def __init__(self, newest: bytes | None = None) -> None:
        self.newest = newest
        self.passed_over: set[bytes] = set()

    def take(self, records: ChangelogRecords) -> Iterable[tuple[bytes, bytes | None]]:
        """Return keys and values of the records that count."""
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
    """Return the headers of changelog records of a writer."""
    return None if epoch is None else [(EPOCH_HEADER, epoch)]


def refuse_later_owner(place: TopicPartition, found: bytes | None, own: bytes | None) -> None:
    """Refuse to work on a partition that another process has claimed later.

    Args:
        place: the partition.
        found: highest epoch in the changelog.
        own: our epoch; None exactly once, where nobody writes without being the owner.

    Raises:
        TransactionError: if the other one is higher.
    """
    if own is not None and found is not None and found > own:
        raise TransactionError(
            f"another process has taken {place} over, and has written to its changelog; if there is none, the clock of this "
            "machine is behind: set it",
            fenced=True,
        )


def keys_of_others(clients: TaskClients, log: TopicPartition, start: int, end: int, own: bytes) -> set[bytes]:
    """Return the keys of all records in a range of a changelog, some of which are others'.

    Raises:
        TransactionError: if one of the others has claimed the partition later.
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
    """Write the values of keys again that others have written to a changelog, until no record of theirs is behind ours.

    Args:
        clients: Kafka.
        writer: where changelog records go.
        log: the changelog partition.
        end: where it ends, as far as it was looked at.
        keys: the keys.
        value_of: returns the value of a key; None deletes.
        position: the position record that the values belong to; None without one.
        own: our epoch.

    Returns:
        Where the changelog ends now.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if the records were not delivered.
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
            raise KafkaRequestError(f"changelog {log} was not set right: {errors[0]}", retriable=True)
        expected = end + len(records)
        _, high = clients.bounds(log)
        if high == expected:
            return high
        refuse_loss(log, expected, high)
        keys, end = keys_of_others(clients, log, end, high, own), high
    raise TransactionError(f"others write to changelog {log} again and again", fenced=True)


def defend(
    clients: TaskClients,
    writer: RecordWriter,
    log: TopicPartition,
    written: tuple[int, int],
    prepared: Sequence[tuple[bytes, bytes | None]],
    partition: StorePartition,
    position: bytes,
    own: bytes,
) -> int:
    """See to it that a changelog says what a store will: nobody else has written since the last commit, or we did last.

    Args:
        clients: Kafka.
        writer: where changelog records go; it is flushed.
        log: the changelog partition.
        written: where the records of the commit begin and end, if nobody else has written.
        prepared: the changes of the commit.
        partition: the store partition without these changes.
        position: the position record of the commit.
        own: our epoch.

    Returns:
        How many offsets there are now from the beginning of the commit to the end of the changelog.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if the changelog cannot be looked at, or set right.
    """
    start, expected = written
    _, high = clients.bounds(log)
    if high == expected:
        return expected - start
    refuse_loss(log, expected, high)
    keys = keys_of_others(clients, log, start, high, own)
    logger.warning(
        "changelog %s: %d records of another writer came in between, such as a process that believes to own the partition "
        "still; writing our own values again",
        log,
        high - expected,
    )
    changes = dict(prepared)

    def value_of(key: bytes) -> bytes | None:
        return changes[key] if key in changes else partition.get(key)

    return write_again(clients, writer, log, high, keys, value_of, position, own) - start


def set_right(
    clients: TaskClients,
    writer: RecordWriter,
    log: TopicPartition,
    end: int,
    passed_over: Collection[bytes],
    partition: StorePartition,
    own: bytes,
) -> int:
    """Write the values of keys again whose last records in a changelog do not count.

    Args:
        clients: Kafka.
        writer: where changelog records go.
        log: the changelog partition.
        end: where it ends.
        passed_over: the keys.
        partition: the store partition, restored.
        own: our epoch.

    Returns:
        Where the changelog ends now.

    Raises:
        TransactionError: if another process has claimed the partition later.
        KafkaRequestError: if the records were not delivered.
    """
    keys = set(passed_over) - {POSITION_KEY}
    logger.warning(
        "changelog %s: the records of %d keys come from a writer that had lost the partition; writing the right values again",
        log,
        len(keys),
    )
    # The last position record may lie before what was replayed, and compaction drops it for the one of a stale writer.
    position = None if partition.stamp is None else Position.of(partition.stamp)
    encoded = None if position is None else position.encode()
    return write_again(clients, writer, log, end, keys, partition.get, encoded, own)


def refuse_loss(log: TopicPartition, expected: int, high: int) -> None:
    """Refuse a changelog that ends before records that were delivered.

    Raises:
        KafkaRequestError: if it does.
    """
    if high < expected:
        raise KafkaRequestError(
            f"changelog {log} ends at {high}, though {expected - high} more records were delivered to it",
            retriable=True,
        )
