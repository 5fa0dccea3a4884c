"""The view of an application that its control server has."""

import importlib.metadata
from dataclasses import dataclass

from streamrt.application.observation import Observation
from streamrt.application.operations import Operations
from streamrt.application.querying import ApplicationQueries
from streamrt.application.run_state import RunState
from streamrt.application.state_reads import StateReads
from streamrt.kafka import ConnectionConfig
from streamrt.runtime.driver.observation.lag import LagSampler
from streamrt.runtime.driver.starting.definition import ApplicationDefinition

__all__ = ["Controlled", "installed_version"]


@dataclass(frozen=True)
class Controlled:
    """The parts of an application that its control server shows and changes.

    Attributes:
        definition: its settings, topics, sources and operators.
        connection: its connection to Kafka.
        state: its state.
        operations: starts, pauses, stops and commits it.
        observation: waits for it, and has its numbers.
        states: reads its state stores.
        queries: asks for present rows by SQL, and changes rows.
        lag: how far the group is behind, and which partitions make no progress.
    """

    definition: ApplicationDefinition
    connection: ConnectionConfig
    state: RunState
    operations: Operations
    observation: Observation
    states: StateReads
    queries: ApplicationQueries
    lag: LagSampler


def installed_version() -> str:
    """Return the version of StreamRT; empty if it runs from a source tree that is not installed."""
    try:
        return importlib.metadata.version("streamrt")
    except importlib.metadata.PackageNotFoundError:
        return ""
