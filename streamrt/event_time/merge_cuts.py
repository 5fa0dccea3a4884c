"""The driver's cuts for merges behind exchanges: asks Kafka for the ends of topics, and how far other instances are."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from streamrt.event_time.event_time import StepClock
from streamrt.event_time.exchange_cuts import EndQuestions, ExchangeCut, UpstreamProgress, idle_timeouts
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.partition_offsets import IsolationLevelName
from streamrt.records import TopicPartition
from streamrt.topology import Topology

__all__ = ["MergeCuts"]

logger = logging.getLogger("streamrt")

_COMMITS_EVERY_S = 0.5
_TIMEOUT_S = 2.0
_MARGIN_MS = 3_000
_UNKNOWN_S = 30.0


class Admin(Protocol):
    """Requests of cuts to Kafka; implemented by `TopicAdmin`."""

    def offset_bounds(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: IsolationLevelName = "read_uncommitted",
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions."""

    def offset_ends(
        self, stable: Collection[TopicPartition], high: Collection[TopicPartition], timeout: float = 30
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Return the last stable offsets of partitions, and the high watermarks of others."""

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""


class MergeCuts:
    """Makes cuts. While no broker answers, they wait.

    Args:
        admin: sends requests to Kafka.
        group: the consumer group.
        topology: the operators, resolved.
        partitions: number of partitions by topic.
        commit_interval: seconds between two commits of other instances, at most. None: merges wait for each commit.
        clock: returns seconds; only differences count.
        transactional: whether tasks produce in transactions.
    """

    def __init__(
        self,
        admin: Admin,
        group: str,
        topology: Topology,
        partitions: Mapping[str, int],
        commit_interval: float | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        transactional: bool = True,
    ) -> None:
        self._transactional = transactional
        self._admin = admin
        self._group = group
        self._topology = topology
        self._partitions = partitions
        self.streams = tuple(topology.awaited_exchanges)
        before = frozenset[str]().union(*map(topology.topics_before, self.streams))
        patience_ms = None if commit_interval is None else int(commit_interval * 1_000) + _MARGIN_MS
        self._progress = UpstreamProgress(idle_timeouts(topology, before), patience_ms)
        self._cuts: dict[str, ExchangeCut] = {}
        self._clock, self._steps, self._now_ms = clock, StepClock(), 0
        self._commits_at = float("-inf")
        # Since when Kafka has not said the ends of topics, or since the last warning of it.
        self._unknown_since: float | None = None
        # Never held during a request.
        self._lock = threading.Lock()

    def assign(self, own: Iterable[TopicPartition]) -> None:
        """Set the input partitions that this process owns."""
        with self._lock:
            self._progress.assign(own)

    def note(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that the outputs of all records of input partitions below these offsets are durable."""
        with self._lock:
            self._progress.note(positions)

    def begin(self, stream: str) -> bool:
        """Begin a cut for a stream, unless one is under way; return whether it has begun."""
        with self._lock:
            if stream in self._cuts:
                return False
            self._cuts[stream] = ExchangeCut(
                self._topology, self._partitions, stream, transactional=self._transactional
            )
            return True

    @property
    def active(self) -> bool:
        """Whether a cut is under way."""
        return bool(self._cuts)

    def step(self, *, working: bool = True) -> dict[str, Mapping[TopicPartition, int]]:
        """Carry all cuts on as far as possible.

        Args:
            working: whether the tasks of this process can work; otherwise, no time passes for idle timeouts.

        Returns:
            The completed cuts: up to where merges read their inputs, by stream.
        """
        passed = self._steps.step(self._clock())
        self._now_ms += passed if working else 0
        done: dict[str, Mapping[TopicPartition, int]] = {}
        try:
            self._read_commits()
            asked: list[EndQuestions] | None = None
            while True:
                with self._lock:
                    done |= self._advance_cuts()
                    cuts = list(self._cuts.values())
                    questions = [cut.questions() for cut in cuts]
                    had_reached = self._progress.snapshot()
                if not any(questions) or questions == asked:
                    break
                asked = questions
                partitions = (
                    _unite_groups(each.stable for each in questions),
                    _unite_groups(each.high for each in questions),
                )
                stable, high = self._admin.offset_ends(*partitions, timeout=_TIMEOUT_S)
                with self._lock:
                    for cut, own in zip(cuts, questions, strict=True):
                        cut.answer(own, stable, high, had_reached)
        except KafkaRequestError as error:
            self._note_unknown(error)
        else:
            self._unknown_since = None
        self._warn_of_waiting()
        return done

    def _advance_cuts(self) -> dict[str, Mapping[TopicPartition, int]]:
        now_ms = self._now_ms
        done = {
            stream: cut.ends
            for stream, cut in self._cuts.items()
            if cut.advance(lambda partition, end: self._progress.reached(partition, end, now_ms))
        }
        for stream in done:
            del self._cuts[stream]
        return done

    def _read_commits(self) -> None:
        """Read from time to time how far the tasks of other instances are."""
        now = self._clock()
        with self._lock:
            upstream = _unite_groups(cut.upstream for cut in self._cuts.values())
            foreign = self._progress.foreign(upstream)
        if not foreign or now < self._commits_at:
            return
        self._commits_at = now + _COMMITS_EVERY_S
        committed = self._admin.committed_now(self._group, foreign, timeout=_TIMEOUT_S)
        bounds = self._admin.offset_bounds(foreign, timeout=_TIMEOUT_S, isolation_level="read_committed")
        commits = {}
        for partition, (low, end) in bounds.items():
            position = committed[partition].offset
            # Without a commit there may be records with which its owner begins.
            commits[partition] = low if position is None else position, end
        with self._lock:
            self._progress.note_commits(commits, self._now_ms)

    def _note_unknown(self, error: KafkaRequestError) -> None:
        now = self._clock()
        if self._unknown_since is None:
            self._unknown_since = now
        lasting = now - self._unknown_since >= _UNKNOWN_S
        logger.log(
            logging.WARNING if lasting else logging.DEBUG,
            "merges behind exchanges wait, because the ends of topics, or commits, are unknown: %s",
            error,
        )
        if lasting:
            self._unknown_since = now

    def _warn_of_waiting(self) -> None:
        with self._lock:
            ignored = self._progress.drain_ignored()
        if ignored:
            logger.warning(
                "merges go on without waiting for %s, which have not been processed further for their idle timeout, although "
                "they have unprocessed records: older records of theirs that come later will be late for joins; see "
                "joins-behind-group-by.md",
                ", ".join(map(str, sorted(ignored))),
            )


def _unite_groups(groups: Iterable[frozenset[TopicPartition]]) -> frozenset[TopicPartition]:
    return frozenset[TopicPartition]().union(*groups)
