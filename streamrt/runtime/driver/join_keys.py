"""Checks that the sides of a join serialize keys alike: only then are equal keys in partitions of the same number."""

import logging

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
from streamrt.topology import MergeOperator, SourceOperator, Topology

logger = logging.getLogger("streamrt")

_FORMATS: dict[type, str] = {
    BytesSerializer: "bytes",
    BytesDeserializer: "bytes",
    DoubleSerializer: "double",
    DoubleDeserializer: "double",
    IntegerSerializer: "int",
    IntegerDeserializer: "int",
    JSONSerializer: "json",
    JSONDeserializer: "json",
    StringSerializer: "str",
    StringDeserializer: "str",
}


def warn_of_unlike_keys(topology: Topology) -> None:
    """Warn if a `group_by` serializes keys in another format than the topic that it is joined with.

    By default, `group_by` writes keys as JSON, in which text has quotes: different bytes, and so another partition.
    Only the plain serializers of StreamRT are checked.

    Args:
        topology: the operators, resolved, because a `group_by` without a topic serializes no keys.
    """
    for node in topology.nodes:
        if not (isinstance(node.operator, MergeOperator) and node.operator.by_key):
            continue
        topics = [root.operator.topic for root in topology.roots(node) if isinstance(root.operator, SourceOperator)]
        topics = [topic for topic in topics if topic.name not in topology.broadcasts]
        grouped = [topic for topic in topics if topic.name in topology.exchanges]
        formats = {topic.name: _format(topic, written=topic in grouped) for topic in topics}
        known = {name: form for name, form in formats.items() if form is not None}
        if grouped and len(set(known.values())) > 1:
            logger.warning(
                "%s joins records whose keys have different formats (%s): equal keys are in different partitions and do not "
                "match; give group_by the format of the other side, such as key_serializer='str', key_deserializer='str'",
                node,
                ", ".join(f"{name}: {form}" for name, form in known.items()),
            )


def _format(topic: Topic, *, written: bool) -> str | None:
    return _FORMATS.get(type(topic.key_serializer if written else topic.key_deserializer))
