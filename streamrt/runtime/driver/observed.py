"""What callers can wait for and see while an application runs: `Application` derives from `ObservedApplication`."""

import functools
import time
from collections.abc import Mapping
from datetime import datetime, timezone

from streamrt.config import require_amounts
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentTypeError, ArgumentValueError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.completion import Completion, KafkaOffsetView, checked_token
from streamrt.runtime.driver.lag import LagSampler, ProgressWatch
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.operation import OperatedApplication
from streamrt.runtime.driver.recent import RecentError
from streamrt.runtime.driver.reset import Reset, ResetReport, ResetTo
from streamrt.runtime.driver.stats import ApplicationStats, PartitionStats, store_stats
from streamrt.runtime.driver.waits import CommitRequests, Deadline, why_late
from streamrt.topology import Topology, of_kind
from streamrt.topology.tallies import LATE_RECORDS

__all__ = ["ObservedApplication"]

_WORKING = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)
_ENDED = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED)
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 0.5
"""Each look is one request for the committed offsets of the partitions that are still behind."""
_SHORTEST_REQUEST_S = 1.0


class ObservedApplication(OperatedApplication):
    """Adds to the life cycle what callers wait for, what they see, and a fresh start."""

    @functools.cached_property
    def _lag(self) -> LagSampler:
        """How far the group is behind, and which partitions make no progress."""
        config = self._definition.config
        # Commits may be as far apart as the application wants them.
        limit = config.progress_timeout and max(config.progress_timeout, 2 * config.commit_interval)
        return LagSampler(
            self._environment.connection,
            config.consumer_group,
            ProgressWatch(limit),
            self._assigned,
            lambda: self.paused_topics,
            self._restoring,
            fails=config.on_no_progress == "fail",
        )

    def _assigned(self) -> Mapping[TopicPartition, int]:
        return self._progress.snapshot().positions if self.status in _WORKING else {}

    def _restoring(self) -> set[TopicPartition]:
        """Return the assigned partitions whose state is being restored."""
        # By number: partitions of several topics may share a task, and its state.
        numbers = {task.partition for task, _ in self._progress.meters.snapshot().restoring}
        return {partition for partition in self._assigned() if partition.partition in numbers}

    # -- Waiting -------------------------------------------------------------------------------------------------

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """Wait until all records below a token are processed and durable, through every `group_by` of the application.

        It counts what all instances of the application have committed. Windows that will close later are no part of it, nor
        are other applications that read the outputs.

        Args:
            token: the next offset of input partitions, such as one above that of a produced record; or its text.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout. It says which partitions are behind, and if they are paused.
            ArgumentValueError: if the token is another text, or has a topic or partition that the application does not read.
            StaleTokenError: if a topic was deleted since the token was made.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.wait_for(Offsets({("orders", 0): message.offset() + 1}))
            ```
        """
        if timeout is not None:
            require_amounts("wait_for", timeout=timeout)
        self._require_running("wait for a token")
        view = self._offset_view(timeout)
        topology = self._resolved(view)
        self._follow(Completion(topology, checked_token(token, topology, view, "wait_for"), view), Deadline(timeout))

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """Wait until all records are processed and no new ones have come for some time, in all instances.

        Args:
            idle_interval: seconds without a new record.
            timeout: seconds to wait; None for no limit.
            poll_interval: seconds between two looks at the application's counters. Kafka is asked once in an interval without
                new records, and while the last commits are missing.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if an interval is longer than the timeout, or `poll_interval` longer than `idle_interval`.
            StreamRTError: the error that ended the application meanwhile.
        """
        require_amounts("wait_for_idle", idle_interval=idle_interval, poll_interval=poll_interval)
        if timeout is not None:
            require_amounts("wait_for_idle", timeout=timeout)
        given = {"idle_interval": idle_interval, "poll_interval": poll_interval}
        limits = {} if timeout is None else dict.fromkeys(given, ("timeout", timeout))
        for shorter, (longer, limit) in [*limits.items(), ("poll_interval", ("idle_interval", idle_interval))]:
            if given[shorter] > limit:
                raise ArgumentValueError(
                    f"wait_for_idle() got {shorter}={given[shorter]:g}, which is longer than {longer}={limit:g}"
                )
        self._require_running("become idle")
        deadline = Deadline(timeout)
        view = self._offset_view(timeout)
        # What was counted, when, where the topics ended then, and whether everything before is processed.
        counted, since = self._counted(), time.monotonic()
        ends: Mapping[TopicPartition, int] = {}
        rest: Completion | None = None
        commits = CommitRequests(self._control, self._definition.config.commit_interval)
        while True:
            self._require_alive("it was idle")
            if self._counted() != counted:
                counted, since, rest = self._counted(), time.monotonic(), None
            else:
                try:
                    if rest is None:
                        ends, topology = self._stable_ends(view)
                        rest, since = Completion(topology, ends, view), time.monotonic()
                    done = rest.advance()
                    commits.offer(rest.missing, self._progress.snapshot().positions)
                    if done and time.monotonic() - since >= idle_interval:
                        if self._stable_ends(view)[0] == ends:
                            return
                        rest = None
                except KafkaRequestError as error:
                    deadline.trouble = _retriable(error)
            if deadline.over:
                behind = {} if rest is None else rest.missing
                raise self._late(deadline, f"not idle for {idle_interval:g} s", behind)
            self._rest(min(max(poll_interval, 0.01), deadline.left))

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until the sources have ended, and everything that the input topics have then is processed.

        Topics without a source are processed up to the end that they have at the call.

        Args:
            until: process up to these offsets instead, and do not wait for the end of sources.
            stop: stop the application then, with a commit, and wait until it has ended.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if `until` has a topic or partition that the application does not read.
            StaleTokenError: if a topic was deleted since `until` was made.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.start()
            app.wait_for_completion(stop=True)
            ```
        """
        if timeout is not None:
            require_amounts("wait_for_completion", timeout=timeout)
        if self.topology.sources or self._unfinished_sources():
            # An application of sources alone ends with them, possibly before this call.
            self._require_running("complete")
        deadline = Deadline(timeout)
        view = self._offset_view(timeout)
        topology = self._resolved(view)
        if until is None:
            fed = {source.topic for source in self._definition.sources.stats().values()}
            inputs = [topic for topic in topology.sources if topic not in topology.exchanges]
            token = self._ends(view, [topic for topic in inputs if topic not in fed])
            self._wait_for_sources(deadline)
            token |= self._ends(view, [topic for topic in inputs if topic in fed])
        else:
            token = checked_token(until, topology, view, "wait_for_completion")
        if topology.sources:
            self._follow(Completion(topology, token, view), deadline)
        if stop and self._life.status.is_active:
            self.stop(wait=True, timeout=None if timeout is None else deadline.left)

    # -- Numbers -------------------------------------------------------------------------------------------------

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """Return the state of the application, its counters, its stores and last errors, and the lag of all partitions.

        It asks Kafka for offsets, and counts nothing for each record.

        Args:
            timeout: seconds to wait for each answer of Kafka. Without one, `kafka_error` says why, and offsets are missing.
        """
        require_amounts("stats", timeout=timeout)
        progress, now = self._progress.snapshot(), datetime.now(timezone.utc)
        meters = self._progress.meters.snapshot()
        started, error, status = self._life.started, self._life.error, self.status
        partitions, kafka_error = self._partition_stats(progress.positions, timeout)
        return ApplicationStats(
            status=status,
            desired_status=self.desired_status,
            started_at=started,
            uptime=(now - started).total_seconds() if started is not None and status.is_active else 0.0,
            restarts=self._restarts,
            error="" if error is None else f"{type(error).__name__}: {error}",
            records=progress.records,
            outputs=progress.produced,
            batches=progress.batches,
            rate=progress.rate,
            waiting_for=progress.waiting_for,
            partitions=partitions,
            sources=self._definition.sources.stats(),
            kafka_error=kafka_error,
            skipped=progress.skipped,
            dead_letters=progress.dead_letters,
            late_records=int(sum(count for _, count in of_kind(meters.tallies, LATE_RECORDS))),
            rates=progress.rates,
            stores=store_stats(meters),
            errors=self._recent_errors(),
        )

    def _recent_errors(self) -> dict[str, dict[str, tuple[RecentError, ...]]]:
        found: dict[str, dict[str, tuple[RecentError, ...]]] = {}
        for (kind, name), errors in self._progress.meters.recent.errors().items():
            found.setdefault(kind, {})[name] = errors
        return found

    def _partition_stats(
        self, positions: Mapping[TopicPartition, int], timeout: float
    ) -> tuple[dict[TopicPartition, PartitionStats], str]:
        view, paused = self._offset_view(timeout), self.paused_topics
        committed: Mapping[TopicPartition, int | None] = {}
        bounds: Mapping[TopicPartition, tuple[int, int]] = {}
        problem, partitions = "", sorted(positions)
        try:
            partitions = sorted({*positions, *view.partitions(list(self._resolved(view).sources))})
            committed, bounds = view.committed(partitions), view.bounds(partitions)
        except KafkaRequestError as error:
            problem = str(error)
        return {
            each: PartitionStats.of(
                positions.get(each), committed.get(each), bounds.get(each), paused=each.topic in paused
            )
            for each in partitions
        }, problem

    # -- Starting over -------------------------------------------------------------------------------------------

    def reset(self, to: ResetTo = "earliest", dry_run: bool = False) -> ResetReport:
        """Let the application start over: without state, and at other offsets of its input topics.

        It deletes the changelogs of stores, the repartition topics, the state on this machine and the committed offsets.
        Input and output topics stay as they are, and so does the state of sources, which belongs to what they have produced.

        Args:
            to: where to begin: "earliest", "latest", a time (without a zone: UTC), or `Offsets` of all input partitions.
            dry_run: only return what would be done.

        Returns:
            What was done.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run: nothing has changed then.
            OffsetOutOfRangeError: if an offset is not in its partition.
            StaleTokenError: if a topic was deleted since the offsets were made.
            KafkaRequestError: if Kafka does not respond, or refuses a request. Call it again: it continues.

        Example:
            ```python
            for line in app.reset(dry_run=True).lines():
                print(line)
            ```
        """
        if not isinstance(dry_run, bool):
            raise ArgumentTypeError(f"reset(dry_run=...) must be a bool, got {type(dry_run).__name__}")
        if self._life.status.is_active or self._life.restarting:
            raise ApplicationStateError(f"the application is {self.status.value} and cannot be reset: stop() it first")
        self._environment.admin.wait_for_broker(self._definition.config.broker_availability_timeout)
        found = Reset.find(self._environment.admin, self._definition, to)
        if not dry_run:
            found.run()
        return found.report(dry_run=dry_run)

    # -- Helpers -------------------------------------------------------------------------------------------------

    def _follow(self, completion: Completion, deadline: Deadline) -> None:
        """Wait until a completion is done."""
        pause, commits = _FIRST_LOOK_S, CommitRequests(self._control, self._definition.config.commit_interval)
        while True:
            try:
                if completion.advance():
                    return
                deadline.trouble = ""
            except KafkaRequestError as error:
                deadline.trouble = _retriable(error)
            self._require_alive("everything was processed")
            commits.offer(completion.missing, self._progress.snapshot().positions)
            if deadline.over:
                raise self._late(deadline, "behind", completion.missing)
            self._rest(min(pause, deadline.left))
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _unfinished_sources(self) -> list[str]:
        return [name for name, source in self._definition.sources.stats().items() if not source.ended]

    def _wait_for_sources(self, deadline: Deadline) -> None:
        pause = _FIRST_LOOK_S
        while True:
            waiting = self._unfinished_sources()
            if not waiting:
                return
            self._require_alive("its sources had ended")
            if deadline.over:
                raise self._late(deadline, f"not complete, because the sources {', '.join(waiting)} have not ended", {})
            self._rest(min(pause, deadline.left))
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _late(
        self, deadline: Deadline, what: str, missing: Mapping[TopicPartition, tuple[int | None, int]]
    ) -> ApplicationTimeoutError:
        """Return the error for a wait that has taken too long."""
        why = why_late(missing, self.paused_topics, all_paused=self.desired_status is ApplicationStatus.PAUSED)
        parts = [f"the application is {what} after {deadline.timeout:g} s", *why]
        if self._life.restarting:
            parts.append("it has failed and will be restarted")
        return ApplicationTimeoutError("; ".join([*parts, *filter(None, [deadline.trouble])]))

    def _offset_view(self, timeout: float | None = None) -> KafkaOffsetView:
        config = self._definition.config
        limit = (
            config.request_timeout
            if timeout is None
            else max(_SHORTEST_REQUEST_S, min(timeout, config.request_timeout))
        )
        return KafkaOffsetView(self._environment.admin, self._environment.connection, config.consumer_group, limit)

    def _resolved(self, view: KafkaOffsetView) -> Topology:
        """Return the topology for the partitions that the input topics have."""
        topology = self.topology
        inputs = [topic for topic in topology.sources if topic not in topology.exchanges]
        counts = dict.fromkeys(inputs, 0)
        for partition in view.partitions(inputs):
            counts[partition.topic] += 1
        return topology.resolve(counts)

    def _stable_ends(self, view: KafkaOffsetView) -> tuple[Mapping[TopicPartition, int], Topology]:
        topology = self._resolved(view)
        return view.stable_ends(view.partitions(list(topology.sources))), topology

    def _ends(self, view: KafkaOffsetView, topics: list[str]) -> Offsets:
        """Return the ends of topics: the high watermarks, because the last commit of a producer may still be under way."""
        return Offsets({each: end for each, (_, end) in view.bounds(view.partitions(topics)).items()})

    def _counted(self) -> tuple[int, int, int]:
        progress = self._progress.snapshot()
        return progress.records, progress.produced, self._restarts

    def _require_running(self, what: str) -> None:
        # A run that fails just now may be restarted; otherwise the wait raises its error.
        active = self._life.status.is_active and not self._stop_request.is_set()
        if not (active or self._life.restarting):
            self._require_active(what)

    def _require_alive(self, what: str) -> None:
        """Raise if the application has ended."""
        if self._life.status.is_active or self._life.restarting:
            return
        if self._life.error is not None:
            raise self._life.error
        raise ApplicationStateError(f"the application was stopped before {what}")

    def _rest(self, seconds: float) -> None:
        if self._life.restarting:
            time.sleep(seconds)
        else:
            self._life.wait(_ENDED, seconds)


def _retriable(error: KafkaRequestError) -> str:
    """Return the text of an error that may pass; raise others."""
    if not error.retriable:
        raise error
    return str(error)
