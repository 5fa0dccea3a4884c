"""Stores with the rows of tables, which must have all rows of their inputs, as the operators above make them."""

import logging
from collections.abc import Mapping

from streamrt.kafka import TopicAdmin
from streamrt.records import TopicPartition
from streamrt.relations import MapRows
from streamrt.runtime.layout_record import GroupLayout
from streamrt.runtime.spec import TaskSpec
from streamrt.topology import Node, SourceOperator, Topology

__all__ = ["describe_rows", "find_row_stores", "warn_of_missing_rows"]

logger = logging.getLogger("streamrt")


def find_row_stores(topology: Topology) -> Mapping[tuple[str, str], Node]:
    """Return the stores with rows, by scope and name, each with its operator."""
    return {
        (topology.scope(node), store.name): node
        for node in topology.nodes
        if node.operator.keeps_rows
        for store in node.operator.stores()
    }


def describe_rows(topology: Topology, node: Node) -> tuple[str, ...]:
    """Return a text for each input of an operator with rows: where its rows come from, and what changes them on the way.

    What functions do is not part of it.

    Args:
        topology: the operators of the application.
        node: the operator.
    """
    nodes = {each.id: each for each in topology.nodes}

    def describe_input(above: Node) -> str:
        operator = above.operator
        if isinstance(operator, SourceOperator):
            name = operator.topic.name
            exchange = topology.exchanges.get(name)
            return name if exchange is None else describe_input(exchange)
        if operator.stores():
            return f"{operator.stores()[0].name} of {topology.scope(above)}"
        told = f"{operator.does if isinstance(operator, MapRows) else operator.name} {operator.describe()}".strip()
        return " > ".join((*(describe_input(nodes[parent]) for parent in above.parents[:1]), told))

    return tuple(f"input {number} {describe_input(nodes[each])}" for number, each in enumerate(node.parents, 1))


def warn_of_missing_rows(spec: TaskSpec, admin: TopicAdmin, former: GroupLayout | None, timeout: float) -> None:
    """Warn of each new store that lacks rows, because its group has read an input further already.

    Args:
        spec: the complete specification.
        admin: client for topics and offsets.
        former: the layout of the group before this start; None if it had none.
        timeout: seconds to wait for each response of the cluster.
    """
    before = {} if former is None else former.stores
    new = [each for each in find_row_stores(spec.topology) if each not in before]
    if not new:
        return
    topics = {topic for scope, _ in new for topic in spec.topology.scopes[scope]}
    places = [TopicPartition(topic, number) for topic in topics for number in range(spec.partition_counts[topic])]
    found = admin.committed_now(spec.group, places, timeout=timeout)
    behind = [each for each in places if found[each].offset is not None]
    begins = admin.offset_bounds(behind, timeout=timeout) if behind else {}
    read = {each.topic for each in behind if (found[each].offset or 0) > begins[each][0]}
    for scope, store in sorted(new):
        passed = sorted(read.intersection(spec.topology.scopes[scope]))
        if passed:
            logger.warning(
                "store %r of %s is new, and consumer group %r has read %s before: rows from then are missing in it, and in "
                "what is computed from it, until they are written again; `streamrt reset` lets the application read all rows",
                store,
                scope,
                spec.group,
                " and ".join(passed),
            )
