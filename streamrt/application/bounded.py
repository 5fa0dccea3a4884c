"""Runs that end by themselves, after their sources."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.run_state import RunState
from streamrt.common.throttle import Throttle
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.runtime.driver.life.completion import Completion, KafkaOffsetView
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.waits import CommitRequests
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.topology import SourceOperator, Topology

__all__ = ["BoundedRuns"]

logger = logging.getLogger("streamrt")

_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 0.5
_REMIND_S = 60.0
_OTHERS_S = 60.0
"""How long other members may own partitions of tasks that are to finish: one that died is a member until its session ends."""
_LEAVE_S = 5.0

R = TypeVar("R")


class _OverError(Exception):
    """The run has ended in another way."""


class BoundedRuns:
    """Ends a run when its sources have ended and everything is processed, if it is to end by itself.

    Args:
        definition: the application.
        state: its state.
        offsets: the offsets of its topics.
    """

    def __init__(self, definition: ApplicationDefinition, state: RunState, offsets: GroupOffsets) -> None:
        self._definition = definition
        self._state = state
        self._offsets = offsets

    @contextlib.contextmanager
    def ending(self) -> Iterator[EndOfTime]:
        """Watch in another thread for the end of a bounded run, and then stop the run.

        Yields:
            What operators have to finish at the end.
        """
        end = EndOfTime()
        if self._state.until is None:
            yield end
            return
        for topic in self._skipped_first():
            logger.warning(
                "with auto_offset_reset='latest' of topic %s, the first run skips what its source produces before partitions "
                "are assigned: leave it out, or set auto_offset_reset='earliest'",
                topic,
            )
        over = threading.Event()
        watch = threading.Thread(target=self._watch_end, args=(end, over), name="streamrt-end", daemon=True)
        watch.start()
        try:
            yield end
        finally:
            over.set()
            # It may still be waiting for an answer from Kafka that is no longer needed.
            watch.join(_LEAVE_S)

    def _skipped_first(self) -> list[str]:
        """Return the topics of sources whose own setting lets the first run begin at their end."""
        fed = {each.topic.name for each in self._definition.sources.processes}
        operators = {name: node.operator for name, node in self._definition.topology.sources.items() if name in fed}
        return [
            name
            for name, operator in operators.items()
            if isinstance(operator, SourceOperator) and operator.topic.auto_offset_reset == "latest"
        ]

    def _watch_end(self, end: EndOfTime, over: threading.Event) -> None:
        try:
            _EndWatch(self._definition, self._state, self._offsets, end, over).run()
        except _OverError:
            pass
        except BaseException as error:  # noqa: BLE001 - ends the run, in the thread that runs it
            end.fail(error)


class _EndWatch:
    """Follows a bounded run to its end.

    Args:
        definition: the application.
        state: its state.
        offsets: the offsets of its topics.
        end: what operators have to finish at the end.
        over: set when the run has ended in another way.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        state: RunState,
        offsets: GroupOffsets,
        end: EndOfTime,
        over: threading.Event,
    ) -> None:
        self._definition = definition
        self._state = state
        self._offsets = offsets
        self._end = end
        self._over = over
        self._view: KafkaOffsetView = offsets.view()
        self._commits = CommitRequests(state.control, definition.config.commit_interval)
        self._level = -1
        self._shared_since: float | None = None

    def run(self) -> None:
        """Return when the run is stopped at its end.

        Raises:
            _OverError: if it has ended before.
            InvalidOperationError: if another member of the group owns partitions with open windows or timers.
            KafkaRequestError: if Kafka refuses a request.
        """
        topology = self._await_start()
        sources = self._definition.sources
        fed = {source.topic for source in sources.stats().values()}
        inputs = topology.outer_topics
        token: Offsets = self._repeat_request(
            lambda: self._offsets.ends(self._view, [each for each in inputs if each not in fed])
        )
        logger.info("the run ends when %s", self._describe_topics(sorted(set(inputs) - fed)))
        self._wait_for_sources()
        token |= self._repeat_request(lambda: self._offsets.ends(self._view, [each for each in inputs if each in fed]))
        self._await_completion(Completion(topology, token, self._view, finish=self._finish_level), topology)
        logger.info("everything up to the end is processed: the run ends")
        self._state.stop.set()

    def _describe_topics(self, topics: list[str]) -> str:
        waiting = self._offsets.unfinished_sources()
        parts = [f"the sources {', '.join(waiting)} have ended"] if waiting else []
        parts += [f"{', '.join(topics)} are processed up to their current ends"] if topics else []
        return " and ".join(parts) or "what the sources have produced is processed"

    def _await_start(self) -> Topology:
        """Return the topology of the run, once it processes records."""
        working = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)
        while self._end.topology is None or self._state.status not in working:
            self._rest_for(_FIRST_LOOK_S)
        return self._end.topology

    def _wait_for_sources(self) -> None:
        reminders, pause = Throttle(_REMIND_S), _FIRST_LOOK_S
        reminders.admit()
        while waiting := self._offsets.unfinished_sources():
            if reminders.admit():
                logger.info(
                    "run(until='end') waits for the sources %s: a source ends when its run() returns; stop() or a "
                    "signal ends the run before",
                    ", ".join(waiting),
                )
            self._rest_for(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _await_completion(self, completion: Completion, topology: Topology) -> None:
        pause = _FIRST_LOOK_S
        while not self._repeat_request(completion.advance):
            left = {partition for task in self._end.left for partition in topology.inputs(task)}
            self._commits.offer({*completion.missing, *left}, self._state.progress.snapshot().positions)
            self._rest_for(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _finish_level(self, level: int) -> bool:
        """Let time end for the operators of a level; return whether they have finished."""
        if level != self._level:
            self._level = level
            self._end.reach(level)
        if not self._end.foreign:
            self._shared_since = None
        elif self._shared_since is None:
            self._shared_since = time.monotonic()
        elif time.monotonic() - self._shared_since >= _OTHERS_S:
            raise self._end.refuse_others()
        return self._end.over

    def _repeat_request(self, request: Callable[[], R]) -> R:
        """Repeat a request to Kafka until it is answered."""
        while True:
            try:
                return request()
            except KafkaRequestError as error:
                if not error.retriable:
                    raise
                logger.debug("the end of the run is not known yet: %s", error)
            self._rest_for(_LONGEST_LOOK_S)

    def _rest_for(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise _OverError
