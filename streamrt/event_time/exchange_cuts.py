"""Cuts for a merge behind exchanges: it waits for the records that are on their way to it inside the application.

A merge takes the oldest of the next records of its inputs. If an input is a repartition topic, an older record may still be
in front of the exchange. So records that a task has read for a merge wait for a *cut*: the driver looks up the ends of all
topics in front of the exchanges, after the records were read. When the tasks there have processed everything below these
ends, and their outputs are durable, it looks up the ends of the repartition topics. All records that were in the input
topics before are below these ends, whatever their order and their timestamps.

Most of the time, those tasks are at their ends already. So the first questions are for all ends at once, and those of the
repartition topics count if the tasks had come far enough before they were asked for.

A cut follows chains of exchanges, topic by topic. `UpstreamProgress` knows how far tasks are, and stops waiting for those
that do not move for the idle timeout. `docs/decisions/0033-merges-behind-exchanges.md` has the reasons.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from streamrt.records import TopicPartition
from streamrt.topology import SourceOperator, Topology, WatermarkStrategy

__all__ = ["EndQuestions", "ExchangeCut", "UpstreamProgress", "idle_timeouts"]

_DEFAULT_IDLE_MS = WatermarkStrategy().idle_ms
_UNKNOWN = 3
"""How many idle timeouts to wait for a task whose stores are not open yet."""


class EndQuestions(NamedTuple):
    """The end offsets that a cut needs now.

    Attributes:
        stable: partitions whose last stable offset is needed.
        high: partitions whose high watermark is needed: records of open transactions count.
    """

    stable: frozenset[TopicPartition]
    high: frozenset[TopicPartition]

    def __bool__(self) -> bool:
        return bool(self.stable or self.high)


class ExchangeCut:
    """One cut for the merge of a stream.

    Args:
        topology: the operators, resolved.
        partitions: number of partitions by topic.
        stream: a stream with awaited exchanges.
        transactional: whether records of repartition topics are in transactions.
    """

    def __init__(
        self, topology: Topology, partitions: Mapping[str, int], stream: str, *, transactional: bool = True
    ) -> None:
        self._partitions = partitions
        self._transactional = transactional
        self._feeding = topology.feeding_topics
        self._before = topology.topics_before(stream)
        awaited = topology.awaited_exchanges[stream]
        # Input topics of the merge that are not awaited exchanges are read to the ends that they had first.
        self._targets = tuple(
            topic for topic in topology.streams[stream] if topic in awaited or not self._is_fed(topic)
        )
        self._ends: dict[TopicPartition, int] = {}
        self._stable: set[TopicPartition] = set()
        self._passed: set[str] = set()

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The offsets up to which the merge reads its inputs; complete after `advance` has returned True."""
        return {each: self._ends[each] for topic in self._targets for each in self._topic_partitions(topic)}

    @property
    def upstream(self) -> frozenset[TopicPartition]:
        """The input partitions of the tasks that the cut waits for."""
        return frozenset(each for topic in self._before for each in self._topic_partitions(topic))

    def questions(self) -> EndQuestions:
        """Return the end offsets that are needed now, to be looked up after this call."""
        stable: set[TopicPartition] = set()
        high: set[TopicPartition] = set()
        is_first = not self._ends
        for topic in {*self._before, *self._targets}:
            unknown = [each for each in self._topic_partitions(topic) if each not in self._ends]
            if not self._is_fed(topic):
                stable.update(unknown)
            elif is_first or self._passed.issuperset(self._feeding[topic]):
                high.update(unknown)
                if topic in self._targets and self._transactional:
                    stable.update(each for each in self._topic_partitions(topic) if each not in self._stable)
        return EndQuestions(frozenset(stable), frozenset(high))

    def answer(
        self,
        asked: EndQuestions,
        stable: Mapping[TopicPartition, int],
        high: Mapping[TopicPartition, int],
        had_reached: Callable[[TopicPartition, int], bool],
    ) -> None:
        """Add the answers to `questions`.

        Args:
            asked: the questions.
            stable: the last stable offsets.
            high: the high watermarks.
            had_reached: like `reached` of `advance`, for the moment before the questions were sent.
        """
        for each in asked.stable:
            if not self._is_fed(each.topic):
                self._ends[each] = stable[each]
                self._stable.add(each)
        topics = {each.topic for each in asked.high}
        while ready := {each for each in topics if self._had_passed(self._feeding[each], had_reached)}:
            topics -= ready
            for each in asked.high:
                if each.topic in ready:
                    self._ends[each] = high[each]
                    if not self._transactional:
                        self._stable.add(each)
        for each in asked.stable:
            # What is below may be part of an open transaction: then no one can read it yet.
            if each in self._ends and stable[each] >= self._ends[each]:
                self._stable.add(each)

    def advance(self, reached: Callable[[TopicPartition, int], bool]) -> bool:
        """Note which tasks have come far enough; return whether the cut is complete.

        Args:
            reached: returns whether the outputs of all records of an input partition below an offset are durable.
        """
        for topic in self._before - self._passed:
            parts = self._topic_partitions(topic)
            if not all(each in self._ends for each in parts):
                continue
            # Ask about all, so that the waits for all of them begin now.
            behind = [each for each in parts if not reached(each, self._ends[each])]
            if not behind:
                self._passed.add(topic)
        return all(each in self._stable for topic in self._targets for each in self._topic_partitions(topic))

    def _had_passed(self, topics: Iterable[str], had_reached: Callable[[TopicPartition, int], bool]) -> bool:
        """Return whether the ends behind these topics were asked for when the tasks had come far enough."""
        return all(
            topic in self._passed
            or (
                topic in self._before
                and all(
                    each in self._ends and had_reached(each, self._ends[each]) for each in self._topic_partitions(topic)
                )
            )
            for topic in topics
        )

    def _is_fed(self, topic: str) -> bool:
        return topic in self._feeding

    def _topic_partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self._partitions[topic])]


