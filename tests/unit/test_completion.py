"""Tokens through several `group_by`s, against a model of topics, tasks and commits in which everything may come between."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from streamrt import Application
from streamrt.models import TopicPartition
from streamrt.runtime.driver.life import completion
from streamrt.runtime.driver.life.completion import Completion, levels_below
from streamrt.topology import Topology
from tests.support import LONG
from tests.unit.apps import application

PARTITIONS = 2
INTERLEAVINGS = 100_000 if LONG else 2_500


def twice_grouped(app: Application) -> Topology:
    """Return two inputs; one is grouped twice, and meets the other one before its second grouping."""
    first = app.dataframe(app.topic("in")).group_by("a", name="a")
    first.concat(app.dataframe(app.topic("side"))).group_by("b", name="b").to_topic(app.topic("out"))
    return app.topology.resolve({"in": PARTITIONS, "side": PARTITIONS})


TOPOLOGY = twice_grouped(application())
FIRST, SECOND = TOPOLOGY.exchanges
# From which topic a task writes to which.
FEEDS = {"in": FIRST, FIRST: SECOND, "side": SECOND, SECOND: None}


@dataclass
class Log:
    """A partition: records as the input record that each comes from, None for a marker; and what readers must know."""

    records: list[int | None] = field(default_factory=list)
    first: int = 0
    # Offsets of the records of transactions whose marker is missing, by writer and number of its transaction.
    open: dict[tuple[TopicPartition, int], list[int]] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return min([*(offsets[0] for offsets in self.open.values()), len(self.records)])


class World:
    """Tasks that read, write and commit in any order. It counts the seconds, and what is durable of each input record.

    Args:
        seed: chooses what happens next.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.exactly_once = self.chance.random() < 0.5
        self.places = [TopicPartition(topic, number) for topic in FEEDS for number in range(PARTITIONS)]
        self.logs = {place: Log() for place in self.places}
        self.read = dict.fromkeys(self.places, 0)
        self.group: dict[TopicPartition, int | None] = dict.fromkeys(self.places)
        # By task, the number of its transaction; and the transactions that are committed and have no markers yet.
        self.transaction = dict.fromkeys(self.places, 0)
        self.closing: list[tuple[TopicPartition, int]] = []
        self.now = 0.0
        self.number = 0
        # Where the descendants of each input record are that are not yet committed as processed.
        self.pending: dict[int, list[tuple[TopicPartition, int]]] = {}
        self.busy = self.chance.uniform(0.5, 0.95)

    def produce(self) -> None:
        place = TopicPartition(self.chance.choice(["in", "side"]), self.chance.randrange(PARTITIONS))
        self._append(place, self.number)
        self.number += 1
        if self.exactly_once and self.chance.random() < 0.5:
            self.logs[place].records.append(None)

    def _append(self, place: TopicPartition, record: int) -> None:
        self.pending.setdefault(record, []).append((place, len(self.logs[place].records)))
        self.logs[place].records.append(record)

    def step(self) -> None:
        """Let a task read a record, commit, or crash; or markers be written, old records be deleted, or time pass."""
        place, what = self.chance.choice(self.places), self.chance.random()
        if what < 0.5:
            self._process(place)
        elif what < 0.8:
            self._commit(place)
        elif what < 0.82:
            self._crash(place)
        elif what < 0.87 and self.closing:
            self._end(self.closing.pop(self.chance.randrange(len(self.closing))))
        elif what < 0.9:
            log = self.logs[place]
            if place.topic in TOPOLOGY.exchanges:
                log.first = max(log.first, self.group[place] or 0)
        else:
            self.now += 0.3

    def _process(self, place: TopicPartition) -> None:
        log, at = self.logs[place], self.read[place]
        if at >= log.stable:
            return
        self.read[place] = at + 1
        record, topic = log.records[at], FEEDS[place.topic]
        if record is None or topic is None:
            return
        for _ in range(self.chance.choice([0, 1, 1, 2])):
            target = TopicPartition(topic, self.chance.randrange(PARTITIONS))
            if self.exactly_once:
                mine = place, self.transaction[place]
                self.logs[target].open.setdefault(mine, []).append(len(self.logs[target].records))
            self._append(target, record)

    def _commit(self, place: TopicPartition) -> None:
        at = self.read[place]
        if (self.group[place] or 0) == at:
            return
        # A task that saw only markers has nothing to commit; its driver moves the group later.
        records = self.logs[place].records[self.group[place] or 0 : at]
        if any(record is not None for record in records) or self.chance.random() < 0.1:
            self.group[place] = at
            for waiting in self.pending.values():
                waiting[:] = [each for each in waiting if not (each[0] == place and each[1] < at)]
            self.closing.append((place, self.transaction[place]))
            self.transaction[place] += 1

    def _crash(self, place: TopicPartition) -> None:
        """Let a task begin again at its commit; what its transaction has written is aborted, or else comes twice."""
        self.read[place] = self.group[place] or 0
        mine = place, self.transaction[place]
        for target, log in self.logs.items():
            for offset in log.open.get(mine, ()):
                record = log.records[offset]
                log.records[offset] = None
                if record is not None:
                    self.pending[record].remove((target, offset))
        self._end(mine)
        self.transaction[place] += 1

    def _end(self, transaction: tuple[TopicPartition, int]) -> None:
        for log in self.logs.values():
            if log.open.pop(transaction, None) is not None:
                log.records.append(None)

    def run(self) -> None:
        """Let some things happen between two answers of Kafka."""
        while self.chance.random() < self.busy:
            self.step()

    # -- What Kafka answers --------------------------------------------------------------------------------------

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        return [place for place in self.places if place.topic in topics]

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        self.run()
        found = {place: self.group[place] for place in partitions}
        self.run()
        return found

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        self.run()
        found = {}
        for place in partitions:
            found[place] = self.logs[place].first, len(self.logs[place].records)
            self.run()
        return found

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {place: self.logs[place].stable for place in partitions}
        self.run()
        return found

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        assert end <= self.logs[partition].stable
        return any(record is not None for record in self.logs[partition].records[start:end])


