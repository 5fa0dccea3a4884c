"""Dead letters: list them, send them to their topics again, or drop them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from streamrt.common.claims import Claimed, claim
from streamrt.errors import ArgumentValueError, StaleTokenError, TopicNotFoundError, TransactionError
from streamrt.kafka import ConnectionConfig, KafkaError, KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.reading.stored import StoredReader, StoredRecord
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from streamrt.topics.dead_letters import DeadLetter, without_error_headers

__all__ = ["DeadLetterQueue", "Handled", "Letter"]

_TRANSACTION = 500


@dataclass(frozen=True)
class Letter:
    """A record in a topic for dead letters.

    Attributes:
        record: the record.
        why: why it is there; None if it is not a dead letter.
    """

    record: StoredRecord
    why: DeadLetter | None


Selection = Callable[[Letter], bool]
_Bounds = Mapping[TopicPartition, tuple[int, int]]
_Claim = Claimed[KafkaTransactionalWriter, _Bounds]


@dataclass
class Handled:
    """The result of handling dead letters.

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
    """The dead letters of a topic that no one has handled yet.

    What is handled is deleted from the topic. Dead letters that are left before others go to the end of their partition. A
    Kafka transaction contains both and what is sent, so nothing is lost or sent twice, wherever the process ends.

    One process at a time handles the dead letters of a topic: `replay` and `drop` take the transactional id of the topic
    before they read what is there, and fail as soon as another process has taken it.

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
        self._id: str | None = None

    def pending(self) -> Iterator[Letter]:
        """Yield the dead letters, partition by partition.

        Raises:
            TopicNotFoundError: if the topic does not exist.
            KafkaRequestError: if the brokers refuse or do not answer.
        """
        yield from self._iterate_letters(self._request_bounds())

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
            StaleTokenError: if the topic is deleted and created again meanwhile.
            KafkaRequestError: if the brokers refuse or do not answer.
            TransactionError: if a transaction fails; `fenced` says that another process handles the dead letters now.
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

        with self._hold_claim() as claimed:
            offsets = self._select_offsets(claimed.seen, wanted, limit, handled, to)
            self._require_targets(handled.topics)
            self._handle_letters(claimed, offsets, send)
        return handled

    def drop(self, selected: Selection = lambda letter: True, *, limit: int = 0) -> Handled:
        """Delete dead letters.

        Args:
            selected: which of them; by default all.
            limit: number of dead letters after which to stop; 0 for no limit.

        Raises:
            TopicNotFoundError: if the topic does not exist.
            StaleTokenError: if the topic is deleted and created again meanwhile.
            KafkaRequestError: if the brokers refuse or do not answer.
            TransactionError: if a transaction fails; `fenced` says that another process handles the dead letters now.
        """
        handled = Handled()
        with self._hold_claim() as claimed:
            self._handle_letters(claimed, self._select_offsets(claimed.seen, selected, limit, handled, ""), None)
        return handled

    @contextlib.contextmanager
    def _hold_claim(self) -> Iterator[_Claim]:
        """Take the id under which one process at a time handles the dead letters, and yield what is there since."""
        self._id = self._admin.topic_ids([self._topic], self._timeout)[self._topic]
        try:
            claimed = self._make_claim()
            with contextlib.closing(claimed.holder):
                yield claimed
        except (TransactionError, KafkaRequestError) as error:
            # Who reads while another process handles and deletes them finds no records at their offsets.
            if not (
                error.fenced if isinstance(error, TransactionError) else error.code == KafkaError.OFFSET_OUT_OF_RANGE
            ):
                raise
            raise TransactionError(
                f"another process handles the dead letters of {self._topic} now, and has taken over (fenced): what was "
                "handled here so far is handled once; look what is left when the other one has ended",
                fenced=True,
            ) from error

    def _make_claim(self) -> _Claim:
        return claim(self._make_writer, lambda writer: self._request_bounds())

    def _select_offsets(
        self, bounds: _Bounds, selected: Selection, limit: int, handled: Handled, to: str | None
    ) -> dict[TopicPartition, set[int]]:
        """Return the offsets of the dead letters to handle, and count them."""
        chosen: dict[TopicPartition, set[int]] = {}
        for letter in self._iterate_letters(bounds):
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

    def _handle_letters(
        self,
        claimed: _Claim,
        offsets: Mapping[TopicPartition, set[int]],
        send: Callable[[KafkaTransactionalWriter, Letter], None] | None,
    ) -> None:
        """Handle the dead letters at offsets, and move those before the last of them that are to stay."""
        if not offsets:
            return
        handled = {partition: claimed.seen[partition][0] for partition in offsets}
        with contextlib.ExitStack() as renewed:
            for partition, chosen in offsets.items():
                end = max(chosen) + 1
                letters = self._read_partition(partition, handled[partition], end)
                while part := list(itertools.islice(letters, _TRANSACTION)):
                    if not claimed.holder.usable:
                        claimed = self._renew_claim(handled)
                        renewed.enter_context(contextlib.closing(claimed.holder))
                    for letter in part:
                        if letter.record.offset not in chosen:
                            self._keep_letter(claimed.holder, letter)
                        elif send is not None:
                            send(claimed.holder, letter)
                    handled[partition] = part[-1].record.offset + 1
                    self._require_same()
                    claimed.holder.commit({partition: handled[partition]})
                self._require_same()
                self._admin.delete_records({partition: end}, self._timeout)
        # The brokers begin another one once readers see the whole of the transaction before it.
        self._make_writer().close()

    def _renew_claim(self, handled: Mapping[TopicPartition, int]) -> _Claim:
        """Take the id again after a commit with errors of the connection, unless another process has used it meanwhile.

        Args:
            handled: by partition, the first offset that is not handled.

        Raises:
            TransactionError: if another process has handled dead letters.
        """
        # First without the id, so as not to fence that process.
        self._require_unhandled(self._request_bounds(), handled)
        claimed = self._make_claim()
        try:
            self._require_unhandled(claimed.seen, handled)
        except TransactionError:
            claimed.holder.close()
            raise
        return claimed

    def _require_unhandled(self, bounds: _Bounds, handled: Mapping[TopicPartition, int]) -> None:
        if any(bounds[partition][0] != offset for partition, offset in handled.items()):
            raise TransactionError(f"another process has handled dead letters of {self._topic}", fenced=True)

    def _keep_letter(self, writer: KafkaTransactionalWriter, letter: Letter) -> None:
        record = letter.record
        writer.produce(self._topic, record.value, record.key, record.timestamp, record.headers, record.partition)

    def _iterate_letters(self, bounds: _Bounds) -> Iterator[Letter]:
        for partition, (start, end) in bounds.items():
            yield from self._read_partition(partition, start, end)

    def _read_partition(self, partition: TopicPartition, start: int, end: int) -> Iterator[Letter]:
        with contextlib.closing(StoredReader(self._connection)) as reader:
            for record in reader.read(partition, start, end, timeout_s=self._timeout):
                yield Letter(record, DeadLetter.of(record.headers))

    def _request_bounds(self) -> _Bounds:
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

    def _require_same(self) -> None:
        """Raise if the topic is another one than when its dead letters were chosen by their offsets."""
        if self._id is None:
            return
        now = confirmed_ids(self._admin.topic_ids, {self._topic: self._id}, timeout=self._timeout)[self._topic]
        if now != self._id:
            raise StaleTokenError(
                f"topic {self._topic!r} was deleted{'' if now is None else ' and created again'} while its dead letters were "
                "handled: nothing of the new topic is sent or deleted; look what is left, and begin again"
            )

    def _require_targets(self, targets: dict[str, int]) -> None:
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

    def _make_writer(self) -> KafkaTransactionalWriter:
        """Return a writer that no other process can use at the same time."""
        writer = KafkaTransactionalWriter(self._connection, self._group, self._group)
        try:
            writer.init(self._timeout, self._topic)
        except BaseException:
            writer.close()
            raise
        return writer
