"""Which tables an application reads and writes, as its topology says."""

from collections.abc import Iterator
from dataclasses import dataclass

from streamrt.joins.lookup import LookupJoin
from streamrt.joins.lookups import TableLookup
from streamrt.operators import ToTopic
from streamrt.operators.to_table import TableSinkOperator
from streamrt.relations import ApplyChanges, Maintain, find_request_topics
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
        maintains: names of the tables whose requests it merges, sorted; not among the others, unless it also uses them so.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    maintains: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes or self.maintains)

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
        maintained = {node.operator.topic.table for node in topology.nodes if isinstance(node.operator, Maintain)}
        return cls(tuple(sorted(_tables_read(topology))), tuple(sorted(written)), tuple(sorted(maintained)))


def _tables_read(topology: Topology) -> set[str]:
    operators = [node.operator for node in topology.sources.values()]
    topics = [each.topic for each in operators if isinstance(each, SourceOperator)]
    requests = find_request_topics(topology)
    lookups = [node.operator.lookup for node in topology.nodes if isinstance(node.operator, LookupJoin)]
    return {
        *(topic.table for topic in topics if isinstance(topic, TableTopic) and topic.name not in requests),
        *(lookup.table.name for lookup in lookups if isinstance(lookup, TableLookup)),
    }


def _tables_written(topology: Topology) -> Iterator[str]:
    for node in topology.nodes:
        operator = node.operator
        if isinstance(operator, TableSinkOperator):
            yield operator.table
        elif isinstance(operator, ApplyChanges | ToTopic) and isinstance(operator.topic, TableTopic):
            yield operator.topic.table
