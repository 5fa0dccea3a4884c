"""Which topics a pause concerns."""

from streamrt.arguments import checked, type_name
from streamrt.errors import ArgumentValueError
from streamrt.runtime.driver.life.lifecycle import RunRequest
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["moved_topics", "unread_topics"]


def moved_topics(what: str, topic: str | Topic | None, topology: Topology, run_request: RunRequest) -> list[str]:
    """Return the names of the topics that `pause(topic)` or `resume(topic)` concerns.

    Args:
        what: "pause" or "resume".
        topic: an input topic; None for all, and for everything below `group_by`.
        topology: the operators.
        run_request: what callers want so far.

    Raises:
        ArgumentTypeError: if it is not a topic.
        ArgumentValueError: if the application does not read it.
    """
    if topic is None:
        return list(topology.sources)
    checked(f"{what}(topic=...)", topic, str | Topic, "a name or a Topic", show=type_name)
    name = topic if isinstance(topic, str) else topic.name
    inputs = [each for each in topology.sources if each not in topology.exchanges]
    if name not in inputs:
        raise ArgumentValueError(
            f"{what}() got the topic {name!r}, which the application does not read; it reads {', '.join(inputs)}"
        )
    if what == "resume" and run_request.paused.issuperset(topology.sources):
        # The rest of the application must not wait for a resume() of its own.
        return [name, *topology.exchanges]
    return [name]


def unread_topics(topology: Topology, run_request: RunRequest) -> frozenset[str]:
    """Return the topics that are not read, those included that are read together with one that was paused."""
    streams = topology.streams.values()
    return frozenset(topic for topics in streams if not run_request.paused.isdisjoint(topics) for topic in topics)