def lost(seed: int) -> list[int]:
    """Follow a token in a world; return the input records below it that are not durable when it says so."""
    world = World(seed)
    for _ in range(world.chance.randrange(1, 8)):
        world.produce()
        world.run()
    token = {
        place: len(world.logs[place].records)
        for place in world.places
        if place.topic in ("in", "side") and world.chance.random() < 0.8
    }
    meant = {record for place, end in token.items() for record in world.logs[place].records[:end] if record is not None}
    following = Completion(TOPOLOGY, token, world, lambda: world.now)
    for _ in range(3_000):
        if following.advance():
            return sorted(record for record in meant if world.pending[record])
        if world.chance.random() < 0.02:
            world.produce()
        world.step()
        world.now += 0.05
    raise AssertionError(f"seed {seed} does not come to an end: {following.missing}")


@pytest.mark.slow
def test_what_is_below_a_token_is_durable_behind_two_groupings() -> None:
    assert [seed for seed in range(INTERLEAVINGS) if lost(seed)] == []


def forgets_the_second_level(topology: Topology, topics: Collection[str]) -> list[list[str]]:
    return levels_below(topology, topics)[:2]


def takes_all_ends_at_once(topology: Topology, topics: Collection[str]) -> list[list[str]]:
    levels = levels_below(topology, topics)
    return [*levels[:1], [topic for level in levels[1:] for topic in level]]


@pytest.mark.parametrize("mutant", [forgets_the_second_level, takes_all_ends_at_once])
def test_mutants_of_the_levels_are_found(monkeypatch: pytest.MonkeyPatch, mutant: object) -> None:
    monkeypatch.setattr(completion, "levels_below", mutant)
    assert any(lost(seed) for seed in range(300))


def test_mutants_of_the_offsets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stable_ends(world: World, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {place: (world.logs[place].first, world.logs[place].stable) for place in partitions}

    monkeypatch.setattr(World, "bounds", stable_ends)
    assert any(lost(seed) for seed in range(2_000))


@pytest.mark.parametrize("first", [0, 3])
def test_a_rest_without_records_is_passed_unless_it_was_deleted(first: int) -> None:
    world, place = World(0), TopicPartition("in", 0)
    world.busy = 0.0
    world.group[place] = 0
    world.logs[place].records = [None] * 3
    world.logs[place].first = first
    following = Completion(TOPOLOGY, {place: 3}, world, lambda: world.now)
    assert not following.advance()
    world.now += 2.0
    # A task may be at work on what retention has deleted.
    assert following.advance() == (first == 0)
    world.group[place] = 3
    assert following.advance()


def test_levels() -> None:
    assert levels_below(TOPOLOGY, ["in"]) == [["in"], [FIRST], [SECOND]]
    assert levels_below(TOPOLOGY, ["side"]) == [["side"], [SECOND]]
    assert levels_below(TOPOLOGY, ["in", "side"]) == [["in", "side"], [FIRST], [SECOND]]
    assert levels_below(TOPOLOGY, ["in", SECOND]) == [["in"], [FIRST], [SECOND]]
    assert levels_below(TOPOLOGY, []) == []
    single = twice_grouped(application()).resolve({"in": 1, "side": 1})
    assert levels_below(single, ["in"]) == [["in"]]
