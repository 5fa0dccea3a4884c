"""Whether the sides of a join write the same key as the same bytes: only then is it in partitions of one number."""

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
    """Warn where a `group_by` writes keys in another form than the topic has that it is joined with.

    By default, `group_by` writes keys as JSON, where text has quotes: other bytes, and so another partition. Serializers
    that are no plain ones of ours are not judged.

    Args:
        topology: the operators, resolved: a `group_by` that needs no topic writes nothing.
    """
    for node in topology.nodes:
        if not (isinstance(node.operator, MergeOperator) and node.operator.by_key):
            continue
        topics = [root.operator.topic for root in topology.roots(node) if isinstance(root.operator, SourceOperator)]
        grouped = [topic for topic in topics if topic.name in topology.exchanges]
        formats = {topic.name: _format(topic, written=topic in grouped) for topic in topics}
        known = {name: form for name, form in formats.items() if form is not None}
        if grouped and len(set(known.values())) > 1:
            logger.warning(
                "%s joins records whose keys are written in different forms (%s): equal keys lie in different partitions and "
                "do not meet; give group_by the form of the other side, such as key_serializer='str', key_deserializer='str'",
                node,
                ", ".join(f"{name}: {form}" for name, form in known.items()),
            )


def _format(topic: Topic, *, written: bool) -> str | None:
    return _FORMATS.get(type(topic.key_serializer if written else topic.key_deserializer))
