"""Waits for a running application, and its numbers."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.run_state import RunState
from streamrt.config import require_amounts
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentValueError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.completion import Completion, checked_token
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.waits import CommitRequests, Deadline, why_late
from streamrt.runtime.driver.observation.lag import LagSampler, ProgressWatch
from streamrt.runtime.driver.observation.recent import RecentError
from streamrt.runtime.driver.observation.stats import ApplicationStats, PartitionStats, store_stats
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.topology import of_kind
from streamrt.topology.tallies import LATE_RECORDS

__all__ = ["Observation", "sample_lag"]

_WORKING = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)
_ENDED = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED)
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 0.5
"""Each look is one request for the committed offsets of the partitions that are still behind."""


def sample_lag(definition: ApplicationDefinition, environment: Environment, state: RunState) -> LagSampler:
    """Return what knows how far the group is behind, and which partitions make no progress.

    Args:
        definition: the application.
        environment: where it runs.
        state: its state.
    """
    config = definition.config

    def assigned() -> Mapping[TopicPartition, int]:
        return state.progress.snapshot().positions if state.status in _WORKING else {}

    def restoring() -> set[TopicPartition]:
        """Return the assigned partitions whose state is being restored."""
        # By number: partitions of several topics may share a task, and its state.
        numbers = {task.partition for task, _ in state.progress.meters.snapshot().restoring}
        return {partition for partition in assigned() if partition.partition in numbers}

    # Commits may be as far apart as the application wants them.
    limit = config.progress_timeout and max(config.progress_timeout, 2 * config.commit_interval)
    return LagSampler(
        environment.connection,
        config.consumer_group,
        ProgressWatch(limit),
        assigned,
        lambda: state.paused_topics,
        restoring,
        fails=config.on_no_progress == "fail",
    )


class Observation:
    """The events that callers wait for, and the state that they see, while an application runs.

    Args:
        definition: the application.
        state: its state.
        offsets: the offsets of its topics.
        stop: stops it; see `Operations.stop`.
    """

    def __init__(
        self, definition: ApplicationDefinition, state: RunState, offsets: GroupOffsets, stop: Callable[..., None]
    ) -> None:
        self._definition = definition
        self._state = state
        self._offsets = offsets
        self._stop = stop

    # -- Waiting -------------------------------------------------------------------------------------------------

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """See `Application.wait_for`."""
        if timeout is not None:
            require_amounts("wait_for", timeout=timeout)
        self._require_running("wait for a token")
        view = self._offsets.view(timeout)
        topology = self._offsets.resolved(view)
        self._await_completion(
            Completion(topology, checked_token(token, topology, view, "wait_for"), view), Deadline(timeout)
        )

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """See `Application.wait_for_idle`."""
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
        view = self._offsets.view(timeout)
        # What was counted, when, where the topics ended then, and whether everything before is processed.
        counted, since = self._count_progress(), time.monotonic()
        ends: Mapping[TopicPartition, int] = {}
        rest: Completion | None = None
        commits = CommitRequests(self._state.control, self._definition.config.commit_interval)
        while True:
            self._require_alive("it was idle")
            if self._count_progress() != counted:
                counted, since, rest = self._count_progress(), time.monotonic(), None
            else:
                try:
                    if rest is None:
                        ends, topology = self._offsets.stable_ends(view)
                        rest, since = Completion(topology, ends, view), time.monotonic()
                    done = rest.advance()
                    commits.offer(rest.missing, self._state.progress.snapshot().positions)
                    if done and time.monotonic() - since >= idle_interval:
                        if self._offsets.stable_ends(view)[0] == ends:
                            return
                        rest = None
                except KafkaRequestError as error:
                    deadline.trouble = _retriable_message(error)
            if deadline.over:
                behind = {} if rest is None else rest.missing
                raise self._make_timeout(deadline, f"not idle for {idle_interval:g} s", behind)
            self._rest_for(min(max(poll_interval, 0.01), deadline.left))

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """See `Application.wait_for_completion`."""
        if timeout is not None:
            require_amounts("wait_for_completion", timeout=timeout)
        if self._definition.topology.sources or self._offsets.unfinished_sources():
            # An application that has only sources ends with them, possibly before this call.
            self._require_running("complete")
        deadline = Deadline(timeout)
        view = self._offsets.view(timeout)
        topology = self._offsets.resolved(view)
        if until is None:
            fed = {source.topic for source in self._definition.sources.stats().values()}
            inputs = topology.outer_topics
            token = self._offsets.ends(view, [topic for topic in inputs if topic not in fed])
            self._wait_for_sources(deadline)
            token |= self._offsets.ends(view, [topic for topic in inputs if topic in fed])
        else:
            token = checked_token(until, topology, view, "wait_for_completion")
        if topology.sources:
            self._await_completion(Completion(topology, token, view), deadline)
        if stop and self._state.life.status.is_active:
            self._stop(wait=True, timeout=None if timeout is None else deadline.left)

    # -- Numbers -------------------------------------------------------------------------------------------------

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """See `Application.stats`."""
        require_amounts("stats", timeout=timeout)
        progress, now = self._state.progress.snapshot(), datetime.now(timezone.utc)
        meters = self._state.progress.meters.snapshot()
        started, error, status = self._state.life.started, self._state.life.error, self._state.status
        partitions, kafka_error = self._partition_stats(progress.positions, timeout)
        return ApplicationStats(
            status=status,
            desired_status=self._state.desired_status,
            started_at=started,
            uptime=(now - started).total_seconds() if started is not None and status.is_active else 0.0,
            restarts=self._state.restarts,
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
        for (kind, name), errors in self._state.progress.meters.recent.errors().items():
            found.setdefault(kind, {})[name] = errors
        return found

    def _partition_stats(
        self, positions: Mapping[TopicPartition, int], timeout: float
    ) -> tuple[dict[TopicPartition, PartitionStats], str]:
        view, paused = self._offsets.view(timeout), self._state.paused_topics
        committed: Mapping[TopicPartition, int | None] = {}
        bounds: Mapping[TopicPartition, tuple[int, int]] = {}
        problem, partitions = "", sorted(positions)
        try:
            partitions = sorted({*positions, *view.partitions(list(self._offsets.resolved(view).sources))})
            committed, bounds = view.committed(partitions), view.bounds(partitions)
        except KafkaRequestError as error:
            problem = str(error)
        return {
            each: PartitionStats.of(
                positions.get(each), committed.get(each), bounds.get(each), paused=each.topic in paused
            )
            for each in partitions
        }, problem

    # -- Helpers -------------------------------------------------------------------------------------------------

    def _await_completion(self, completion: Completion, deadline: Deadline) -> None:
        """Wait until a completion is done."""
        pause, commits = _FIRST_LOOK_S, CommitRequests(self._state.control, self._definition.config.commit_interval)
        while True:
            try:
                if completion.advance():
                    return
                deadline.trouble = ""
            except KafkaRequestError as error:
                deadline.trouble = _retriable_message(error)
            self._require_alive("everything was processed")
            commits.offer(completion.missing, self._state.progress.snapshot().positions)
            if deadline.over:
                raise self._make_timeout(deadline, "behind", completion.missing)
            self._rest_for(min(pause, deadline.left))
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _wait_for_sources(self, deadline: Deadline) -> None:
        pause = _FIRST_LOOK_S
        while True:
            waiting = self._offsets.unfinished_sources()
            if not waiting:
                return
            self._require_alive("its sources had ended")
            if deadline.over:
                raise self._make_timeout(
                    deadline, f"not complete, because the sources {', '.join(waiting)} have not ended", {}
                )
            self._rest_for(min(pause, deadline.left))
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _make_timeout(
        self, deadline: Deadline, what: str, missing: Mapping[TopicPartition, tuple[int | None, int]]
    ) -> ApplicationTimeoutError:
        """Return the error for a wait that has taken too long."""
        why = why_late(
            missing, self._state.paused_topics, all_paused=self._state.desired_status is ApplicationStatus.PAUSED
        )
        parts = [f"the application is {what} after {deadline.timeout:g} s", *why]
        if self._state.life.restarting:
            parts.append("it has failed and will be restarted")
        return ApplicationTimeoutError("; ".join([*parts, *filter(None, [deadline.trouble])]))

    def _count_progress(self) -> tuple[int, int, int]:
        progress = self._state.progress.snapshot()
        return progress.records, progress.produced, self._state.restarts

    def _require_running(self, what: str) -> None:
        # A run that fails just now may be restarted; otherwise the wait raises its error.
        active = self._state.life.status.is_active and not self._state.stop_request.is_set()
        if not (active or self._state.life.restarting):
            self._state.require_active(what)

    def _require_alive(self, what: str) -> None:
        """Raise if the application has ended."""
        if self._state.is_used:
            return
        if self._state.life.error is not None:
            raise self._state.life.error
        raise ApplicationStateError(f"the application was stopped before {what}")

    def _rest_for(self, seconds: float) -> None:
        if self._state.life.restarting:
            time.sleep(seconds)
        else:
            self._state.life.wait(_ENDED, seconds)


def _retriable_message(error: KafkaRequestError) -> str:
    """Return the text of an error that may pass; raise others."""
    if not error.retriable:
        raise error
    return str(error)
