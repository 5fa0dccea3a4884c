"""Which tables an application reads and writes, as its topology says."""

from collections.abc import Iterator
from dataclasses import dataclass

from streamrt.joins.lookup import LookupJoin
from streamrt.joins.lookups import TableLookup
from streamrt.operators import ToTopic
from streamrt.operators.to_table import TableSinkOperator
from streamrt.relations import ApplyChanges, Maintain
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topology import SourceOperator, Topology

__all__ = ["TableUsage"]


@dataclass(frozen=True)
class TableUsage:
    """The tables of an application.

    Attributes:
        reads: names of the tables that it reads, sorted.
        writes: names of the tables that it writes, sorted.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @classmethod
    def of(cls, definition: ApplicationDefinition) -> "TableUsage":
        """Return the tables of an application.

        Args:
            definition: the application.
        """
        topology = definition.topology
        written = set(_tables_written(topology))
        for process in definition.sources.processes:
            # The source of an external table only reads it.
            if isinstance(process.topic, TableTopic) and not process.topic.is_endpoint:
                written.add(process.topic.table)
        return cls(tuple(sorted(_tables_read(topology))), tuple(sorted(written)))


def _tables_read(topology: Topology) -> set[str]:
    operators = [node.operator for node in topology.sources.values()]
    topics = [each.topic for each in operators if isinstance(each, SourceOperator)]
    lookups = [node.operator.lookup for node in topology.nodes if isinstance(node.operator, LookupJoin)]
    return {
        *(topic.table for topic in topics if isinstance(topic, TableTopic)),
        *(lookup.table.name for lookup in lookups if isinstance(lookup, TableLookup)),
    }


def _tables_written(topology: Topology) -> Iterator[str]:
    for node in topology.nodes:
        operator = node.operator
        if isinstance(operator, TableSinkOperator):
            yield operator.table
        elif isinstance(operator, ApplyChanges | Maintain | ToTopic) and isinstance(operator.topic, TableTopic):
            yield operator.topic.table
