"""`StalledReads`: what counts as a client that has stopped reading, by a clock that the test moves."""

from collections.abc import Collection

from streamrt.kafka import KafkaRequestError
from streamrt.kafka.reading.stalled_reads import LOOK_S, StalledReads
from streamrt.records import TopicPartition

ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
SOON_S = 5.0
AWAY_S = 60.0


class World:
    """Partitions with ends, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ends = {ONE: 10, OTHER: 20}
        self.asked: list[set[TopicPartition]] = []
        self.away = False
        self.reads = StalledReads(self._ask, lambda: self.now)

    def _ask(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(set(partitions))
        if self.away:
            raise KafkaRequestError("no broker answers")
        return {partition: self.ends[partition] for partition in partitions}

    def look(self, after_s: float, **positions: int) -> dict[TopicPartition, int]:
        """Look when it is due, which is after these seconds and not before."""
        self.now += after_s - 0.1
        assert not self.reads.is_due()
        self.now += 0.1
        assert self.reads.is_due()
        return self.reads.find_stalled({ONE: positions["one"], OTHER: positions["other"]})


def test_a_partition_that_stands_still_in_front_of_records_is_found() -> None:
    world = World()
    assert world.look(LOOK_S, one=10, other=20) == {}
    assert world.asked == []
    world.ends[ONE] = 12
    assert world.look(LOOK_S, one=10, other=20) == {}
    assert world.look(SOON_S, one=10, other=20) == {ONE: 10}
    assert world.asked == [{ONE, OTHER}] * 2


def test_what_moves_is_not_asked_about_and_what_came_meanwhile_is_no_stall() -> None:
    world = World()
    world.ends = {ONE: 100, OTHER: 20}
    assert world.look(LOOK_S, one=10, other=20) == {}
    assert world.look(LOOK_S, one=11, other=20) == {}
    assert world.asked == [{OTHER}]
    assert world.look(LOOK_S, one=11, other=20) == {}
    # It was behind, and has moved since.
    assert world.look(SOON_S, one=12, other=20) == {}
    assert world.look(LOOK_S, one=13, other=20) == {}


def test_a_new_client_has_more_time_each_time_until_one_reads() -> None:
    world = World()
    world.ends[ONE] = 11
    assert world.look(LOOK_S, one=10, other=20) == {}
    for times in (1, 2, 4):
        assert world.look(times * LOOK_S, one=10, other=20) == {}
        assert world.look(SOON_S, one=10, other=20) == {ONE: 10}
    assert world.look(8 * LOOK_S, one=11, other=20) == {}
    assert world.look(LOOK_S, one=11, other=20) == {}
    world.ends[ONE] = 12
    assert world.look(LOOK_S, one=11, other=20) == {}
    assert world.look(SOON_S, one=11, other=20) == {ONE: 11}


def test_without_an_answer_nothing_is_stalled() -> None:
    world = World()
    world.ends[ONE] = 11
    assert world.look(LOOK_S, one=10, other=20) == {}
    assert world.look(LOOK_S, one=10, other=20) == {}
    world.away = True
    assert world.look(SOON_S, one=10, other=20) == {}
    world.away = False
    assert world.look(AWAY_S, one=10, other=20) == {}
    assert world.look(SOON_S, one=10, other=20) == {ONE: 10}
