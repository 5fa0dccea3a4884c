"""What to do with dead letters: look at them, send them to their topics again, or drop them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streamrt.errors import ArgumentValueError, TopicNotFoundError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.stored import StoredReader, StoredRecord
from streamrt.kafka.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from streamrt.topics.dead_letters import DeadLetter, without_error_headers

__all__ = ["DeadLetterQueue", "Handled", "Letter"]

_TRANSACTION = 500


@dataclass(frozen=True)
class Letter:
    """A record in a topic for dead letters.

    Attributes:
        record: the record.
        why: why it is there; None if it is no dead letter.
    """

    record: StoredRecord
    why: DeadLetter | None


Selection = Callable[[Letter], bool]


@dataclass
class Handled:
    """What was done with dead letters.

    Attributes:
        done: number of dead letters that were replayed or dropped.
        left: number of those that were left, because they were not selected or have failed too often.
        exhausted: number of those that have failed too often.
        topics: number of replayed records, by topic.
    """

    done: int = 0
    left: int = 0
    exhausted: int = 0
    topics: dict[str, int] = field(default_factory=dict)


class DeadLetterQueue:
    """The dead letters of a topic that nobody has handled yet.

    What is handled is deleted from the topic. Dead letters that are left before others go to the end of their partition. A
    Kafka transaction contains both and what is sent, so nothing is lost or sent twice, wherever the process ends.

    Args:
        connection: connection to the brokers.
        topic: the topic for dead letters.
        timeout: seconds to wait for the brokers.
    """

    def __init__(self, connection: ConnectionConfig, topic: str, timeout: float = 30.0) -> None:
        self._connection = connection
        self._topic = topic
        self._timeout = timeout
        self._admin = TopicAdmin(connection)
        # Kafka forgets its offsets after a week. By then, the records below them are deleted.
        self._group = f"{topic}--handled"

    def pending(self) -> Iterator[Letter]:
        """Yield the dead letters, partition by partition.

        Raises:
            TopicNotFoundError: if the topic does not exist.
            KafkaRequestError: if the brokers refuse or do not answer.
        """
        for partition, (start, end) in self._bounds().items():
            yield from self._read(partition, start, end)

    def replay(
        self,
        selected: Selection = lambda letter: True,
        *,
        to: str | None = None,
        most_attempts: int = 3,
        limit: int = 0,
    ) -> Handled:
        """Send dead letters to the topics that they come from, without the headers that say what happened.

        They keep key, value, timestamp, headers and partition, and the number of attempts.

        Args:
            selected: which of them; by default all.
            to: another topic, whose partitions their keys decide; not the topic for dead letters itself.
            most_attempts: leave those that have failed as often; 0 for no limit.
            limit: number of dead letters after which to stop; 0 for no limit.

        Raises:
            ArgumentValueError: if they would be sent to the topic for dead letters itself.
            TopicNotFoundError: if a topic does not exist.
            KafkaRequestError: if the brokers refuse or do not answer.
            TransactionError: if the transaction fails, for example since another process handles the dead letters, too.
        """
        if to == self._topic:
            raise self._own_topic()
        handled = Handled()

        def wanted(letter: Letter) -> bool:
            if letter.why is None or not selected(letter):
                return False
            if most_attempts and letter.why.attempt >= most_attempts:
                handled.exhausted += 1
                return False
            return True

        def send(writer: KafkaTransactionalWriter, letter: Letter) -> None:
            record, why = letter.record, letter.why
            headers = without_error_headers(record.headers, keep_attempt=True)
            if to is not None:
                writer.produce(to, record.value, record.key, record.timestamp, headers)
            elif why is not None:
                writer.produce(why.topic, record.value, record.key, record.timestamp, headers, why.partition)

        offsets = self._select(wanted, limit, handled, to)
        self._require(handled.topics)
        self._handle(offsets, send)
        return handled

    def drop(self, selected: Selection = lambda letter: True, *, limit: int = 0) -> Handled:
        """Delete dead letters.

        Args:
            selected: which of them; by default all.
            limit: number of dead letters after which to stop; 0 for no limit.

        Raises:
            TopicNotFoundError: if the topic does not exist.
            KafkaRequestError: if the brokers refuse or do not answer.
            TransactionError: if the transaction fails, for example since another process handles the dead letters, too.
        """
        handled = Handled()
        self._handle(self._select(selected, limit, handled, ""), None)
        return handled

    def _select(
        self, selected: Selection, limit: int, handled: Handled, to: str | None
    ) -> dict[TopicPartition, set[int]]:
        """Return the offsets of the dead letters to handle, and count them."""
        chosen: dict[TopicPartition, set[int]] = {}
        for letter in self.pending():
            if not selected(letter):
                handled.left += 1
                continue
            chosen.setdefault(TopicPartition(self._topic, letter.record.partition), set()).add(letter.record.offset)
            handled.done += 1
            if to is None and letter.why is not None:
                handled.topics[letter.why.topic] = handled.topics.get(letter.why.topic, 0) + 1
            if handled.done == limit:
                break
        if to and chosen:
            handled.topics[to] = handled.done
        return chosen

    def _handle(
        self, offsets: dict[TopicPartition, set[int]], send: Callable[[KafkaTransactionalWriter, Letter], None] | None
    ) -> None:
        """Handle the dead letters at offsets, and move those before the last of them that are to stay."""
        if not offsets:
            return
        bounds = self._bounds()
        with contextlib.ExitStack() as stack:
            writer: KafkaTransactionalWriter | None = None
            for partition, chosen in offsets.items():
                end = max(chosen) + 1
                letters = self._read(partition, bounds[partition][0], end)
                while part := list(itertools.islice(letters, _TRANSACTION)):
                    if writer is None or not writer.usable:
                        writer = self._writer()
                        stack.callback(writer.close)
                    for letter in part:
                        if letter.record.offset not in chosen:
                            self._keep(writer, letter)
                        elif send is not None:
                            send(writer, letter)
                    writer.commit({partition: part[-1].record.offset + 1})
                self._admin.delete_records({partition: end}, self._timeout)
        # The brokers begin another one once readers see the whole of the transaction before it.
        self._writer().close()

    def _keep(self, writer: KafkaTransactionalWriter, letter: Letter) -> None:
        record = letter.record
        writer.produce(self._topic, record.value, record.key, record.timestamp, record.headers, record.partition)

    def _read(self, partition: TopicPartition, start: int, end: int) -> Iterator[Letter]:
        with contextlib.closing(StoredReader(self._connection)) as reader:
            for record in reader.read(partition, start, end, timeout_s=self._timeout):
                yield Letter(record, DeadLetter.of(record.headers))

    def _bounds(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset that is not handled and the end, by partition."""
        config = self._admin.inspect_topics([self._topic], self._timeout)[self._topic]
        if config is None:
            raise TopicNotFoundError(f"there is no topic {self._topic!r}")
        partitions = [TopicPartition(self._topic, number) for number in range(config.num_partitions or 0)]
        bounds = self._admin.offset_bounds(partitions, self._timeout, isolation_level="read_committed")
        committed = self._admin.committed_stable(self._group, partitions, self._timeout)
        found = {}
        for partition in partitions:
            low, end = bounds[partition]
            found[partition] = (max(low, committed[partition].offset or 0), end)
        # What a process has handled that died before it deleted it.
        handled = {partition: start for partition, (start, _) in found.items() if start > bounds[partition][0]}
        if handled:
            self._admin.delete_records(handled, self._timeout)
        return found

    def _require(self, targets: dict[str, int]) -> None:
        if self._topic in targets:
            raise self._own_topic()
        for name, config in self._admin.inspect_topics(list(targets), self._timeout).items():
            if config is None:
                raise TopicNotFoundError(f"there is no topic {name!r}, which {targets[name]} dead letters are for")

    def _own_topic(self) -> ArgumentValueError:
        return ArgumentValueError(
            f"dead letters cannot be sent to {self._topic}, the topic that they are in: they would come back to it without "
            "their reasons; name another topic"
        )

    def _writer(self) -> KafkaTransactionalWriter:
        """Return a writer that no other process can use at the same time."""
        writer = KafkaTransactionalWriter(self._connection, self._group, self._group)
        try:
            writer.init(self._timeout, self._topic)
        except BaseException:
            writer.close()
            raise
        return writer
