"""A topology as plain data, and as a Mermaid diagram of this data.

The data has only strings and lists, so that it can be sent as JSON: names of operators and topics, no settings and no values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamrt.topics import Topic
from streamrt.topics.internal import changelog_topic_name
from streamrt.topology.graph import Topology
from streamrt.topology.node import Node, SourceOperator

__all__ = ["NodeData", "StoreData", "StreamData", "TopologyData"]

_BRACKETS = {"source": ("([", "])"), "sink": ("[/", "/]")}


@dataclass(frozen=True)
class NodeData:
    """An operator.

    Attributes:
        id: name that is unique in the topology, such as "apply-3".
        operator: kind of the operator, such as "apply".
        description: name of its function or topic; may be empty.
        location: file and line of the code that added it.
        stream: the stream that it belongs to.
        parents: ids of the operators whose results it gets.
        reads: name of the topic that it reads; empty for operators that read none.
        writes: name of the topic that it writes; empty if it writes none, or if a function chooses the topic.
    """

    id: str
    operator: str
    description: str
    location: str
    stream: str
    parents: tuple[str, ...]
    reads: str
    writes: str


@dataclass(frozen=True)
class StoreData:
    """A store.

    Attributes:
        name: its name in the tasks.
        scope: the topics that it belongs to, joined by `--`.
        changelog: name of its changelog topic; empty if it has none.
    """

    name: str
    scope: str
    changelog: str


@dataclass(frozen=True)
class StreamData:
    """A part of the topology that one task runs for each partition.

    Attributes:
        name: its name.
        topics: the topics that it reads.
        stores: its stores.
        sends_to: the repartition topics that it writes.
    """

    name: str
    topics: tuple[str, ...]
    stores: tuple[StoreData, ...]
    sends_to: tuple[str, ...]


@dataclass(frozen=True)
class TopologyData:
    """The description of a topology.

    Attributes:
        nodes: the operators, parents first.
        streams: the streams.
    """

    nodes: tuple[NodeData, ...]
    streams: tuple[StreamData, ...]

    @classmethod
    def of(cls, topology: Topology, group: str, *, changelogs: bool) -> "TopologyData":
        """Describe a topology.

        Args:
            topology: the graph.
            group: the consumer group, which is part of the names of internal topics.
            changelogs: whether stores have changelog topics.
        """
        labels = {node.id: node.label for node in topology.nodes}
        nodes = tuple(
            NodeData(
                id=node.label,
                operator=node.operator.name,
                description=node.operator.describe(),
                location=node.location,
                stream=topology.stream_of(node),
                parents=tuple(labels[parent] for parent in dict.fromkeys(node.parents)),
                reads=_source_topic(node) if isinstance(node.operator, SourceOperator) else "",
                writes="" if isinstance(node.operator, SourceOperator) else _source_topic(node),
            )
            for node in topology.nodes
        )
        streams = tuple(
            StreamData(
                name=stream,
                topics=tuple(sources),
                stores=tuple(
                    StoreData(
                        name,
                        store.scope,
                        changelog_topic_name(group, store.scope, store.spec.name) if changelogs else "",
                    )
                    for name, store in topology.task_stores(stream).items()
                ),
                sends_to=tuple(
                    topic for topic, node in topology.exchanges.items() if topology.stream_of(node) == stream
                ),
            )
            for stream, sources in topology.streams.items()
        )
        return cls(nodes, streams)

    def as_dict(self) -> dict[str, Any]:
        """Return the description as dicts, lists and strings."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> "TopologyData":
        """Return the description from what `as_dict` returned, or from its JSON."""
        return cls(
            nodes=tuple(NodeData(**{**node, "parents": tuple(node["parents"])}) for node in found["nodes"]),
            streams=tuple(
                StreamData(
                    name=stream["name"],
                    topics=tuple(stream["topics"]),
                    stores=tuple(StoreData(**store) for store in stream["stores"]),
                    sends_to=tuple(stream["sends_to"]),
                )
                for stream in found["streams"]
            ),
        )

    def as_mermaid(self) -> str:
        """Return the description as a Mermaid flowchart: a frame for each stream, topics and stores between and in them.

        Example:
            ```text
            flowchart TD
              topic0[["orders"]]
              subgraph stream0["stream orders"]
                node_source_0(["source-0 (orders)"])
                ...
            ```
        """
        topics = list(dict.fromkeys(name for node in self.nodes for name in (node.reads, node.writes) if name))
        numbers = {topic: f"topic{number}" for number, topic in enumerate(topics)}
        lines = ["flowchart TD", *(f"  {numbers[topic]}[[{_quote_text(topic)}]]" for topic in topics)]
        edges: list[str] = []
        for number, stream in enumerate(self.streams):
            lines.append(f"  subgraph stream{number}[{_quote_text(f'stream {stream.name}')}]")
            for place, store in enumerate(stream.stores):
                lines.append(f"    store{number}_{place}[({_quote_text(f'store {store.name}')})]")
            for node in self.nodes:
                if node.stream == stream.name:
                    left, right = _BRACKETS.get(node.operator, ("[", "]"))
                    words = f"{node.id} ({node.description})" if node.description else node.id
                    lines.append(f"    {_node_name(node)}{left}{_quote_text(words)}{right}")
            lines.append("  end")
        for node in self.nodes:
            if node.reads:
                edges.append(f"  {numbers[node.reads]} --> {_node_name(node)}")
            edges += [f"  {_node_name(parent)} --> {_node_name(node)}" for parent in node.parents]
            if node.writes:
                edges.append(f"  {_node_name(node)} --> {numbers[node.writes]}")
        return "\n".join([*lines, *edges])


def _source_topic(node: Node) -> str:
    topic = getattr(node.operator, "topic", None)
    return topic.name if isinstance(topic, Topic) else ""


def _node_name(node: NodeData | str) -> str:
    """Return a name that is an identifier in Mermaid, whatever words it reserves."""
    return "node_" + (node if isinstance(node, str) else node.id).replace("-", "_")


def _quote_text(text: str) -> str:
    """Return a text for Mermaid, where quotes, brackets and markup must not end it or become HTML."""
    special: Iterable[str] = '#&<>"`'
    return '"' + "".join(f"#{ord(each)};" if each in special else each for each in " ".join(text.split())) + '"'
