"""Maintenance of an application that does not run: resets, savepoints, more partitions, and state that is deleted."""

import functools
from collections.abc import Sequence

from streamrt.application.run_state import RunState
from streamrt.application.tables import ApplicationTables
from streamrt.arguments import checked, checked_int, type_name
from streamrt.errors import SavepointError
from streamrt.kafka.completion_token import Offsets
from streamrt.runtime.driver.housekeeping.application_reset import Reset, ResetReport, ResetTo
from streamrt.runtime.driver.housekeeping.forget import forget_store
from streamrt.runtime.driver.housekeeping.state_directory import clear
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.savepoints.create import create_savepoint
from streamrt.savepoints.format import Savepoint, find_savepoint
from streamrt.savepoints.repartition import Repartitioned, Repartitioning
from streamrt.savepoints.restore import restore_savepoint
from streamrt.topics import Topic

__all__ = ["Maintenance"]


class Maintenance:
    """Changes what an application that does not run has in Kafka and on disk.

    Args:
        definition: the application.
        environment: where it runs.
        state: its state.
        tables: its tables.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        environment: Environment,
        state: RunState,
        tables: ApplicationTables,
    ) -> None:
        self._definition = definition
        self._environment = environment
        self._state = state
        self._tables = tables

    def reset(self, to: ResetTo = "earliest", dry_run: bool = False) -> ResetReport:
        """See `Application.reset`."""
        checked("reset(dry_run=...)", dry_run, bool, "a bool", show=type_name)
        self._prepare_offline("reset")
        environment, definition = self._environment, self._definition
        look = functools.partial(Reset.find, environment.admin, definition, to)
        if dry_run:
            return look().report(dry_run=True)
        with definition.claim_group(environment, look) as (found, held):
            found.run(held.confirm)
        self._tables.forget_usage()
        return found.report(dry_run=False)

    def savepoint(self, name: str) -> Savepoint:
        """See `Application.savepoint`."""
        self._prepare_offline("saved")
        return create_savepoint(self._environment.admin, self._environment.connection, self._definition, name)

    def restore_savepoint(self, name: str, group: str | None = None) -> Offsets:
        """See `Application.restore_savepoint`."""
        config, environment = self._definition.config, self._environment
        own = config.consumer_group
        self._prepare_offline("restored")
        found = find_savepoint(environment.admin, environment.connection, group or own, name, config.request_timeout)
        if found is None:
            raise SavepointError(
                f"consumer group {group or own!r} has no complete savepoint {name!r}: `streamrt savepoint list --group "
                f"{group or own}` lists them"
            )
        offsets = restore_savepoint(
            environment.admin,
            environment.connection,
            found,
            own,
            timeout=config.request_timeout,
            create_timeout=config.topic_create_timeout,
        )
        ids = {topic: each.id for topic, each in found.inputs.items() if each.id is not None}
        return Offsets(offsets, ids)

    def repartition(self, partitions: int, dry_run: bool = False) -> Repartitioned:
        """See `Application.repartition`."""
        checked_int("repartition(partitions=...)", partitions, 1)
        self._prepare_offline("repartitioned")
        environment, definition = self._environment, self._definition
        look = functools.partial(Repartitioning, environment.admin, environment.connection, definition, partitions)
        if dry_run:
            planned = look()
            self._tables.require_direct(planned.growing)
            planned.check()
            return planned.report(dry_run=True)
        with definition.claim_group(environment, look) as (found, held):
            self._tables.require_direct(found.growing)
            found.check()
            found.run(held.confirm)
            return found.report(dry_run=False)

    def clear_state(self) -> None:
        """See `Application.clear_state`."""
        config = self._definition.config
        clear(config.state_dir.absolute(), config.consumer_group)

    def forget_store(self, topic: Topic | str | Sequence[Topic | str], store: str = "default") -> list[str]:
        """See `Application.forget_store`."""
        environment = self._environment
        return forget_store(environment.admin, environment.connection, self._definition.config, topic, store)

    def _prepare_offline(self, what: str) -> None:
        self._state.require_offline(what)
        self._environment.admin.wait_for_broker(self._definition.config.broker_start_timeout)
