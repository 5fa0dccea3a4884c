"""Finds unused results in a topology: an operator returned a new frame that was not assigned."""

import logging

from streamrt.operators import Apply
from streamrt.topology import Node, Topology

logger = logging.getLogger("streamrt")


def warn_of_dropped_results(topology: Topology, *, collected: bool) -> None:
    """Warn about operators whose new frame is unused, such as `sdf.filter(...)` without assignment.

    Args:
        topology: the operators, not resolved, so that a `group_by` without a successor is found, too.
        collected: whether the outputs of branch ends are collected. Then an end is a result, unless the original frame
            was used for an output afterwards, as if the operator had changed it in place.
    """
    for node in _dropped(topology, collected=collected):
        advice = (
            ", or use update() for a function that is called for its effect" if isinstance(node.operator, Apply) else ""
        )
        logger.warning(
            "%s returns a new frame that is not used, and does not change the frame that it was called on: assign the "
            "new frame and continue with it, as in sdf = sdf.filter(...)%s",
            *(node, advice),
        )


def _dropped(topology: Topology, *, collected: bool) -> list[Node]:
    followers = {node.id: topology.children.get(node.id, ()) for node in topology.nodes}
    followers.update({node.id: followers[topology.sources[name].id] for name, node in topology.exchanges.items()})
    used: set[int] = set()
    # Successors of a node have higher ids.
    for node in reversed(topology.nodes):
        if node.operator.in_place or any(other.id in used for other in followers[node.id]):
            used.add(node.id)
    # Branches without output whose frame has a branch with output that was added later.
    passed_by: set[int] = set()
    feeding = {topology.sources[name].id: (node.id,) for name, node in topology.exchanges.items()}
    for node in topology.nodes:
        above = feeding.get(node.id, node.parents)
        beside = [other.id for parent in above for other in followers[parent]]
        if node.id not in used and (
            not passed_by.isdisjoint(above) or any(other > node.id and other in used for other in beside)
        ):
            passed_by.add(node.id)
    ends = (node for node in topology.nodes if node.parents and not node.operator.in_place and not followers[node.id])
    return [node for node in ends if not collected or node.id in passed_by]
