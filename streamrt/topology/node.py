"""Nodes and operators.

An operator is a frozen description; `build` turns it into a closure in the process that runs the task. `build` gets
the services that the operator needs (to send records, to show lines) as an `OperatorContext`, so a description never
holds a client, a store or a thread.
"""

import abc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from streamrt.records import Headers, Tick
from streamrt.topics import Topic, WatermarkStrategy
from streamrt.topology.inlined import InlinedCode
from streamrt.topology.task_access import TaskAccess

if TYPE_CHECKING:
    # For type annotations only: a topology works with any stores and sinks that its operators hold.
    from streamrt.connectors import BaseSink
    from streamrt.state.access.keyed_state import KeyedState
    from streamrt.state.base import Transaction
    from streamrt.state.spec import StoreSpec

RecordHandler = Callable[[Any, Any, int, Headers | None], None]
"""Function of value, key, timestamp (ms) and headers of a record; passes its results to the operators below."""

PartitionSender = Callable[[Any, Any, int, Headers | None, int], None]
"""Function of value, key, timestamp (ms), headers and partition of a record; serializes it and produces it there."""

StateAccess = Callable[[Any, int], "KeyedState"]
"""Function of key and timestamp (ms) of a record; returns the `State` of that key, for one call."""


@dataclass(frozen=True)
class AsyncCalls:
    """How an operator makes asynchronous calls.

    Attributes:
        start: begins the call for a record; runs in the event loop.
        finish: takes result, error, whether the time was over, and value, key, timestamp and headers of the record; runs
            in the thread of the task, and passes results on.
        timeout_s: maximum duration of a call in seconds.
        capacity: maximum number of records whose results have not been passed on.
        ordered: whether results keep the order of their records.
        name: name of the function, for log lines.
    """

    start: Callable[[Any, Any, int, Headers | None], Awaitable[Any]]
    finish: Callable[[Any, BaseException | None, bool, Any, Any, int, Headers | None], None]
    timeout_s: float
    capacity: int
    ordered: bool
    name: str


class HeldRecords(Protocol):
    """Records that an operator keeps in memory for a while; see `TaskServices.hold_records`."""

    def __len__(self) -> int:
        """Return the number of records."""

    def take(self) -> "tuple[Any, Any, int, Headers | None] | None":
        """Take out the first record; None if it need not be passed on."""

    def clear(self) -> None:
        """Forget all records."""


