"""The life cycle of an application under test: what `TopologyTestDriver` pauses, commits and waits for."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from streamrt.errors import ApplicationTimeoutError, SinkBackpressureError
from streamrt.kafka.token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.checkpoints import Checkpoint, Checkpoints
from streamrt.runtime.driver.completion import Completion, checked_token
from streamrt.runtime.driver.event_time import EventTime
from streamrt.runtime.driver.lifecycle import ApplicationStatus, LifeCycle, RunControl, require_active
from streamrt.runtime.driver.paused import moved_topics, unread_topics
from streamrt.runtime.driver.waits import why_late
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.feeding import Feeding
from streamrt.testing.memory import WrittenRecord
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["Arrival", "DriverLife"]


@dataclass(eq=False)
class Arrival:
    """Records that have come, and are not processed yet.

    Attributes:
        partition: their partition.
        offset: the offset of the first one.
        records: the records.
        kept: whether they stay in their topic if a sink pauses; otherwise they have never been there.
    """

    partition: TopicPartition
    offset: int
    records: tuple[WrittenRecord, ...]
    kept: bool = False


class DriverLife(abc.ABC):
    """Moves an application under test through its life cycle: `TopologyTestDriver` derives from it.

    It has the states, the transitions and the checkpoints of `Application`. Records of paused topics wait, and are processed
    in the order in which they came.
    """

    _cluster: MemoryCluster
    _declared: Topology
    _event_time: EventTime
    _feeding: Feeding
    _offsets: dict[TopicPartition, int]
    _partitions: dict[str, int]
    _positions: dict[TopicPartition, int]
    _topology: Topology

    def _live(self) -> None:
        """Enter STARTING."""
        self._closed = False
        self._arrivals: list[Arrival] = []
        self._life = LifeCycle()
        self._control = RunControl(self._life, lambda: self._declared.sources)
        self._checkpoints = Checkpoints(self._life, self._control, self._committed)
        self._life.begin()

    @abc.abstractmethod
    def _drain(self) -> None:
        """Process the records that have come, except those of paused topics, and let time pass."""

    # -- States --------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application under test: RUNNING, PAUSED, STOPPED, or FAILED after an error.

        The next record, or the next call that lets time pass, starts it again after an error.
        """
        return self._life.status

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that was asked for last: RUNNING, PAUSED or STOPPED."""
        if self._life.status is ApplicationStatus.STOPPED:
            return ApplicationStatus.STOPPED
        return ApplicationStatus.PAUSED if self._control.all_paused else ApplicationStatus.RUNNING

    @property
    def error(self) -> BaseException | None:
        """The error of the last record that failed; None once the application runs again."""
        return self._life.error

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are not read, those included that are read together with one that was paused."""
        return unread_topics(self._declared, self._control.wish)

    def start(self, paused: bool = False) -> None:
        """Start the application again after `stop()` or an error, and process the records that still wait.

        Args:
            paused: start paused: nothing is processed before `resume()`. Otherwise nothing stays paused.

        Raises:
            ApplicationStateError: if it runs already.
            StreamRTError: if a record fails.
        """
        self._life.begin()
        self._control.reset(paused=paused)
        self._run()
        with self._working():
            self._drain()

    def stop(self) -> None:
        """Stop the application. Everything that was processed is committed; further records are refused until `start()`.

        Example:
            ```python
            driver.stop()
            assert driver.status is ApplicationStatus.STOPPED
            driver.start()
            ```
        """
        if not self._life.status.is_active:
            return
        self._life.move(ApplicationStatus.STOPPING)
        try:
            self._feeding.close()
        except BaseException as error:
            self._life.end(error)
            raise
        self._life.end(None)

    def pause(self, topic: str | Topic | None = None) -> None:
        """Stop reading, as `Application.pause` does: records that are piped wait for `resume()`, and watermarks wait, too.

        Args:
            topic: an input topic, which pauses with those that are merged with it; None for all.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if it does not read the topic.

        Example:
            ```python
            driver.pause("orders")
            driver.pipe("orders", {"total": 10}, key="ann")
            assert driver.read(totals) == []
            driver.resume("orders")
            assert [record.value for record in driver.read(totals)] == [10]
            ```
        """
        require_active(self.status, "be paused")
        self._control.pause(moved_topics("pause", topic, self._declared, self._control.wish))
        self._follow()

    def resume(self, topic: str | Topic | None = None) -> None:
        """Read again after a pause, and process the records that have waited, in the order in which they came.

        Args:
            topic: an input topic; None for all.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if it does not read the topic.
            SinkBackpressureError: if a sink pauses the partition; the record still waits, and the next call goes on with it.
            StreamRTError: if a record fails. The records behind it are processed with the next call.
        """
        require_active(self.status, "be resumed")
        self._control.resume(moved_topics("resume", topic, self._declared, self._control.wish))
        self._follow()
        with self._working():
            self._drain()

    # -- Checkpoints and tokens ----------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint with the committed offset of each partition, as `Application.checkpoint` does.

        All that was processed is committed in the driver.

        Raises:
            ApplicationStateError: if the application does not run.

        Example:
            ```python
            driver.pipe("orders", {"total": 10})
            assert driver.checkpoint().offsets["orders", 0] == 1
            ```
        """
        require_active(self.status, "checkpoint")
        number = self._checkpoints.request()
        self._control.fulfilled(self._control.wish)
        return self._checkpoints.status(number)

    def wait_for(self, token: Offsets | str) -> None:
        """Return if all records below a token are processed, through every `group_by`, as `Application.wait_for` does.

        The driver processes a record while it is piped, so there is nothing to wait for: what is missing then does not come.

        Args:
            token: the next offset of input partitions, or its text.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: if records are missing. It says which partitions are behind, and if they are paused.
            ArgumentValueError: if the token is another text, or has a topic or partition that the application does not read.
            StaleTokenError: if the token is one of another driver, or of a cluster.
        """
        require_active(self.status, "wait for a token")
        view = _Offsets(self._cluster, self._partitions, self._offsets, self._positions)
        completion = Completion(self._topology, checked_token(token, self._topology, view, "wait_for"), view)
        if not completion.advance():
            all_paused = self.desired_status is ApplicationStatus.PAUSED
            why = why_late(completion.missing, self.paused_topics, all_paused=all_paused)
            raise ApplicationTimeoutError("; ".join(["the application is behind", *why]))

    # -- For the driver ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Enter RUNNING, or PAUSED."""
        self._closed = False
        self._checkpoints.forget()
        self._control.works()
        self._follow()

    def _follow(self) -> None:
        """Fulfil the current wish: the tasks of paused topics wait, and hold back watermarks."""
        waiting = self._waiting
        topics = [topic for topic in self._topology.sources if topic not in waiting]
        self._event_time.ready(
            {
                self._topology.task(TopicPartition(topic, number))
                for topic in topics
                for number in range(self._partitions[topic])
            }
        )
        self._event_time.at_end()
        self._control.fulfilled(self._control.wish)

    def _require_started(self, what: str) -> None:
        """Raise if the application is stopped; start it again if it has failed, or was closed."""
        if self._life.status is ApplicationStatus.FAILED or (self._closed and not self._life.status.is_active):
            self._control.again()
            self._life.begin()
            self._run()
        require_active(self.status, what)

    @property
    def _waiting(self) -> frozenset[str]:
        """The topics whose records wait: a group_by that needs no repartition topic here may merge more of them."""
        return self.paused_topics | unread_topics(self._topology, self._control.wish)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Let an error end the application. A sink that pauses does not."""
        try:
            yield
        except SinkBackpressureError:
            raise
        except BaseException as error:
            self._life.end(error)
            raise

    def _next_arrival(self) -> int | None:
        """Return the index of the next records to process."""
        waiting = self._waiting if self._arrivals else ()
        return next((n for n, each in enumerate(self._arrivals) if each.partition.topic not in waiting), None)

    def _committed(self) -> Offsets:
        found = {
            TopicPartition(topic, number): 0 for topic, count in self._partitions.items() for number in range(count)
        }
        found.update(self._positions)
        ids = self._cluster.topic_ids({partition.topic for partition in found})
        return Offsets(found, {topic: known for topic, known in ids.items() if known is not None})


class _Offsets:
    """Implements `OffsetView` and `TopicView`: in the driver, everything that was processed is committed."""

    def __init__(
        self,
        cluster: MemoryCluster,
        counts: Mapping[str, int],
        ends: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        self._cluster = cluster
        self._counts = counts
        self._ends = ends
        self._positions = positions

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        # Tests need not declare the partitions that they pipe to.
        declared = {TopicPartition(topic, number) for topic in topics for number in range(self._counts[topic])}
        return sorted(declared | {each for each in self._ends if each.topic in topics})

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        return {each: self._positions.get(each, 0) for each in partitions}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return {each: (0, end) for each, end in self.stable_ends(partitions).items()}

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self._ends.get(each, 0) for each in partitions}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        return start < end

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        found = self._cluster.topic_ids(topics)
        return {topic: known for topic, known in found.items() if known is not None}
