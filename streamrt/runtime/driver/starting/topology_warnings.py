"""Warnings of a start about what a topology probably does not mean: results that nothing uses, and joins that never match."""

import logging

from streamrt.errors import ConfigurationError
from streamrt.operators import Apply
from streamrt.relations import ExactDeserializer, ExactSerializer
from streamrt.serializers import (
    BytesDeserializer,
    BytesSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    StringDeserializer,
    StringSerializer,
)
from streamrt.topics import Topic
from streamrt.topology import MergeOperator, Node, SourceOperator, Topology

logger = logging.getLogger("streamrt")

_FORMATS: dict[type, str] = {
    BytesSerializer: "bytes",
    BytesDeserializer: "bytes",
    DoubleSerializer: "double",
    DoubleDeserializer: "double",
    # Strings, whole numbers and lists of them are the same bytes in both forms.
    ExactSerializer: "json",
    ExactDeserializer: "json",
    IntegerSerializer: "int",
    IntegerDeserializer: "int",
    JSONSerializer: "json",
    JSONDeserializer: "json",
    StringSerializer: "str",
    StringDeserializer: "str",
}


def check_unlike_keys(topology: Topology) -> None:
    """Check that a `group_by` serializes keys in the format of the topic that it is joined with.

    By default, `group_by` writes keys as JSON, in which text has quotes: different bytes, and so another partition. Joins of
    streams are warned of. A table that would miss rows is refused. Only the plain serializers of StreamRT are checked.

    Args:
        topology: the operators, resolved, because a `group_by` without a topic serializes no keys.

    Raises:
        ConfigurationError: if the sides of a join of tables have keys of different formats.
    """
    for node in topology.nodes:
        if not (isinstance(node.operator, MergeOperator) and node.operator.by_key):
            continue
        topics = [root.operator.topic for root in topology.roots(node) if isinstance(root.operator, SourceOperator)]
        topics = [topic for topic in topics if topic.name not in topology.broadcasts]
        grouped = [topic for topic in topics if topic.name in topology.exchanges]
        formats = {topic.name: _key_format(topic, written=topic in grouped) for topic in topics}
        known = {name: form for name, form in formats.items() if form is not None}
        if not grouped or len(set(known.values())) < 2:
            continue
        listed = ", ".join(f"{name}: {form}" for name, form in known.items())
        problem = (
            f"{node} joins records whose keys have different formats ({listed}): equal keys are in different partitions and "
            "do not match; give group_by the format of the other side, such as key_serializer='str', key_deserializer='str'"
        )
        if node.operator.updates:
            raise ConfigurationError(f"{problem}, or join(..., on=...) by the columns of the key")
        logger.warning("%s", problem)


def _key_format(topic: Topic, *, written: bool) -> str | None:
    return _FORMATS.get(type(topic.key_serializer if written else topic.key_deserializer))


def warn_of_dropped_results(topology: Topology, *, collected: bool) -> None:
    """Warn about operators whose new frame is unused, such as `sdf.filter(...)` without assignment.

    Args:
        topology: the operators, not resolved, so that a `group_by` without a successor is also found.
        collected: whether the outputs of branch ends are collected. Then an end is a result, unless the original frame
            was used for an output afterwards, as if the operator had changed it in place.
    """
    for node in _find_dropped_nodes(topology, collected=collected):
        advice = (
            ", or use update() for a function that is called for its effect" if isinstance(node.operator, Apply) else ""
        )
        logger.warning(
            "%s returns a new frame that is not used, and does not change the frame that it was called on: assign the "
            "new frame and continue with it, as in sdf = sdf.filter(...)%s",
            *(node, advice),
        )


def _find_dropped_nodes(topology: Topology, *, collected: bool) -> list[Node]:
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