class TaskServices(Protocol):
    """The services of a task for all of its operators."""

    @property
    def repeats_records(self) -> bool:
        """Whether a record may be repeated when one store has what it changed, and another one has not: at least once."""

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        """Return the function that serializes a record and produces it to `topic`.

        Args:
            topic: the topic.
            copies: number of partitions that each get a copy; 0 for one record in the partition of its key.
        """

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        """Return the function that produces a record to a partition of `topic`, and the number of these at the start."""

    def make_passage(self, topic: Topic, node: "Node", child: RecordHandler) -> RecordHandler:
        """Return the function that passes a record to `child` as if it had been produced to a topic and read from it.

        Args:
            topic: the topic, which need not exist.
            node: the node of the exchange.
            child: takes the record; its errors are those of a record behind the topic.
        """

    def state(self, store: "StoreSpec") -> StateAccess:
        """Return the function that returns the state of a record's key in one of the task's stores."""

    def store(self, store: "StoreSpec") -> "Callable[[], Transaction]":
        """Return the function that returns the running transaction of a store; call it for each record."""

    def follow(self, store: "StoreSpec", changed: "Callable[[Transaction], None]") -> None:
        """Have a function called with the running transaction of a store, before the first record and tick of each one."""

    def access(self, store: "StoreSpec") -> TaskAccess:
        """Return what the operator with a store can learn of its tasks, and its metrics."""

    def sink(self, sink: "BaseSink", check: Callable[[Any], Any] | None = None) -> RecordHandler:
        """Return the function that passes a record to `sink`.

        `check` returns what the sink gets instead of the value; its SerializationError is one of the sink, of this record.
        """

    def on_tick(self, node: "Node", callback: Callable[[Tick], None]) -> None:
        """Register a function to call when time has passed: before the first record of each cycle, and between records."""

    def begin_portion(self, node: "Node") -> Callable[[], bool]:
        """Begin work of unknown length; return a function that returns whether the operator must stop now.

        Call it before each step. It returns True when the time slice of the task is over, when the portion takes long, or
        when another operator has stopped; before the first step only in the last case. What a step has made due below
        (`when_complete`) is done before the next one. The task is then committed, and ticked without watermarks before its
        next record, repeatedly until no operator must stop. An operator that may stop returns True from `Operator.resumes`.

        Args:
            node: the node of the operator.
        """

    def when_complete(self, node: "Node", work: Callable[[], None]) -> None:
        """Do work of unknown length when the operator has everything that the current input record becomes.

        That is at once, unless an operator above may make several records of one (`Topology.multiplied`). Then work between
        two of them could not stop, because the second one must find it done. So it follows the last one: behind the input
        record, the current step of an operator above, or the record of an exchange in memory.

        Args:
            node: the node of the operator.
            work: the work, which calls `begin_portion`. It is done once, even if it is given several times.
        """

    def asynchronous(self, node: "Node", calls: AsyncCalls) -> RecordHandler:
        """Return the function that begins an asynchronous call for a record; the task passes on its result later.

        All results are passed on before the task is committed, is ticked, or another task begins.
        """

    def hold_records(self, held: HeldRecords, child: RecordHandler) -> Callable[[], None] | None:
        """Have records that an operator keeps in memory passed on before the task is committed, is ticked, or gives way.

        Args:
            held: the records. They are forgotten when the task is aborted.
            child: takes them.

        Returns:
            The function that passes them on at once; None if the operator must keep none, because a record that is skipped
            must have no effect.
        """

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the process has no more work for the application."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Have a count read at each report, for metrics; see `Tallies.watch`."""

    def show(self, node_id: int, item: Any) -> None:
        """Send printable output to the process that displays it."""


class OperatorContext(TaskServices, Protocol):
    """The services of a task for one of its operators."""

    def side_output(self, tag: str) -> RecordHandler | None:
        """Return the function that takes records of one of the operator's side outputs; None if nothing is below it."""


