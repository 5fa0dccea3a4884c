"""How far the group is behind the ends of its partitions, and which partitions make no progress.

A thread asks Kafka every few seconds, with a separate client: no task and no commit waits for it. With
`on_no_progress="fail"`, the thread of the run ends the application (`LagSampler.check`); if that thread hangs, in a call to
Spark for example, this one ends the process.
"""

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from streamrt.errors import NoProgressError, StreamRTError, reference_of
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.kafka.cluster.partition_offsets import IsolationLevelName
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.owners import url_of_member

__all__ = ["Lag", "LagAdmin", "LagSample", "LagSampler", "LoopWatch", "OtherPartition", "ProgressWatch", "Stuck"]

logger = logging.getLogger("streamrt")

_EVERY_S = 5.0
_LOOK_S = 0.5
_TIMEOUT_S = 10.0
_OTHERS_TIMEOUT_S = 3.0
_OTHERS_EVERY_S = 15.0
_OTHERS_SEEN_S = 30.0
"""The partitions of other instances are asked for as long after somebody has looked at them."""


class Lag(NamedTuple):
    """How far a partition is.

    Attributes:
        committed: the committed offset; None if there is none.
        end: the offset after the last record that can be read.
        start: where the application began, which counts while there is no committed offset; None if it is not known.
    """

    committed: int | None
    end: int
    start: int | None = None

    @property
    def offsets(self) -> int:
        """Number of offsets that are not committed; 0 if nothing says where they begin."""
        begin = self.start if self.committed is None else self.committed
        return 0 if begin is None else max(0, self.end - begin)


class OtherPartition(NamedTuple):
    """A partition of another instance of the group.

    Attributes:
        lag: how far it is.
        owner: the address of its instance: that of its control server, or the host of its member.
        url: URL of the control server; None if it has none that this machine can reach.
    """

    lag: Lag
    owner: str
    url: str | None


@dataclass(frozen=True)
class LagSample:
    """The latest answers of Kafka.

    Attributes:
        at: when, in seconds since the Unix epoch; None before the first answer.
        lags: the lag of each assigned partition.
        others: the partitions of other instances.
    """

    at: float | None = None
    lags: Mapping[TopicPartition, Lag] = field(default_factory=dict)
    others: Mapping[TopicPartition, OtherPartition] = field(default_factory=dict)


class Stuck(NamedTuple):
    """A partition without progress.

    Attributes:
        partition: the partition.
        seconds: for how long nothing was committed.
        lag: number of offsets that are not committed.
    """

    partition: TopicPartition
    seconds: float
    lag: int

    def __str__(self) -> str:
        return (
            f"{self.partition} has {self.lag} unprocessed offsets, and nothing was committed for {self.seconds:.0f} s: see "
            "the log for a sink that pauses, a function that does not return, or a broker that does not answer"
        )


class ProgressWatch:
    """Decides which partitions are stuck: they are behind, neither paused nor restored, and nothing is committed.

    Args:
        timeout_s: how long is too long; None finds none.

    Example:
        >>> watch, partition = ProgressWatch(300.0), TopicPartition("orders", 0)
        >>> for at in (0.0, 400.0):
        ...     watch.observe(at, {partition: Lag(5, 8)}, paused=())
        >>> [(stuck.partition, stuck.seconds, stuck.lag) for stuck in watch.stuck]
        [(TopicPartition(topic='orders', partition=0), 400.0, 3)]
    """

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._since: dict[TopicPartition, tuple[int | None, float]] = {}
        self.stuck: tuple[Stuck, ...] = ()

    def observe(
        self,
        now: float,
        lags: Mapping[TopicPartition, Lag],
        paused: Collection[str],
        restoring: Collection[TopicPartition] = (),
    ) -> None:
        """Note what was seen at one moment.

        Args:
            now: seconds of a clock that never goes back.
            lags: the lag of each assigned partition.
            paused: the topics that are not read.
            restoring: the partitions whose state is being restored.
        """
        since: dict[TopicPartition, tuple[int | None, float]] = {}
        for partition, lag in lags.items():
            if lag.offsets and partition.topic not in paused and partition not in restoring:
                before = self._since.get(partition)
                moved = before is None or before[0] != lag.committed
                since[partition] = (lag.committed, now) if moved or before is None else before
        self._since = since
        waited = {partition: now - at for partition, (_, at) in since.items()}
        self.stuck = tuple(
            Stuck(partition, seconds, lags[partition].offsets)
            for partition, seconds in sorted(waited.items())
            if self.timeout_s is not None and seconds >= self.timeout_s
        )


