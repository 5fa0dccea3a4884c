"""All pairs of operators, one behind the other, as branches of one application.

The first operators of all pairs hang below one dataframe, and the second ones below each of them. What comes out goes to one
topic, under the name of its pair. Records are such that the order in which partitions are read does not matter: those of the
right side, which joins and `concat` bring in, are older than those of the left side, and all have one key, also behind a
`group_by`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from streamrt import Application, StreamingDataFrame, Topic
from streamrt.connectors import ListSink
from streamrt.joins import BaseField, BaseLookup, LookupBuffer
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.state import MemoryStore, State
from streamrt.windows import Count, Last, Max

KEY = "g"
"""The key of all records."""

Operator = Callable[[StreamingDataFrame, "Surroundings"], StreamingDataFrame]


@dataclass
class Surroundings:
    """Surroundings that an operator may need.

    Attributes:
        name: of the place of the operator, for stores and groupings.
        right: the dataframe to merge with.
        aside: a topic for what leaves the branch.
        sink: a sink for what leaves the branch.
    """

    name: str
    right: StreamingDataFrame
    aside: Topic
    sink: ListSink


class Double(BaseLookup[BaseField]):
    """Finds twice the number."""

    def join(self, fields: Any, on: str, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        for column in fields:
            value[column] = 2 * value["n"]


def count(name: str, value: dict[str, Any], state: State) -> dict[str, Any]:
    """Number the records of a key; each pair by itself, since results of asynchronous calls come when they come."""
    seen: int = state.get(name, 0) + 1
    state.set(name, seen)
    return {**value, "seen": seen}


async def marked(value: dict[str, Any]) -> dict[str, Any]:
    """Return to the event loop first, as a request does."""
    await asyncio.sleep(0)
    return {**value, "marked": True}


def windowed(definition: Any, *, final: bool = False) -> StreamingDataFrame:
    """Aggregate so that what follows finds the columns that it needs."""
    aggregated = definition.agg(n=Count(), g=Last("g"))
    frame: StreamingDataFrame = aggregated.final() if final else aggregated.current()
    return frame


def merged_with_itself(frame: StreamingDataFrame) -> StreamingDataFrame:
    return frame.concat(frame.apply(lambda value: {**value, "again": True}))


def looked_up(frame: StreamingDataFrame, name: str, buffer: LookupBuffer | None) -> StreamingDataFrame:
    return frame.apply(dict).join_lookup(Double(), {name: BaseField()}, on="g", buffer=buffer)


def branched(frame: StreamingDataFrame, aside: Topic) -> StreamingDataFrame:
    frame.apply(dict).to_topic(aside)
    return frame


def sunk(frame: StreamingDataFrame, sink: ListSink) -> StreamingDataFrame:
    frame.sink(sink)
    return frame


NEAR = timedelta(seconds=30)
OPERATORS: dict[str, Operator] = {
    "apply": lambda frame, around: frame.apply(lambda value: {**value, "applied": True}),
    "async": lambda frame, around: frame.apply_async(marked, timeout=2 * NEAR, ordered=False),
    "filter": lambda frame, around: frame[frame["n"] >= 0],
    "branch": lambda frame, around: branched(frame, around.aside),
    "sink": lambda frame, around: sunk(frame, around.sink),
    "to_topic": lambda frame, around: frame.apply(dict).to_topic(around.aside),
    "group_by": lambda frame, around: frame.group_by("g", name=around.name),
    "state": lambda frame, around: frame.apply(partial(count, around.name), stateful=True),
    "tumbling": lambda frame, around: windowed(frame.tumbling_window(10, name=around.name), final=True),
    "hopping": lambda frame, around: windowed(frame.hopping_window(20, 10, name=around.name)),
    "sliding": lambda frame, around: windowed(frame.sliding_window(20, name=around.name)),
    "session": lambda frame, around: windowed(frame.session_window(5, name=around.name), final=True),
    "tumbling count": lambda frame, around: windowed(frame.tumbling_count_window(2, name=around.name), final=True),
    "hopping count": lambda frame, around: windowed(frame.hopping_count_window(3, 2, name=around.name)),
    "sliding count": lambda frame, around: windowed(frame.sliding_count_window(2, name=around.name)),
    "asof": lambda frame, around: frame.join_asof(around.right, "left", "keep-left", name=around.name),
    "interval": lambda frame, around: frame.join_interval(
        around.right, "left", "keep-left", name=around.name, backward_ms=NEAR, forward_ms=NEAR
    ),
    "join": lambda frame, around: frame.join(
        around.right, how="left", on_merge="keep-left", within=NEAR, closing_strategy="partition", name=around.name
    ),
    "over": lambda frame, around: frame.over(range=NEAR, closing_strategy="partition", name=around.name).agg(
        most=Max("n")
    ),
    "drop duplicates": lambda frame, around: frame.drop_duplicates(
        within=1, grace_ms=NEAR, closing_strategy="partition", name=around.name
    ),
    "lookup": lambda frame, around: looked_up(frame, "found", None),
    "buffered lookup": lambda frame, around: looked_up(
        frame, "found", LookupBuffer(1_000, lambda value: True, store_name=around.name)
    ),
    "concat": lambda frame, around: frame.concat(around.right),
    "concat with itself": lambda frame, around: merged_with_itself(frame),
}
"""Each operator that a dataframe has, but for those that are made like others."""


@dataclass
class Matrix:
    """An application with all pairs.

    Attributes:
        left: the topic of the left side.
        right: the topic of the right side.
        out: where all results go.
        partitions: how many partitions the topics have.
    """

    left: Topic
    right: Topic
    out: Topic
    partitions: int

    @property
    def partition(self) -> int:
        """The partition of all records: that of the key as `group_by` writes it, so that grouped frames meet others."""
        return partition_for(f'"{KEY}"'.encode(), self.partitions)

    def records(self, part: int = 0) -> Iterator[tuple[Topic, dict[str, Any], int]]:
        """Yield topic, value and timestamp of the records, in the order in which they are to be written.

        Args:
            part: number of the part; those of a later part are newer.
        """
        begin = 10_000 * (part + 1)
        for index in range(2):
            # The last one is as old as the first one of the left side, and must come before it.
            yield self.right, {"n": index, "g": KEY, "right": True}, begin + 1_000 * index
        for index in range(6):
            yield self.left, {"n": index, "g": KEY, "left": True}, begin + 1_000 + 7 * index


PAIRS = [(first, second) for first in OPERATORS for second in OPERATORS]
GROUPED = [pair for pair in PAIRS if "group_by" in pair]
"""Where the number of partitions matters: on one, a `group_by` needs no topic."""


def build(app: Application, prefix: str, partitions: int, pairs: list[tuple[str, str]], out: Topic) -> Matrix:
    """Add pairs of operators to an application.

    Args:
        app: the application.
        prefix: begins the names of topics.
        partitions: how many partitions the topics have.
        pairs: the pairs.
        out: where all results go.
    """
    config = TopicConfig(partitions, 1)
    left, right, aside = (
        app.topic(f"{prefix}-{side}", key_deserializer="str", key_serializer="str", config=config)
        for side in ("left", "right", "aside")
    )
    frame, other = app.dataframe(left), app.dataframe(right)
    for each in (frame, other):
        # There are hundreds of stores, and how they are kept is tested elsewhere.
        each.register_store(MemoryStore)
    sink = ListSink()
    below: dict[str, StreamingDataFrame] = {}
    for first, second in pairs:
        name = first.replace(" ", "-")
        if first not in below:
            below[first] = OPERATORS[first](frame, Surroundings(name, other, aside, sink))
        place = f"{name}_{second.replace(' ', '-')}"
        result = OPERATORS[second](below[first], Surroundings(place, other, aside, sink))
        _tell(result, f"{prefix}: {first}, {second}", out)
    return Matrix(left, right, out, partitions)


def _tell(frame: StreamingDataFrame, pair: str, out: Topic) -> None:
    told = frame.apply(lambda value, key, timestamp, headers: [pair, value, key, timestamp], metadata=True)
    told.to_topic(out, key=lambda value: value[0])
