"""A feed, and what it has to return."""

import random
import time

from streamrt.kafka import ConnectionConfig, Producer
from streamrt.kafka.reading.partition_feed import PartitionFeed
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.models import TopicPartition
from tests.support import Kafka, unique, wait_until


def assign(feed: PartitionFeed, positions: dict[TopicPartition, int]) -> None:
    """Read exactly these partitions, from these offsets on."""
    feed.remove(list(feed._positions))
    feed.add(positions)
    feed.resume(positions)


class World:
    """A feed with what it has to return: the values of committed records by offset, and the next offset to look at."""

    def __init__(self, kafka: Kafka, feed: PartitionFeed, places: list[TopicPartition], seed: int) -> None:
        self.feed = feed
        self.places = places
        self.random = random.Random(seed)
        self.producer = Producer(kafka.address, extra_config={"linger.ms": 0})
        self.connection = ConnectionConfig(bootstrap_servers=kafka.address)
        self.writer = self.new_writer()
        self.bounds = kafka.admin.bounds
        self.log: dict[TopicPartition, dict[int, bytes]] = {place: {} for place in places}
        self.end = dict.fromkeys(places, 0)
        self.next: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.count = 0

    def new_writer(self) -> KafkaTransactionalWriter:
        writer = KafkaTransactionalWriter(self.connection, unique("id"), unique("group"))
        writer.init(30, self.places[0].topic)
        return writer

    def some(self) -> list[TopicPartition]:
        return self.random.sample(self.places, self.random.randint(1, len(self.places)))

    def produce(self) -> None:
        place = self.random.choice(self.places)
        for _ in range(self.random.choice([1, 3, 400])):
            self.count += 1
            self.producer.produce(place.topic, b"%d" % self.count, partition=place.partition)
            self.log[place][self.end[place]] = b"%d" % self.count
            self.end[place] += 1
        self.producer.flush()

    def transact(self) -> None:
        place, commit = self.random.choice(self.places), self.random.random() < 0.5
        if not self.writer.usable:
            # A broker that takes long to answer makes a writer unusable, though its transaction was committed.
            self.writer.close()
            self.writer = self.new_writer()
        for number in range(count := self.random.choice([1, 50])):
            self.count += 1
            self.writer.produce(place.topic, b"%d" % self.count, None, 0, None, place.partition)
            if commit:
                self.log[place][self.end[place] + number] = b"%d" % self.count
        assert self.writer.flush() == []
        if commit:
            self.writer.commit({})
        else:
            self.writer.abort()
        self.end[place] += count + 1
        # The marker comes after the answer.
        wait_until(lambda: self.bounds(place)[1] == self.end[place])

    def assign(self) -> None:
        self.next = {place: self.random.randint(0, self.end[place]) for place in self.some()}
        self.paused.clear()
        assign(self.feed, self.next)

    def seek(self) -> None:
        for place in self.some():
            if place in self.next:
                self.next[place] = self.random.randint(0, self.end[place])
                self.feed.seek(place, self.next[place])

    def pause(self) -> None:
        places = self.some()
        self.paused.update(place for place in places if place in self.next)
        self.feed.pause(places)

    def resume(self) -> None:
        places = self.some()
        self.paused.difference_update(places)
        self.feed.resume(places)

    def poll(self) -> None:
        for place, batch in self.feed.poll(self.random.choice([0, 0.005, 0.03]), self.random.choice([1, 7, 1_000])):
            assert place in self.next
            assert place not in self.paused
            due = [offset for offset in self.log[place] if offset >= self.next[place]][: len(batch.offsets)]
            assert batch.offsets == due
            assert batch.values == [self.log[place][offset] for offset in due]
            self.next[place] = due[-1] + 1
        for place, end in self.feed.ends().items():
            assert not [offset for offset in self.log[place] if self.next[place] <= offset < end]

    def drain(self) -> None:
        self.feed.resume(self.places)
        self.paused.clear()
        ends = {place: self.end[place] for place in self.next}
        deadline = time.monotonic() + 150
        while self.feed.ends() != ends:
            assert time.monotonic() < deadline, (self.feed.ends(), ends, self.next)
            self.poll()
        for place in self.next:
            assert all(offset < self.next[place] for offset in self.log[place])

    def close(self) -> None:
        self.writer.close()
