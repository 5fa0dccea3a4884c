"""Nodes and operators.

An operator is a frozen description; `build` turns it into a closure inside the process that runs the task. What an
operator needs from outside (somewhere to send records, somewhere to show lines) it receives then, as an
`OperatorContext`, so a description never holds a client, a store or a thread.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from streamrt.models import Headers, Tick
from streamrt.topics import Topic

if TYPE_CHECKING:
    # For their types alone: a topology works with whatever stores and sinks its operators hold.
    from streamrt.connectors import BaseSink
    from streamrt.state import State, StoreSpec, Transaction

Executor = Callable[[Any, Any, int, "Headers | None"], None]
"""Takes value, key, timestamp in milliseconds and headers of a record and passes results on to what comes below."""

StateAccess = Callable[[Any, int], "State"]
"""Takes key and timestamp in milliseconds of a record and returns the `State` of that key."""


class OperatorContext(Protocol):
    """What the surroundings of a task offer to its operators."""

    def sender(self, topic: Topic) -> Executor:
        """Return the function that serializes a record and produces it to `topic`."""

    def state(self, store: "StoreSpec") -> StateAccess:
        """Return the function that gives the state of a record's key in one of the task's stores."""

    def store(self, store: "StoreSpec") -> "Callable[[], Transaction]":
        """Return the function that gives the running transaction of one of the task's stores; call it for each record."""

    def sink(self, sink: "BaseSink") -> Executor:
        """Return the function that hands a record over to `sink`."""

    def on_tick(self, node: "Node", callback: Callable[[Tick], None]) -> None:
        """Have a function called when time has passed: at the beginning of each session, and between records."""

    def begin_portion(self) -> Callable[[], bool]:
        """Begin work of unknown length with which a tick can go on; return a function that tells whether it must stop now.

        To be asked after each step, if there is another one. It must stop when the time slice of the task is over, or the
        portion takes long. Then the task is committed, and ticked without watermarks before its next record, again and again
        until nobody must stop. An operator that may have to says so by `Operator.resumes`.
        """

    def show(self, node_id: int, item: Any) -> None:
        """Hand something printable to whoever watches the application."""


WhenAllIdle = Literal["advance", "hold"]


@dataclass(frozen=True)
class WatermarkStrategy:
    """How the watermark of a store is made.

    Attributes:
        idle_ms: after how long a partition without records is left out, in milliseconds; None for never.
        when_all_idle: what event time does while all partitions are idle: "advance" lets it run on with the wall clock from
            the newest record, "hold" keeps it there.
    """

    idle_ms: int | None
    when_all_idle: WhenAllIdle = "advance"


class Operator(abc.ABC):
    """What a node does. Implementations are frozen dataclasses."""

    name: ClassVar[str]
    """The name that messages and drawings use."""
    regroups: ClassVar[bool] = False
    """Whether records get other keys, by which those of all inputs belong together."""

    in_place: ClassVar[bool] = False
    """Whether the frame that it is added to goes on below it, or it ends a branch; otherwise a new frame does."""

    @abc.abstractmethod
    def build(self, child: Executor, node: "Node", context: OperatorContext) -> Executor:
        """Return the closure that does the work and calls `child` with its results.

        The closure keeps `node` in a default argument named `_node`: that is how an error finds the operator that
        raised it, at no cost while nothing fails.
        """

    def describe(self) -> str:
        """Return a few words for drawings and messages, such as the name of the user's function."""
        return ""

    def stores(self) -> tuple["StoreSpec", ...]:
        """Return the stores that the operator keeps state in."""
        return ()

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:
        """Return the stores that want a watermark, each with the way in which it is made."""
        return ()

    def wall_clock_stores(self) -> tuple[str, ...]:
        """Return the stores whose deadlines are on the wall clock, in milliseconds since the Unix epoch."""
        return ()

    @property
    def holds_back_ms(self) -> int | None:
        """How far results may lie behind the watermark that their task was told, in milliseconds; None if that is unbounded.

        Results of functions count as having the times of their records.
        """
        return 0

    def resumes(self) -> bool:
        """Tell whether ticks without watermarks go on with work that the operator may have left over in its store."""
        return False


class ExchangeOperator(Operator):
    """Ends a sub-topology and feeds another one through a topic, where the records have other keys.

    Attributes:
        topic: the internal topic in between; a source reads it.
    """

    regroups: ClassVar[bool] = True
    topic: Topic

    @abc.abstractmethod
    def in_memory(self) -> Operator:
        """Return the operator that does the same without the topic, for inputs of one partition."""


class MergeOperator(Operator):
    """Has several inputs, of any number of topics: the nodes `Node.parents`. All of them are in one task.

    Records come in the order of their timestamps as far as that can be known, one at a time and from one input at a time.

    Attributes:
        by_key: whether records of different inputs meet by their keys.
    """

    by_key: ClassVar[bool] = False

    @abc.abstractmethod
    def build_inputs(self, child: Executor, node: "Node", context: OperatorContext) -> tuple[Executor, ...]:
        """Return one closure for each input, in the order of `node.parents`; each calls `child` with its results.

        One node may be parent twice, as in the join of a frame with itself: its records then go to both closures, in the
        order of the inputs. Closures keep `node` in a default argument named `_node`, as those of `build` do.
        """

    def ranks(self, inputs: int) -> tuple[int, ...]:
        """Return the rank of each input: of records with equal timestamps, those of the input of lower rank come first.

        Args:
            inputs: number of inputs.
        """
        return (0,) * inputs

    def build(self, child: Executor, node: "Node", context: OperatorContext) -> Executor:
        """Refuse: a merge has no single input."""
        raise TypeError(f"{node} has {len(node.parents)} inputs: build_inputs() makes a closure for each")


class OutletOperator(Operator):
    """Hands records over to a sink.

    Attributes:
        sink: the sink.
    """

    sink: "BaseSink"


@dataclass(frozen=True)
class SourceOperator(Operator):
    """Reads a topic. Every sub-topology begins with one."""

    name: ClassVar[str] = "source"
    topic: Topic

    def build(self, child: Executor, node: "Node", context: OperatorContext) -> Executor:  # noqa: D102
        return child

    def describe(self) -> str:  # noqa: D102
        return self.topic.name


@dataclass(frozen=True)
class Node:
    """A place in the graph.

    Attributes:
        id: position in the topology; a parent's id is always lower.
        parents: ids of the nodes that feed this one: none for a source, several for a `MergeOperator`, in the order of its
            inputs; one of them may be there twice.
        operator: what the node does.
        location: file and line of the user's code that added it.
    """

    id: int
    parents: tuple[int, ...]
    operator: Operator
    location: str

    @property
    def parent(self) -> int | None:
        """Id of the only node that feeds this one, or None for a source.

        Raises:
            TypeError: for a node with several inputs.
        """
        if len(self.parents) > 1:
            raise TypeError(f"{self} has {len(self.parents)} inputs, and no single parent")
        return self.parents[0] if self.parents else None

    @property
    def label(self) -> str:
        """A name that is unique in the topology, such as `apply-3`."""
        return f"{self.operator.name}-{self.id}"

    def __str__(self) -> str:
        words = self.operator.describe()
        return f"{self.label}{f' ({words})' if words else ''} defined at {self.location}"