class Operator(abc.ABC):
    """The operation of a node. Implementations are frozen dataclasses."""

    name: ClassVar[str]
    """The name in messages and drawings."""
    regroups: ClassVar[bool] = False
    """Whether records get new keys, which group the records of all inputs."""

    separates: ClassVar[bool] = False
    """Whether each of its results is a record with a course of its own, which other results do not wait for."""

    in_place: ClassVar[bool] = False
    """Whether it changes its frame in place, or ends a branch; otherwise it makes a new frame."""

    keeps_rows: ClassVar[bool] = False
    """Whether its stores have rows of tables, which are right only if all rows of its inputs have passed it."""

    passes_on_last: ClassVar[bool] = False
    """Whether it passes on a record at most once, as the last thing that it does: the outputs below need not be held."""

    def inline(self, code: InlinedCode) -> bool:
        """Add the lines that do the work on a record; what is below comes behind them, once for each record at most.

        Args:
            code: takes the lines.

        Returns:
            False if the operator needs a closure, which `build` makes.
        """
        return False

    def build(self, child: RecordHandler, node: "Node", context: OperatorContext) -> RecordHandler:
        """Return the closure that does the work and calls `child` with its results; by default, made of inlined lines.

        The closure keeps `node` in a default argument named `_node`. With it, an error finds the operator that raised
        it, at no cost otherwise.

        Raises:
            TypeError: if the operator has no lines.
        """
        code = InlinedCode(context)
        if not self.inline(code):
            raise TypeError(f"{type(self).__name__} has neither build() nor inline()")
        return code.close_over(child, node)

    def describe(self) -> str:
        """Return a short description for drawings and messages, such as the name of the user's function."""
        return ""

    def stores(self) -> tuple["StoreSpec", ...]:
        """Return the stores of the operator."""
        return ()

    def keeps(self) -> tuple[str, ...]:
        """Return what the operator keeps in its stores, one text for each part: a version that keeps others is noticed."""
        return (type(self).__name__,)

    def record_key(self, key: Any) -> Any:
        """Return the record key that a key of the operator's stores belongs to, if it is another one."""
        return key

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:
        """Return the stores that need a watermark, each with its strategy."""
        return ()

    def wall_clock_stores(self) -> tuple[str, ...]:
        """Return the stores whose deadlines are on the wall clock, in milliseconds since the Unix epoch."""
        return ()

    @property
    def holds_back_ms(self) -> int | None:
        """Maximum distance of results behind the watermark of their task, in milliseconds; None if unbounded.

        Results of users' functions count as having the timestamps of their records.
        """
        return 0

    def multiplies_records(self) -> bool:
        """Return whether one record may have several results."""
        return False

    def resumes(self) -> bool:
        """Return whether the operator may leave work in its store, which ticks without watermarks continue."""
        return False

    def begins(self) -> bool:
        """Return whether the operator has results before its first record; the first tick of an open task gives them."""
        return False

    def ends(self) -> bool:
        """Return whether the operator waits for time, and has work to do at the end of a bounded run (`Tick.final`)."""
        return False

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:
        """Return whether keys, and values in some columns, are below the operator what they are above it.

        Args:
            columns: names of the columns.
        """
        return False

    def side_outputs(self) -> "tuple[SideOutput, ...]":
        """Return the side outputs of the operator."""
        return ()

    def timed(self) -> bool:
        """Return whether time causes results, so that the same records may give them at another moment."""
        return False


class ExchangeOperator(Operator):
    """Ends a sub-topology and feeds another one through a topic, in which the records have new keys.

    Attributes:
        topic: the internal topic in between; a source reads it.
    """

    regroups: ClassVar[bool] = True
    copies: ClassVar[bool] = False
    """Whether each partition of the topic gets each record, so that records keep their keys."""
    topic: Topic

    @property
    def sized_by(self) -> str | None:
        """The topic that decides on the number of partitions; None for the input of the exchange."""
        return None

    def sized(self, partitions: int, like: str) -> "ExchangeOperator":
        """Return the operator for a topic with a number of partitions, and the name of a topic that has as many."""
        return self


