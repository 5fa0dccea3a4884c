"""Parts of a program with known outputs: its steps, its topics, and the list of all programs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamrt import Application, StreamingDataFrame
from streamrt.kafka import TopicConfig

Clock = Literal["watermark", "partition"]

DOT = "·"
"""A value that does not matter."""

MINUTE = 60_000


@dataclass(frozen=True)
class In:
    """A record of an input."""

    key: str | None
    value: Any
    timestamp: int
    topic: str = "in"
    partition: int = 0


@dataclass(frozen=True)
class Together:
    """Values that come at once, with key `k` at time 0."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Advance:
    """The wall clock of the test driver moves, by milliseconds."""

    by: int


@dataclass(frozen=True)
class End:
    """Time ends."""


@dataclass(frozen=True)
class Out:
    """A record that has come out before the next input."""

    key: str | None
    value: Any
    timestamp: int
    topic: str = "out"

    @property
    def written(self) -> "Out":
        """The record as it is in the topic: Kafka's client takes the timestamp 0 for "now", so 1 is written."""
        return replace(self, timestamp=self.timestamp or 1)


Step = In | Together | Advance | End | Out
END = End()


class Parts:
    """The topics of one program in an application.

    Args:
        app: the application.
        clock: the clock of timers and windows, where the program leaves it open.
        partitions: numbers of partitions of its topics, where they are not 1.
        prefix: what names of topics begin with.
    """

    def __init__(
        self,
        app: Application,
        clock: Clock = "watermark",
        partitions: Mapping[str, int] | None = None,
        prefix: str = "",
    ) -> None:
        self.clock = clock
        self.outputs: list[str] = []
        self._app, self._partitions, self._prefix = app, partitions or {}, prefix

    def name(self, topic: str) -> str:
        return self._prefix + topic

    def frame(self, topic: str = "in", source: Any = None, **settings: Any) -> StreamingDataFrame:
        config = TopicConfig(self._partitions.get(topic, 1), 1)
        declared = self._app.topic(self.name(topic), "json", "str", "json", "str", config=config, **settings)
        return self._app.dataframe(declared, source)

    def put_out(self, frame: StreamingDataFrame, topic: str = "out") -> None:
        self.outputs.append(topic)
        frame.to_topic(self._app.topic(self.name(topic), "json", "str", "json", "str"))


@dataclass(frozen=True)
class Program:
    """A program, and what is known of it.

    Attributes:
        name: its name.
        build: declares its dataframes.
        script: inputs, each followed by what then comes out.
        partitions: numbers of partitions of its topics, where they are not 1.
        clocks: the clocks with which this is so.
        in_driver_alone: why it does not run on Spark.
        has_source: whether a source brings the records of the script.
    """

    name: str
    build: Callable[[Parts], None]
    script: tuple[Step, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)
    clocks: tuple[Clock, ...] = ("watermark", "partition")
    in_driver_alone: str = ""
    has_source: bool = False

    def records(self) -> Iterator[In]:
        """Yield what goes in, in order."""
        for step in self.script:
            if isinstance(step, In):
                yield step
            elif isinstance(step, Together):
                yield from (In("k", value, 0) for value in step.values)

    def expected(self, topic: str) -> list[Out]:
        """Return all that is in a topic at the end."""
        return [step.written for step in self.script if isinstance(step, Out) and step.topic == topic]


BY_HAND = "the clock is moved by hand"
ALL: list[Program] = []


def program(name: str, *script: Step, **options: Any) -> Callable[[Callable[[Parts], None]], Callable[[Parts], None]]:
    """Make a function that declares dataframes a program."""

    def add(build: Callable[[Parts], None]) -> Callable[[Parts], None]:
        ALL.append(Program(name, build, script, **options))
        return build

    return add
