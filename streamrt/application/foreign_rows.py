"""Records that an application writes to the topic of a maintained table, past its rules."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from streamrt.operators import ToTopic
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.tables.descriptions.maintenance import name_requests_topic
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics import Topic, TopicAdministration

if TYPE_CHECKING:
    from streamrt.tables import TableInfo

__all__ = ["describe_foreign_rows", "find_plain_outputs"]


def find_plain_outputs(definition: ApplicationDefinition) -> frozenset[str]:
    """Return the names of the topics that an application writes, or may write, as topics and not as tables.

    Args:
        definition: the application.
    """
    topology = definition.topology
    outputs: list[object] = [node.operator.topic for node in topology.nodes if isinstance(node.operator, ToTopic)]
    if not all(isinstance(each, Topic) for each in outputs):
        # A function chooses among the topics that are declared.
        outputs += [each for name, each in definition.topics.topics.items() if name not in topology.sources]
    outputs += [process.topic for process in definition.sources.processes]
    return frozenset(each.name for each in outputs if isinstance(each, Topic) and not isinstance(each, TableTopic))


def describe_foreign_rows(
    outputs: Collection[str],
    admin: TopicAdministration,
    load_infos: Callable[[], Collection[TableInfo]],
    timeout: float,
) -> list[str]:
    """Return a sentence for each topic that is that of a maintained table, whose application does not know such records.

    The catalogue is read only if one of the topics has another one with requests next to it.

    Args:
        outputs: names of the topics that are written.
        admin: knows which topics exist.
        load_infos: returns what the catalogue knows of its tables.
        timeout: seconds to wait for brokers.

    Raises:
        StreamRTError: if brokers or the catalogue do not answer.
    """
    requests = {name_requests_topic(name): name for name in outputs}
    found = admin.inspect_topics(list(requests), timeout) if requests else {}
    suspected = {requests[name] for name, config in found.items() if config is not None}
    if not suspected:
        return []
    return [
        f"the application writes records to topic {info.topic!r} past the rules of the maintained table {info.name!r}: the "
        f"application that maintains it does not see them, and the next request for their key overwrites them; write rows "
        f'with to_table("{info.name}"), and let an ACL of the brokers allow WRITE on the topic only to the application that '
        f"maintains the table{f', consumer group {info.maintained_by!r}' if info.maintained_by else ''}"
        for info in load_infos()
        if info.topic in suspected and info.maintenance is not None
    ]