class LoopWatch:
    """Decides whether the thread of the run hangs: a partition is stuck, and that thread has not seen it for as long again.

    Args:
        timeout_s: how long is too long; None never is.

    Example:
        >>> watch = LoopWatch(300.0)
        >>> [watch.hangs(at, stuck=True) for at in (0.0, 299.0, 300.0)]
        [False, False, True]
    """

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._since: float | None = None

    def seen(self) -> None:
        """Note that the thread of the run has looked: it ends the application itself if a partition is stuck."""
        self._since = None

    def hangs(self, now: float, *, stuck: bool) -> bool:
        """Return whether it hangs.

        Args:
            now: seconds of a clock that never goes back.
            stuck: whether a partition is stuck.
        """
        if not stuck:
            self._since = None
            return False
        since = self._since = now if self._since is None else self._since
        return self._timeout_s is not None and now - since >= self._timeout_s


class LagAdmin(Protocol):
    """Requests to Kafka. Implemented by `TopicAdmin`."""

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, require_stable: bool, timeout: float
    ) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets."""

    def offset_bounds(
        self, partitions: Collection[TopicPartition], timeout: float, *, isolation_level: IsolationLevelName
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first offsets and the ends."""

    def group_members(self, group: str, timeout: float) -> tuple[ListedMember, ...]:
        """Return the members of the group with their partitions."""

    def close(self) -> None:
        """Close the connection; a later request opens another one."""


