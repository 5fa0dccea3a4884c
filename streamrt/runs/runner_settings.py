"""The runner's parameters besides the configuration."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamrt.config import ApplicationConfig
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.queries.routing import QueryTarget, StateQueries
from streamrt.queries.stored_state import StoredState
from streamrt.runtime.driver.life.lifecycle import RunControl
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.owners import GroupOwners
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.slots.environment import SlotEnvironment
from streamrt.slots.startup import Startup
from streamrt.topology import Topology

_MEMBERS_S = 5.0

E_co = TypeVar("E_co", bound=SlotEnvironment, covariant=True)


class EnvironmentStart(Protocol[E_co]):
    """The start of what gives tasks their processes, in parallel with the rest of an application's start."""

    @property
    def startup(self) -> Startup:
        """Logs what the start waits for."""

    def wait(self, stop: threading.Event, meanwhile: Callable[[], None] | None = None) -> E_co | None:
        """Wait until it is ready; return None if the application is stopped before.

        Args:
            stop: set when the application must stop.
            meanwhile: called about ten times a second; it may end the wait with `StoppedError`.

        Raises:
            ConfigurationError: if a setting would endanger data or cannot be applied.
            RunnerError: if it cannot be started or reached.
        """

    def update_figures(self) -> None:
        """Update figures about it; call it often."""


@dataclass(frozen=True)
class RunSettings:
    """The runner's parameters besides the configuration.

    Attributes:
        connection: connection to Kafka.
        member_options: options of the group member, with librdkafka's names.
        java_options: options of Spark's Kafka client, with Java's names.
        producer_options: the user's options for producers.
        group_instance_id: for static membership; None for a member that leaves when it stops.
        on_message_processed: called in this process with topic, partition and offset of each processed record.
        partitions: number of partitions of each topic.
        check: called often; raises errors that must end the application.
        identity: says whether the inputs are still the topics that are read, before the driver commits their offsets.
        announced: what the client ids of group members say about the control server of this instance; empty for nothing.
    """

    connection: ConnectionConfig
    member_options: Mapping[str, Any]
    java_options: Mapping[str, str]
    producer_options: Mapping[str, Any]
    group_instance_id: str | None
    on_message_processed: Callable[[str, int, int], None] | None
    partitions: Mapping[str, int] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None
    identity: InputIdentity = field(default_factory=lambda: InputIdentity(lambda topics: {}, {}))
    announced: str = ""


@dataclass(frozen=True)
class StopConditions:
    """Conditions under which `run` ends by itself.

    Attributes:
        count: number of outputs after which it ends; 0 for no limit.
        timeout_s: seconds without a new record after which it ends; 0 for no limit.
    """

    count: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True)
class RunContext(Generic[E_co]):
    """One run of an application.

    Attributes:
        config: the application's configuration.
        settings: clients and Spark.
        spec: the task specification.
        start: what gives tasks their processes, which is starting or ready.
        admin: requests topics and offsets.
        conditions: when to stop.
        stop: set to stop the application.
        discard: set if uncommitted work must be processed again.
        progress: updated for observers.
        control: what callers want of the run.
        display: shows the output of `print` and `print_table`.
        queries: answers queries of state while the run serves them.
        declared: the operators as they were declared; None if they are those of the specification.
        end: what operators have to finish at the end of a bounded run.
    """

    config: ApplicationConfig
    settings: RunSettings
    spec: TaskSpec
    start: EnvironmentStart[E_co]
    admin: TopicAdmin
    conditions: StopConditions
    stop: threading.Event
    discard: threading.Event
    progress: Progress
    control: RunControl
    display: Display
    queries: StateQueries = field(default_factory=StateQueries)
    declared: Topology | None = None
    end: EndOfTime = field(default_factory=EndOfTime)

    def query_target(self, read: "Callable[[TaskRead], Future[TaskRows]]") -> QueryTarget:
        """Return what answers queries of state.

        Args:
            read: has the process that owns a task read its state.
        """
        spec, group = self.spec, self.config.consumer_group
        options = None if spec.state is None else spec.state.options
        stored = StoredState(spec.topology, self.declared or spec.topology, self.settings.partitions, options)
        owners = GroupOwners(lambda: self.admin.group_members(group, _MEMBERS_S))
        return QueryTarget(stored, spec.topology.inputs, read, owners)

    @property
    def topics(self) -> list[str]:
        """Names of the topics to read."""
        return list(self.spec.topology.sources)