@dataclass(frozen=True)
class InMemoryExchange(Operator):
    """An exchange between frames of one partition: it needs no topic.

    Records pass through the serializers and deserializers of the topic, so they are what they would be behind it.

    Attributes:
        exchange: the exchange.
    """

    separates: ClassVar[bool] = True
    exchange: ExchangeOperator

    def multiplies_records(self) -> bool:
        """Return whether a value of the topic may contain several records, or the exchange sends several."""
        return self.exchange.topic.value_deserializer.split_values or self.exchange.multiplies_records()

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the exchange."""
        return self.exchange.name

    @property
    def regroups(self) -> bool:  # type: ignore[override]
        """Whether records get new keys; those of a broadcast keep theirs."""
        return not self.exchange.copies

    def build(self, child: RecordHandler, node: "Node", context: OperatorContext) -> RecordHandler:  # noqa: D102
        passage = context.make_passage(self.exchange.topic, node, child)
        operator = self.exchange.sized(1, "")
        return operator.build(child, node, cast("OperatorContext", _InMemory(passage)))

    def describe(self) -> str:  # noqa: D102
        return self.exchange.describe()


@dataclass(frozen=True)
class _InMemory:
    """The parts of their context that exchanges need; their topic is a passage."""

    passage: RecordHandler

    repeats_records: ClassVar[bool] = False
    """Their topic is not an output that is durable before stores, so they must drop nothing that is repeated."""

    def sender(self, topic: Topic, copies: int = 0) -> RecordHandler:
        return self.passage

    def partition_sender(self, topic: Topic) -> tuple[PartitionSender, int]:
        passage = self.passage

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None, partition: int) -> None:
            passage(value, key, timestamp, headers)

        return send, 1


class MergeOperator(Operator):
    """Has several inputs, the nodes `Node.parents`, from any number of topics. All of them are in one task.

    Records arrive in the order of their timestamps, as far as it is known: one at a time, from one input at a time.

    Attributes:
        by_key: whether the operator matches records of different inputs by key.
        takes_early: whether records of a lower rank than others may come before their time, without an effect on results.
        updates: whether the values of its inputs are changes of rows.
    """

    by_key: ClassVar[bool] = False
    takes_early: ClassVar[bool] = False
    updates: ClassVar[bool] = False

    @abc.abstractmethod
    def build_inputs(self, child: RecordHandler, node: "Node", context: OperatorContext) -> tuple[RecordHandler, ...]:
        """Return one closure for each input, in the order of `node.parents`; each calls `child` with its results.

        One node may be a parent twice, as in the join of a frame with itself. Its records then go to both closures, in
        the order of the inputs. Closures keep `node` in a default argument named `_node`, like those of `build`.
        """

    def ranks(self, inputs: int) -> tuple[int, ...]:
        """Return the rank of each input: among records with equal timestamps, those of the lower rank come first.

        Args:
            inputs: number of inputs.
        """
        return (0,) * inputs

    def build(self, child: RecordHandler, node: "Node", context: OperatorContext) -> RecordHandler:
        """Refuse: a merge has no single input."""
        raise TypeError(f"{node} has {len(node.parents)} inputs: build_inputs() makes a closure for each")


class OutletOperator(Operator):
    """Passes records to a sink.

    Attributes:
        sink: the sink.
    """

    sink: "BaseSink"


@dataclass(frozen=True)
class SourceOperator(Operator):
    """Reads a topic. Every sub-topology starts with a source."""

    name: ClassVar[str] = "source"
    topic: Topic

    def multiplies_records(self) -> bool:
        """Return whether a value of the topic may contain several records."""
        return self.topic.value_deserializer.split_values

    def build(self, child: RecordHandler, node: "Node", context: OperatorContext) -> RecordHandler:  # noqa: D102
        return child

    def describe(self) -> str:  # noqa: D102
        return self.topic.name


@dataclass(frozen=True)
class SideOutput(Operator):
    """Passes on what its parent puts out in addition to its results, under a tag.

    Attributes:
        tag: the tag.
        late: whether these records may be older than any watermark.
    """

    name: ClassVar[str] = "side_output"
    tag: str
    late: bool = False

    @property
    def holds_back_ms(self) -> int | None:  # noqa: D102
        return None if self.late else 0

    def build(self, child: RecordHandler, node: "Node", context: OperatorContext) -> RecordHandler:  # noqa: D102
        return child

    def describe(self) -> str:  # noqa: D102
        return self.tag


@dataclass(frozen=True)
class Node:
    """A place in the graph.

    Attributes:
        id: position in the topology; a parent's id is always lower.
        parents: ids of the parents: none for a source, several for a `MergeOperator`, in the order of its inputs; one
            of them may occur twice.
        operator: the operator of the node.
        location: file and line of the user's code that added the node.
    """

    id: int
    parents: tuple[int, ...]
    operator: Operator
    location: str

    @property
    def label(self) -> str:
        """A name that is unique in the topology, such as `apply-3`."""
        return f"{self.operator.name}-{self.id}"

    def __str__(self) -> str:
        words = self.operator.describe()
        return f"{self.label}{f' ({words})' if words else ''} defined at {self.location}"


def numbers_of(item: object) -> tuple[str, ...]:
    """Return the whole numbers in the fields of an object, by name.

    Example:
        >>> from dataclasses import make_dataclass
        >>> numbers_of(make_dataclass("Window", ["size_ms", "name"])(10, "a"))
        ('size_ms=10',)
    """
    return tuple(
        f"{name}={value}" for name, value in sorted(getattr(item, "__dict__", {}).items()) if type(value) is int
    )
