"""Many records that a producer takes in one call, and what became of them.

A callback for each record is what costs most in a fast producer, and an object for each of them costs still more, because the
garbage collector looks at it. So the records of a portion share one callback, which counts. Only if a record is lost, its
number is looked up, by its value and key.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from streamrt.errors import ProducerError
from streamrt.kafka.client import error_in
from streamrt.kafka.wire import client_headers, client_timestamp
from streamrt.kafka.writing.record_writer import lost_record, refused_record
from streamrt.records import Headers

__all__ = ["Portion", "known_partitions", "produce_each"]

_HAS_BATCHES = hasattr(ConfluentProducer, "produce_batch")


class Portion:
    """Records for one topic, in order, and how many of them were accepted, delivered and lost.

    Outcomes come in the thread that polls the sender; other threads may read them meanwhile.

    Args:
        values: their values; None is a tombstone.
        keys: their keys; None if they have none.
        timestamps: their timestamps in ms since the Unix epoch; None, as a whole or of a record, is the wall clock.
        partition: the partition of all of them; without one, the key decides (murmur2), or chance.
        numbers: their numbers, which `lost` names; by default from 0 on.
        headers: their headers; None if they have none.

    Attributes:
        accepted: how many the sender has taken.
        delivered: how many brokers have.
        last: by partition, the offset of the record that was delivered last.
        lost: numbers and errors of the lost ones. Of records with equal keys and values, another one may be named.
    """

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int | None] | None = None,
        partition: int | None = None,
        numbers: range | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        self.values = values
        self.headers = headers
        self.keys = keys
        self.timestamps = timestamps
        self.partition = partition
        self.numbers = range(len(values)) if numbers is None else numbers
        self.accepted = 0
        self.delivered = 0
        self.last: dict[int | None, int | None] = {}
        self.lost: list[tuple[int, Exception]] = []
        self._taken = 0
        self._finished = False
        self._doubtful = False
        self._ended: Exception | None = None
        self._places: dict[tuple[bytes | None, bytes | None], list[int]] | None = None
        self._also: Callable[[KafkaError, Message], None] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def outstanding(self) -> int:
        """How many of the accepted records are neither delivered nor lost."""
        return max(0, self.accepted - self.delivered - len(self.lost))

    @property
    def settled(self) -> bool:
        """Whether nothing more will become known."""
        return self._finished and not self._doubtful and not self.outstanding

    def finish(self, doubtful: bool = False) -> None:
        """Note that no more records are offered.

        Args:
            doubtful: whether an interrupt leaves open how many were accepted.
        """
        self._finished, self._doubtful = True, doubtful

    def end(self, error: Exception) -> None:
        """Have records that are reported as lost from now on be lost for another reason."""
        self._ended = error

    def take_losses(self) -> list[tuple[int, Exception]]:
        """Return the lost records since the last call, with their numbers."""
        lost = self.lost[self._taken :]
        self._taken += len(lost)
        return lost

    def release(self) -> None:
        """Forget the records; their outcome is kept."""
        self.values, self.keys, self.timestamps, self.headers = (), None, None, None
        self._places, self._also = None, None

    def offer(
        self,
        producer: ConfluentProducer,
        topic: str,
        on_error: Callable[[KafkaError, Message], None] | None = None,
    ) -> tuple[int, KafkaError] | None:
        """Hand over what the queue of a producer takes; `accepted` counts it.

        The order is kept: once the queue is full, no later record is taken.

        Args:
            producer: the producer.
            topic: target topic.
            on_error: function of records that are lost later.

        Returns:
            The first record that was refused, by its place, and why; None if all were taken, or the queue is full.
        """
        self._also = on_error
        if _HAS_BATCHES and self.timestamps is None and self.headers is None:
            return self._offer_batch(producer, topic)
        return self._offer_each(producer, topic)

    def refusal(self, topic: str, place: int, reason: KafkaError) -> ProducerError:
        """Return the error for a record that the client refused."""
        return refused_record(topic, self.values[place], None if self.keys is None else self.keys[place], reason)

    def record_outcome(self, place: int, error: Exception | None, partition: int, offset: int, timestamp: int) -> None:
        """Note the outcome of one record, for senders that take one after the other.

        Args:
            place: its place in the portion.
            error: why it was lost, or None.
            partition: its partition.
            offset: its offset.
            timestamp: its timestamp.
        """
        if error is None:
            self.last[partition] = offset
            self.delivered += 1
        else:
            self.lost.append((self.numbers[place], self._ended or error))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        # For each record: nothing else belongs here.
        if error is None:
            self.last[message.partition()] = message.offset()
            self.delivered += 1
        else:
            self._record_loss(error, message)

    def _record_loss(self, error: KafkaError, message: Message) -> None:
        if self._places is None:
            self._places = {}
            for place in reversed(range(len(self.values))):
                key = None if self.keys is None else self.keys[place]
                self._places.setdefault((self.values[place], key), []).append(place)
        places = self._places.get((message.value(), message.key()))
        place = places.pop() if places else 0
        self.lost.append((self.numbers[place], self._ended or lost_record(message, error)))
        if self._also is not None:
            self._also(error, message)

    def _offer_batch(self, producer: ConfluentProducer, topic: str) -> tuple[int, KafkaError] | None:
        begin = self.accepted
        values = self.values[begin:] if begin else self.values
        records: list[dict[str, Any]]
        if self.keys is None:
            records = [{"value": value} for value in values]
        else:
            records = [{"value": value, "key": key} for value, key in zip(values, self.keys[begin:], strict=True)]
        partition = -1 if self.partition is None else self.partition
        taken = producer.produce_batch(topic, records, partition, on_delivery=self._on_delivery)
        self.accepted += taken
        if taken == len(records):
            return None
        for place, record in enumerate(records, begin):
            error = record.get("_error")
            if error is not None and error.code() != KafkaError._QUEUE_FULL:
                return place, error
        return None

    def _offer_each(self, producer: ConfluentProducer, topic: str) -> tuple[int, KafkaError] | None:
        partition = -1 if self.partition is None else self.partition
        for place in range(self.accepted, len(self)):
            key = None if self.keys is None else self.keys[place]
            timestamp = None if self.timestamps is None else self.timestamps[place]
            headers: dict[str, Any] = {}
            if self.headers is not None:
                headers["headers"] = client_headers(self.headers[place], topic)
            try:
                producer.produce(
                    topic,
                    self.values[place],
                    key,
                    partition,
                    on_delivery=self._on_delivery,
                    timestamp=client_timestamp(timestamp, topic),
                    **headers,
                )
            except BufferError:
                return None
            except KafkaException as error:
                return place, error_in(error)
            self.accepted += 1
        return None


def produce_each(produce: Callable[..., None], topic: str, portion: Portion) -> None:
    """Produce the records of a portion by a function for one, as the methods `produce` of senders are.

    Args:
        produce: the function.
        topic: target topic.
        portion: the records; it is told what becomes of them.
    """
    for place in range(portion.accepted, len(portion)):
        produce(
            topic,
            portion.values[place],
            None if portion.keys is None else portion.keys[place],
            None if portion.timestamps is None else portion.timestamps[place],
            None if portion.headers is None else portion.headers[place],
            partition=portion.partition,
            on_delivery=functools.partial(portion.record_outcome, place),
        )
        portion.accepted += 1


def known_partitions(producer: ConfluentProducer, topic: str, timeout: float) -> int | None:
    """Return how many partitions a topic has now; None if it does not exist, or brokers do not answer in time.

    A producer refuses records for partitions that it does not know, and asks by itself only each few minutes.

    Args:
        producer: the producer, which knows them from then on.
        topic: the topic.
        timeout: seconds to wait.
    """
    try:
        found = producer.list_topics(topic, timeout).topics[topic]
    except (KafkaException, KeyError):
        return None
    return len(found.partitions) or None
