"""Savepoints and repartitioning, as calls of a stopped application: `Application` derives from `SavedApplication`."""

from streamrt.errors import ApplicationStateError, ArgumentTypeError, ArgumentValueError, SavepointError
from streamrt.kafka.token import Offsets
from streamrt.runtime.driver.observed import ObservedApplication
from streamrt.runtime.driver.repartition import Repartitioned, Repartitioning
from streamrt.runtime.driver.savepoint import Savepoint, find_savepoint
from streamrt.runtime.driver.savepoint_create import create_savepoint
from streamrt.runtime.driver.savepoint_restore import restore_savepoint

__all__ = ["SavedApplication"]


class SavedApplication(ObservedApplication):
    """Adds savepoints, and more partitions."""

    def savepoint(self, name: str) -> Savepoint:
        """Copy everything that the consumer group has committed, under a name; all instances must be stopped.

        Args:
            name: its name: letters, digits, ".", "_" and "-".

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run.
            SavepointError: if the name is taken, nothing was committed, or this is not the version that has run last.
            ChangelogError: if a changelog is missing.
            KafkaRequestError: if Kafka does not respond.

        Example:
            ```python
            app.stop(wait=True)
            app.savepoint("before-2.0")
            ```
        """
        self._prepare_offline("saved")
        return create_savepoint(self._environment.admin, self._environment.connection, self._definition, name)

    def restore_savepoint(self, name: str, group: str | None = None) -> Offsets:
        """Let the consumer group of this application begin at a savepoint, which stays as it is.

        Args:
            name: the name of the savepoint.
            group: the consumer group that it is from; by default that of this application, which must have been reset then.

        Returns:
            The offsets of the inputs at which the application begins.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run, or the group has state or offsets.
            SavepointError: if there is no such savepoint.
            StaleTokenError: if an input topic was deleted since.
            OffsetOutOfRangeError: if records that come next were deleted.
            TopicConfigurationError: if an input with state has another number of partitions now.
            KafkaRequestError: if Kafka does not respond. Call it again: it begins anew.

        Example:
            ```python
            app = Application(broker_address="localhost:9092", consumer_group="shop-trial")
            app.restore_savepoint("before-2.0", group="shop")
            ```
        """
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
        """Give all inputs and repartition topics more partitions, and move the state of each key to its new partition.

        All instances must be stopped, everything must be processed, and nothing may be produced to the inputs meanwhile.

        Args:
            partitions: the new number of partitions.
            dry_run: only return what would be done.

        Returns:
            What was done.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run.
            SavepointError: if records wait, a key is not where its partitioner says, or there is no state.
            TopicConfigurationError: if a topic has more partitions already, or a `group_by` has needed no topic so far.
            KafkaRequestError: if Kafka does not respond. Call it again: it continues.

        Example:
            ```python
            for line in app.repartition(12, dry_run=True).lines():
                print(line)
            ```
        """
        if not isinstance(partitions, int) or isinstance(partitions, bool):
            raise ArgumentTypeError(f"repartition(partitions=...) must be an int, got {type(partitions).__name__}")
        if partitions < 1:
            raise ArgumentValueError(f"repartition(partitions=...) must be 1 or more, got {partitions}")
        self._prepare_offline("repartitioned")
        found = Repartitioning(self._environment.admin, self._environment.connection, self._definition, partitions)
        found.check()
        if not dry_run:
            found.run()
        return found.report(dry_run=dry_run)

    def _prepare_offline(self, what: str) -> None:
        if self._life.status.is_active or self._life.restarting:
            raise ApplicationStateError(f"the application is {self.status.value} and cannot be {what}: stop() it first")
        self._environment.admin.wait_for_broker(self._definition.config.broker_availability_timeout)