class LagSampler:
    """Asks Kafka for the lag of the assigned partitions while somebody uses it.

    Args:
        connection: the connection to the brokers.
        group: the consumer group.
        watch: is told what was seen.
        assigned: returns the next offset to process of each assigned partition; none while the application does not run.
        paused: returns the topics that are not read.
        restoring: returns the partitions whose state is being restored.
        fails: whether a partition without progress ends the application.
        admin: makes the client; by default one of the connection.
        end: ends the process with a sentence, if the thread of the run hangs.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        group: str,
        watch: ProgressWatch,
        assigned: Callable[[], Mapping[TopicPartition, int]],
        paused: Callable[[], Collection[str]],
        restoring: Callable[[], Collection[TopicPartition]] = tuple,
        *,
        fails: bool = False,
        admin: Callable[[], LagAdmin] | None = None,
        end: Callable[[str], None] | None = None,
    ) -> None:
        self._admin = admin or (lambda: TopicAdmin(connection, logger=logger))
        self._end = end or _end_process
        self._loop = LoopWatch(watch.timeout_s)
        self._group = group
        self._watch = watch
        self._assigned = assigned
        self._paused = paused
        self._restoring = restoring
        self._fails = fails
        # When somebody has looked at the partitions of other instances, and when they were asked for.
        self._looked_at = self._others_at = -math.inf
        self._lock = threading.Lock()
        self._users = 0
        self._closing = threading.Event()
        self._told: frozenset[TopicPartition] = frozenset()
        self.sample = LagSample()

    @property
    def stuck(self) -> tuple[Stuck, ...]:
        """The partitions without progress."""
        return self._watch.stuck

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask inside this context."""
        self.start()
        try:
            yield
        finally:
            self.close()

    def start(self) -> None:
        """Ask from now on, in a daemon thread, until everybody who has called this has called `close`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._closing = threading.Event()
                threading.Thread(
                    target=self._sample_until_closed, args=(self._closing,), name="streamrt-lag", daemon=True
                ).start()

    def close(self) -> None:
        """Ask no more, unless somebody else still uses it; a request that is under way goes on."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users == 0:
                self._closing.set()

    def check(self) -> None:
        """Raise if a partition makes no progress, and that is to end the application.

        Raises:
            NoProgressError: if it does; names one of the partitions.
        """
        self._loop.seen()
        if self._fails and self.stuck:
            raise NoProgressError(str(self.stuck[0]))

    def take_sample(self) -> LagSample:
        """Return what Kafka has answered last, and ask for the partitions of other instances while this is called again.

        The first call starts these requests, so `others` is empty until a later one.
        """
        self._looked_at = time.monotonic()
        return self.sample

    def _sample_until_closed(self, closing: threading.Event) -> None:
        admin = self._admin()
        known: frozenset[TopicPartition] = frozenset()
        asked_at = -_EVERY_S
        try:
            while not closing.wait(_LOOK_S):
                positions = self._assigned()
                partitions = frozenset(positions)
                now = time.monotonic()
                self._enforce_end(now)
                if partitions != known or now - asked_at >= _EVERY_S:
                    known, asked_at = partitions, now
                    self._request_sample(admin, positions)
                self._ask_for_others(admin, positions)
        finally:
            admin.close()

    def _request_sample(self, admin: LagAdmin, positions: Mapping[TopicPartition, int]) -> None:
        if not positions:
            # An application that has stopped keeps no connection; a later request opens one.
            admin.close()
            self.sample = LagSample()
            self._watch.observe(time.monotonic(), {}, ())
            return
        try:
            committed, bounds = self._request_offsets(admin, positions, _TIMEOUT_S)
        except StreamRTError as error:
            logger.debug("the lag could not be read: %s", error)
            return
        lags = {
            partition: Lag(committed.get(partition), high, positions[partition])
            for partition, (_, high) in bounds.items()
        }
        self._watch.observe(time.monotonic(), lags, self._paused(), self._restoring())
        others = {each: other for each, other in self.sample.others.items() if each not in lags}
        self.sample = LagSample(time.time(), lags, others)
        self._log_halts()

    def _ask_for_others(self, admin: LagAdmin, positions: Mapping[TopicPartition, int]) -> None:
        """Ask for the partitions of other instances, from time to time while somebody looks at them.

        Apart from the own ones: Kafka refuses a request as a whole if one topic was deleted, or may not be described.
        """
        now = time.monotonic()
        if not positions or now - self._looked_at >= _OTHERS_SEEN_S:
            self._others_at = -math.inf
            if self.sample.others:
                self.sample = replace(self.sample, others={})
            return
        if now - self._others_at < _OTHERS_EVERY_S:
            return
        self._others_at = now
        others: dict[TopicPartition, OtherPartition] = {}
        try:
            members = {
                partition: member
                for member in admin.group_members(self._group, _OTHERS_TIMEOUT_S)
                for partition in member.partitions
                if partition not in positions
            }
            if members:
                committed, bounds = self._request_offsets(admin, members, _OTHERS_TIMEOUT_S)
                others = {
                    partition: _make_other_partition(member, Lag(committed.get(partition), bounds[partition][1]))
                    for partition, member in members.items()
                    if partition in bounds
                }
        except StreamRTError as error:
            logger.debug("the lag of other instances could not be read: %s", error)
        self.sample = replace(self.sample, others=others)

    def _request_offsets(
        self, admin: LagAdmin, partitions: Collection[TopicPartition], timeout: float
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, tuple[int, int]]]:
        """Return the committed offsets, and the first offsets and ends, of partitions."""
        committed = admin.committed(self._group, list(partitions), require_stable=False, timeout=timeout)
        # Records of open transactions cannot be read yet, so they are not lag.
        return committed, admin.offset_bounds(list(partitions), timeout, isolation_level="read_committed")

    def _enforce_end(self, now: float) -> None:
        """End the process if the thread that would end the application hangs."""
        stuck = self.stuck
        if self._fails and self._loop.hangs(now, stuck=bool(stuck)) and stuck:
            self._end(
                f"{NoProgressError.__name__}: {stuck[0]}; the process ends at once, because the thread that runs the "
                "application does not return from a call, to Spark or to Kafka"
            )

    def _log_halts(self) -> None:
        """Log each partition that has come to a halt, and each that goes on."""
        stuck = {each.partition: each for each in self.stuck}
        for partition in sorted(stuck.keys() - self._told):
            logger.error("%s", stuck[partition])
        for partition in sorted(self._told - stuck.keys()):
            logger.info("%s makes progress again", partition)
        self._told = frozenset(stuck)


def _end_process(sentence: str) -> None:
    """End the process with exit code 1: its main thread hangs, so no exception could end it."""
    logger.critical("%s", sentence)
    with contextlib.suppress(OSError, ValueError):
        shown = f"streamrt: {sentence}" + reference_of(NoProgressError(), "\n")
        print(shown, file=sys.stderr, flush=True)  # noqa: T201 - the process ends
    os._exit(1)


def _make_other_partition(member: ListedMember, lag: Lag) -> OtherPartition:
    url = url_of_member(member)
    return OtherPartition(lag, member.host if url is None else url.removeprefix("http://"), url)
