"""Runs an application: on Spark, in processes, or only its sources, and again after failures."""

import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from streamrt.application.bounded import BoundedRuns
from streamrt.application.run_state import RunState
from streamrt.application.tables import ApplicationTables
from streamrt.common.logs import log_context
from streamrt.config import count_processes
from streamrt.errors import InvalidOperationError
from streamrt.queries.routing import StateQueries
from streamrt.runtime.driver.life.exits import StoppedError, stop_on_signals, unless_stopped
from streamrt.runtime.driver.life.lifecycle import without_secrets
from streamrt.runtime.driver.life.restart import Failures
from streamrt.runtime.driver.observation.lag import LagSampler
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.runtime.report import Output
from streamrt.slots.fork_client import ForkServer, take_fork_server

__all__ = ["Execution"]

logger = logging.getLogger("streamrt")

_TICK_S = 0.1

R = TypeVar("R")


class Execution:
    """Runs an application in the thread of the caller.

    Args:
        definition: the application.
        environment: where it runs.
        state: its state.
        bounded: ends runs that end by themselves.
        tables: its tables.
        lag: says whether a partition makes no progress.
        queries: answers queries of state.
        announced: returns what group members say about the control server; empty for nothing.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        environment: Environment,
        state: RunState,
        bounded: BoundedRuns,
        tables: ApplicationTables,
        lag: LagSampler,
        queries: StateQueries,
        announced: Callable[[], str],
    ) -> None:
        self._definition = definition
        self._environment = environment
        self._state = state
        self._bounded = bounded
        self._tables = tables
        self._lag = lag
        self._queries = queries
        self._announced = announced

    def require_runnable(self) -> None:
        """Raise if there is nothing to run.

        Raises:
            InvalidOperationError: if the application has neither a dataframe nor a source.
        """
        if not self._definition.topology.sources and not self._definition.sources.processes:
            raise InvalidOperationError("there is nothing to run: first make a dataframe with Application.dataframe()")

    def run(self, timeout: float = 0.0, count: int = 0, *, collect: bool = False) -> list[Output]:
        """Process records until the application is stopped; called after `RunState.begin`.

        Args:
            timeout: seconds without a new record after which to stop; 0 for no limit.
            count: number of outputs after which to stop; 0 for no limit.
            collect: whether to return the outputs, if the run ends by itself.

        Raises:
            StreamRTError: the error that ended the last attempt.
        """
        collected = collect and (timeout > 0 or count > 0 or self._state.until is not None)
        group = self._definition.config.consumer_group
        with self._tables.naming_schemas(), self._tables.noting_usage(), log_context({"group": group}):
            if not self._definition.topology.sources:
                self._run_attempts(self._run_sources)
                return []
            return self._run_attempts(lambda: self.process(timeout, count, collect=collected)) or []

    def process(self, timeout: float, count: int, *, collect: bool) -> list[Output]:
        """Process records on Spark, or in processes, once."""
        self._tables.claim_maintained()
        with self._fork_server() as server:
            # Imported here so that programs that use streamrt for tests or topics do not wait for it.
            from streamrt.application.application_run import ApplicationRun
            from streamrt.runs.runner_settings import StopConditions

            state = self._state
            state.progress = state.progress.next_run()
            ends = StopConditions(count, timeout)
            ways = (state.stop, state.discard, state.progress, state.control)
            watched = (self._lag, self._queries, self._announced())
            with self._bounded.ending() as end:
                run = ApplicationRun(
                    *(self._definition, self._environment, server, ends, collect, *ways, *watched),
                    end=end,
                    find_moved=self._tables.find_moved if TableUsage.of(self._definition).reads else None,
                )
                return run.run()

    def _fork_server(self) -> contextlib.AbstractContextManager[ForkServer | None]:
        """Start the process from which those of tasks are forked, where Spark does not start them.

        It imports what tasks need while this one imports what a run needs.
        """
        processes = count_processes(self._definition.config.spark_master)
        return contextlib.nullcontext() if processes is None else contextlib.closing(take_fork_server())

    def _run_sources(self) -> None:
        """Run sources without dataframes until they end or the application is stopped."""
        state = self._state
        state.progress = state.progress.next_run()
        unless_stopped(state.stop, lambda: self._definition.set_up_topics(self._environment.admin))
        with self._definition.sources.running() as sources:
            state.control.works()
            while sources.is_alive() and not state.stop.wait(_TICK_S):
                state.control.mark_fulfilled(state.control.run_request)
                sources.check()

    def _run_attempts(self, attempt: Callable[[], R]) -> R | None:
        """Run the application, and run it again after failures.

        Returns:
            The result of the last attempt; None if the application was stopped before it processed records.
        """
        state, failures = self._state, Failures(self._state.policy)
        with stop_on_signals(state.stop_request):
            while True:
                try:
                    result = attempt()
                except StoppedError:
                    logger.info("stopped before any record was processed")
                    state.end(None)
                    return None
                except BaseException as raised:
                    error = without_secrets(raised)
                    self._note_source_errors()
                    delay = None if state.stop_request.is_set() else failures.delay_after(raised, state.life.steady_s)
                    if delay is None or not self._restart_after(error, delay):
                        state.end(error)
                        if error is raised:
                            raise
                    else:
                        continue
                else:
                    state.end(None)
                    return result
                # Outside of the handler, because the context would be the error with the secret.
                raise error

    def _note_source_errors(self) -> None:
        """Remember why sources have failed: the next attempt starts them again."""
        for name, source in self._definition.sources.stats().items():
            if source.error:
                self._state.progress.meters.recent.note_error(("source", name), source.error)

    def _restart_after(self, error: BaseException, delay: float) -> bool:
        """Enter FAILED, and STARTING after a delay; return False if the application is stopped meanwhile."""
        self._state.life.end(error, restarts=True)
        # A stop stays set for the caller, which ends the run.
        if self._state.stop_request.wait(delay):
            logger.info("stopped before the restart")
            self._state.life.give_up()
            return False
        self._state.begin_again()
        return True