class UpstreamProgress:
    """How far the tasks in front of exchanges are.

    Tasks of this process say so at once (`note`). Those of other instances are known from their commits, which come later. So
    a partition of another instance is waited for until its commits have reached the end that it had when this process first
    looked; then it is *current*, and waited for again only when its commits stay behind for `patience_ms`.

    Args:
        idle_ms: by topic, after how many milliseconds without progress a task is not waited for any more; None for never.
        patience_ms: how many milliseconds commits of other instances may take; None: their partitions are never current.
    """

    def __init__(self, idle_ms: Mapping[str, int | None], patience_ms: int | None) -> None:
        self._idle_ms = idle_ms
        self._patience_ms = patience_ms
        self._own: frozenset[TopicPartition] = frozenset()
        self._reached: dict[TopicPartition, int] = {}
        # The position at which a wait has begun, and when.
        self._waits: dict[TopicPartition, tuple[int | None, int]] = {}
        self._ignored: set[TopicPartition] = set()
        self._newly_ignored: list[TopicPartition] = []
        # Of other instances: the end that commits must reach, and since when.
        self._targets: dict[TopicPartition, tuple[int, int]] = {}
        self._current: set[TopicPartition] = set()

    def assign(self, own: Iterable[TopicPartition]) -> None:
        """Set the input partitions that this process owns."""
        now_own = frozenset(own)
        for partition in now_own ^ self._own:
            self._targets.pop(partition, None)
            self._waits.pop(partition, None)
            self._current.discard(partition)
        self._own = now_own

    def note(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that the outputs of all records of input partitions below these offsets are durable."""
        for partition, position in positions.items():
            former = self._reached.get(partition)
            # Outputs stay durable, although a task that restarts processes records again.
            if former is None or position > former:
                self._reached[partition] = position
                self._ignored.discard(partition)

    def foreign(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that other instances own, or that no instance owns."""
        return frozenset(partitions) - self._own

    def note_commits(self, commits: Mapping[TopicPartition, tuple[int, int]], now_ms: int) -> None:
        """Note committed offsets of other instances, each with the end of its partition."""
        for partition, (position, end) in commits.items():
            self.note({partition: position})
            if self._patience_ms is None:
                continue
            target, since = self._targets.get(partition, (end, now_ms))
            if position >= target:
                self._current.add(partition)
                target, since = end, now_ms
            elif now_ms - since > self._patience_ms:
                self._current.discard(partition)
            self._targets[partition] = target, since

    def reached(self, partition: TopicPartition, end: int, now_ms: int) -> bool:
        """Return whether a task has come to an end offset, or is not waited for.

        Args:
            partition: input partition of the task.
            end: the offset.
            now_ms: milliseconds of a clock that stands still while tasks cannot work, such as during restores.
        """
        position = self._reached.get(partition)
        if position is not None and position >= end:
            self._waits.pop(partition, None)
            return True
        if partition in self._ignored or (partition not in self._own and partition in self._current):
            return True
        at, since = self._waits.setdefault(partition, (position, now_ms))
        if at != position:
            since = now_ms
            self._waits[partition] = position, now_ms
        limit = self._limit_ms(partition, position)
        if limit is None or now_ms - since < limit:
            return False
        self._ignored.add(partition)
        self._newly_ignored.append(partition)
        return True

    def snapshot(self) -> Callable[[TopicPartition, int], bool]:
        """Return a function that returns whether a task has come to an end offset, or is not waited for, by now."""
        reached, ignored, current = dict(self._reached), set(self._ignored), self._current - self._own

        def had_reached(partition: TopicPartition, end: int) -> bool:
            return reached.get(partition, -1) >= end or partition in ignored or partition in current

        return had_reached

    def drain_ignored(self) -> list[TopicPartition]:
        """Return the partitions that are not waited for any more, since the last call."""
        found, self._newly_ignored = self._newly_ignored, []
        return found

    def _limit_ms(self, partition: TopicPartition, position: int | None) -> int | None:
        idle_ms = self._idle_ms.get(partition.topic, _DEFAULT_IDLE_MS)
        if idle_ms is None:
            return None
        if partition not in self._own:
            return max(idle_ms, self._patience_ms or 0)
        return idle_ms * (_UNKNOWN if position is None else 1)


def idle_timeouts(topology: Topology, topics: Collection[str]) -> dict[str, int | None]:
    """Return the idle timeout of each topic in milliseconds: that of its watermark strategy.

    Behind an exchange it is the longest of those in front of it. None means never.
    """
    found: dict[str, int | None] = {}

    def of(topic: str) -> int | None:
        feeding = topology.feeding_topics.get(topic)
        if feeding is None:
            operator = topology.sources[topic].operator
            strategy = operator.topic.watermark_strategy if isinstance(operator, SourceOperator) else None
            return _DEFAULT_IDLE_MS if strategy is None else strategy.idle_ms
        times = [of(each) for each in feeding]
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    for topic in topics:
        found[topic] = of(topic)
    return found
