"""Process functions at work: calls, timers, and the check of results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import GeneratorType
from typing import Any, ClassVar, Final, cast

from streamrt.operators.endings import Endings
from streamrt.process.context import ENDED, Call, Context, TaskContext, TimeDomain, TimerContext
from streamrt.process.function import TimedFunction
from streamrt.records import Headers, Tick
from streamrt.state.access.keyed_state import OVER
from streamrt.state.base import Transaction
from streamrt.state.journal import due
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timers import NEVER, Timers
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.tallies import TIMERS

__all__ = ["ProcessExecution", "TimedOperator"]

_EVENT_TIME: Final = TimeDomain.EVENT_TIME


@dataclass(frozen=True)
class TimedOperator(Operator):
    """Runs a function with state and timers.

    Attributes:
        function: the function.
        store: the store of its state and timers.
        watermark: the watermark that timers of event time wait for; None for the stream time of their partition.
        delay_ms: how much later than its time a timer of event time is due.
        topics: the names of the topics that the frame reads.
    """

    timer_context: ClassVar[type[TimerContext]] = TimerContext
    """The class of the contexts of timers."""
    function: TimedFunction
    store: ProcessStoreSpec
    watermark: WatermarkStrategy | None
    delay_ms: int
    topics: tuple[str, ...]

    @property
    def has_timers(self) -> bool:
        """Whether the function may register timers."""
        return type(self.function).on_timer is not TimedFunction.on_timer

    def describe(self) -> str:  # noqa: D102
        return f"{type(self.function).__qualname__.rsplit('<locals>.', 1)[-1]}, {self.store.name}"

    def stores(self) -> tuple[ProcessStoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return () if self.watermark is None else ((self.store.name, self.watermark),)

    def wall_clock_stores(self) -> tuple[str, ...]:
        """The store reports deadlines of both kinds."""
        return (self.store.name,) if self.has_timers else ()

    def side_outputs(self) -> tuple[SideOutput, ...]:
        """Their records may have any timestamp."""
        return tuple(SideOutput(tag, late=True) for tag in self.function.outputs)

    @property
    def holds_back_ms(self) -> int | None:
        """Results of timers have the times of the timers, which may be in the past."""
        return None if self.has_timers else 0

    def multiplies_records(self) -> bool:  # noqa: D102
        return True

    def resumes(self) -> bool:  # noqa: D102
        return self.has_timers

    def timed(self) -> bool:  # noqa: D102
        return self.has_timers

    def ends(self) -> bool:
        """Timers of event time fire, and those of processing time are dropped."""
        return self.has_timers


class ProcessExecution:
    """A process function at work, in one process, for all tasks of a stream.

    Args:
        operator: the operator.
        child: takes the results.
        node: the node of the operator.
        context: the services of the task.
    """

    def __init__(self, operator: TimedOperator, child: RecordHandler, node: Node, context: OperatorContext) -> None:
        self._function = operator.function
        self._child = child
        self._node = node
        self._store = operator.store.name
        self._topics = operator.topics
        self._by_partition = operator.watermark is None
        self._strategy = operator.watermark
        self._delay = operator.delay_ms
        self._begin_portion, self._when_complete = context.begin_portion, context.when_complete
        outputs: Mapping[str, RecordHandler | None] = {
            tag: context.side_output(tag) for tag in operator.function.outputs
        }
        name = type(operator.function).__qualname__.rsplit("<locals>.", 1)[-1]
        self._endings = Endings(name, self._store)
        self._access = context.access(operator.store)
        self._call = Call(name, self._delay, operator.has_timers, outputs, self._access.metrics)
        self._timer_context = operator.timer_context
        self._follow = partial(context.follow, operator.store)
        # Set before the first record and tick.
        self._transaction: ProcessTransaction
        self._opened = False
        context.on_close(self.close)
        self._fired = 0
        context.watch(TIMERS, self._store, lambda: self._fired)
        if operator.has_timers or operator.watermark is not None:
            context.on_tick(node, self._handle_tick)

    def running(self) -> ProcessTransaction:
        """Return the running transaction of the store."""
        return self._transaction

    def close(self) -> None:
        """Close the function, if it is open."""
        if self._opened:
            self._opened = False
            self._function.close()

    def handler(self, method: str, node: Node, context_class: type[Context] = Context) -> RecordHandler:
        """Return the handler of records that calls a method of the function.

        Args:
            method: name of the method; it takes the value and a context.
            node: the node, for errors; it may name the input.
            context_class: the class of the context.
        """
        call, child, bound = self._call, self._child, getattr(self._function, method)
        by_partition, has_timers, delay = self._by_partition, self._call.has_timers, self._delay
        when_complete, own, fire_due = self._when_complete, self._node, self._fire_due
        # One object for all records: one for each would double the time of a call without state.
        context = context_class(call)
        transaction: ProcessTransaction
        function: Callable[[Any, Context], Iterable[Any] | None]

        def use_transaction(running: Transaction) -> None:
            nonlocal transaction
            self._transaction = context._transaction = transaction = cast("ProcessTransaction", running)

        self._follow(use_transaction)

        def open_and_call(value: Any, context: Context) -> Iterable[Any] | None:
            nonlocal function
            self._ensure_open()
            function = bound
            return function(value, context)

        function = open_and_call

        def process(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if timestamp > transaction.clock:
                transaction.clock = timestamp
            context.key = key
            context.timestamp = timestamp
            context.headers = headers
            try:
                results = function(value, context)
                if results is not None:
                    kind = type(results)
                    if kind is not list and kind is not GeneratorType and kind is not tuple:
                        _check_results(results, call.function, method)
                    for result in results:
                        child(result, key, timestamp, headers)
            finally:
                context.key = ENDED
                if context._state is not None:
                    # No call that can be saved. The state and its handles must not reach the next record.
                    context._state._transaction = OVER
                    context._state = None
            if by_partition:
                if timestamp > transaction.event_time:
                    transaction.event_time = timestamp
            elif timestamp > transaction.moves_from:
                transaction.move(timestamp)
            # Also if time has not moved: the record may have registered a timer that is due at once.
            if has_timers and transaction.event_timers.due_from <= transaction.event_time - delay:
                when_complete(own, fire_due)

        generator = None if self._strategy is None else self._strategy.generator
        return process if generator is None else self._with_generator(process, node)

    def _with_generator(self, process: RecordHandler, node: Node) -> RecordHandler:
        """Return the handler of records for a strategy with a generator."""
        marks = cast("WatermarkStrategy", self._strategy).marks()

        def generate(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            # First: if the generator fails, the record has no effect.
            mark = marks(value, timestamp)
            process(value, key, timestamp, headers)
            if self._transaction.note_mark(mark) and self._call.has_timers:
                self._when_complete(self._node, self._fire_due)

        return generate

    def _handle_tick(self, moment: Tick) -> None:
        _node = self._node
        self._ensure_open()
        transaction = self._transaction
        if moment.final:
            self._fire_remaining(transaction)
            return
        if not self._by_partition:
            others, watermark = moment.others.get(self._store), moment.watermarks.get(self._store)
            transaction.hear(others, watermark, still=moment.still)
        if self._call.has_timers:
            bound = transaction.event_time - self._delay
            if self._fire_timers(transaction, transaction.event_timers, bound, _EVENT_TIME):
                self._fire_timers(transaction, transaction.processing_timers, moment.now, TimeDomain.PROCESSING_TIME)

    def _fire_due(self) -> None:
        """Fire the timers of event time that records have made due."""
        transaction = self._transaction
        self._fire_timers(transaction, transaction.event_timers, transaction.event_time - self._delay, _EVENT_TIME)

    def _fire_timers(self, transaction: ProcessTransaction, timers: Timers, bound: int, domain: TimeDomain) -> bool:
        """Fire the timers that are due, in the order of their times; return False if the portion is over before.

        Ticks continue with the rest, before the next record. Timers that are registered meanwhile and are due also fire.

        Args:
            transaction: the transaction.
            timers: its timers of one kind of time.
            bound: the time up to which they are due.
            domain: the kind of time.
        """
        # For errors: what fails here is not an input.
        _node = self._node
        must_stop: Callable[[], bool] | None = None
        context = self._timer_context(self._call)
        context.headers, context.time_domain, context._transaction = None, domain, transaction
        while (timer := timers.due(bound)) is not None:
            if must_stop is None:
                must_stop = self._begin_portion(_node)
            if must_stop():
                return False
            timers.fire(timer)
            self._fired += 1
            time, prefix = timer
            context.key = key = transaction.key_of(prefix)
            context.timestamp = time
            context._timer_prefix = prefix
            registered = self._call.registered
            due(transaction.journal, self._on_timer)(time, key, context)
            if self._call.at_end and self._call.registered > registered:
                self._endings.note(timers, prefix, key)
        return True

    def _on_timer(self, time: int, key: Any, context: TimerContext) -> None:
        try:
            results = self._function.on_timer(time, context)
            if results is not None:
                if type(results) not in (GeneratorType, list, tuple):
                    _check_results(results, self._call.function, "on_timer")
                for result in results:
                    self._child(result, key, time, None)
        finally:
            context.key = ENDED
            if context._state is not None:
                context._state.end()
                context._state = None

    def _fire_remaining(self, transaction: ProcessTransaction) -> None:
        """Fire all timers of event time, and drop those of processing time; no clock moves."""
        self._call.at_end = True
        try:
            over = self._fire_timers(transaction, transaction.event_timers, NEVER, _EVENT_TIME)
        finally:
            self._call.at_end = False
        if over:
            self._endings.drop(transaction.processing_timers, self._begin_portion(self._node))

    def _ensure_open(self) -> None:
        if not self._opened:
            self._function.open(TaskContext(self._store, self._topics, self._access))
            self._opened = True


def _check_results(results: Any, function: str, method: str) -> None:
    """Refuse results that are not an iterable, and a dict or a string, which would be taken apart."""
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise TypeError(
            f"{function}.{method} must return an iterable of results or None, but returned {type(results).__name__}: "
            "yield each result, or return a list"
        )
